"""Curves in figures: names at their ends, the user's settings, and axes that the user made."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib import pyplot as plt

from fedslot.support.errors import InputError
from fedslot.views.curves import apart, plot_accuracy

RUNS = {
    name: [pd.DataFrame({"test_accuracy": [0.2, top], "slots_spent": [10, 20]})]
    for name, top in (("fedavg", 0.7), ("mine:Half", 0.8))
}


@given(st.lists(st.floats(0, 1), max_size=20), st.floats(0.001, 0.3))
def test_names_keep_their_order_and_distance(heights: list[float], distance: float) -> None:
    moved = apart(np.array(heights), distance)
    assert moved.mean() == pytest.approx(np.mean(heights)) if heights else not len(moved)
    order = np.argsort(heights, kind="stable")
    assert (np.diff(moved[order]) >= distance - 1e-9).all()
    far = np.diff(np.sort(heights)) >= distance
    if far.all():
        assert moved == pytest.approx(np.array(heights)), "nothing moves that is far apart"


def test_settings_of_the_user_are_respected() -> None:
    with plt.rc_context({"lines.linewidth": 3.5, "axes.grid": False}):
        axes = plot_accuracy(RUNS)
    assert {line.get_linewidth() for line in axes.get_lines()} == {3.5}
    assert axes.xaxis.label.get_fontsize() == 8, "the others are those of fedslot"
    plt.close()


def test_axes_of_the_user_look_like_new_ones() -> None:
    _, given = plt.subplots()
    own, new = plot_accuracy(RUNS, axes=given), plot_accuracy(RUNS)
    assert own is given
    for axes in (own, new):
        assert not axes.spines["top"].get_visible()
        assert axes.xaxis.get_gridlines()[0].get_visible()
        assert axes.yaxis.label.get_fontsize() == 8
    assert own.get_legend() is not None, "without a layout engine there is no room for names beside the axes"
    assert [text.get_text() for text in new.texts] == list(RUNS)
    plt.close("all")


def test_a_figure_for_a_column_has_its_width() -> None:
    assert plot_accuracy(RUNS, size="column").figure.get_figwidth() == 3.5
    plt.close()
    with pytest.raises(InputError, match="size: 'wide' is not allowed"):
        plot_accuracy(RUNS, size="wide")  # type: ignore[arg-type]
