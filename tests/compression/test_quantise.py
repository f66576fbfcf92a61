"""The options of quantisation."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fedslot.compression import Key
from fedslot.compression.quantise import Quantise
from fedslot.parts.kinds import CODECS
from fedslot.support.errors import InputError, RefusedError

KEY = Key(seed=0, round=0, ue=0)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"bits": 1.5}, "compression.options.bits: 1.5 .* a whole number, unless coding is range"),
        ({"bits": 0}, "compression.options.bits"),
        ({"coding": "range", "per": "row"}, "compression.options.per: 'row'"),
    ],
)
def test_options_that_do_not_go_together_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        CODECS.make("quantise", options)


def test_coding_needs_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "constriction", None)
    with pytest.raises(RefusedError, match=r"needs constriction; type: pip install 'fedslot\[compression\]'"):
        CODECS.make("quantise", {"coding": "range"})


def test_coding_has_the_least_error_of_all() -> None:
    """Where most changes are small, by a factor of more than ten."""
    rng, shapes = np.random.default_rng(0), [(20_000,)]
    change = rng.standard_t(2, 20_000).astype(np.float32)
    errors = []
    for options in ({"coding": "range"}, {"reach": "fitted"}, {"reach": "largest"}):
        codec = CODECS.make("quantise", {"bits": 2, **options})
        assert isinstance(codec, Quantise)
        decoded = codec.decode(codec.encode(change, shapes, KEY), shapes, KEY)
        errors.append(np.linalg.norm(decoded - change) / np.linalg.norm(change))
    assert errors == sorted(errors)
    assert errors[1] > 3 * errors[0]
