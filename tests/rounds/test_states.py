"""States as arrays: what checkpoints shorten comes back bit by bit."""

from __future__ import annotations

import io

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedslot.rounds.states import LONG, restore_runs, shorten_runs

ODD = [0.0, -0.0, np.nan, np.inf, 1e-300]


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, LONG - 1), st.sampled_from(ODD)), max_size=30),
    st.sampled_from(["f8", "f4", "i8", "b1", "f2"]),
)
def test_arrays_with_few_numbers_are_saved_short_and_restored_exactly(numbers: list, dtype: str) -> None:
    array = np.full(LONG, -np.inf if dtype[0] == "f" else 0).astype(dtype)
    for place, number in numbers:
        array[place] = number if dtype[0] == "f" else number == number
    short = shorten_runs({"value": array, "few": array[:9]})
    assert sum(part.nbytes for part in short.values()) < array.nbytes / 4 + 1000
    np.savez(file := io.BytesIO(), **short)
    file.seek(0)
    with np.load(file, allow_pickle=False) as saved:
        restored = restore_runs(dict(saved))
    assert restored.keys() == {"value", "few"}
    assert restored["value"].dtype == array.dtype
    assert restored["value"].tobytes() == array.tobytes()


@pytest.mark.parametrize("array", [np.arange(2.0 * LONG), np.zeros((3, LONG)), np.zeros(2 * LONG, dtype=np.longdouble)])
def test_other_arrays_stay_as_they_are(array: np.ndarray) -> None:
    assert shorten_runs({"value": array})["value"] is array
