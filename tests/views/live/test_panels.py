"""What the panels show of rounds and frames, and that their figures can be built."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from fedslot.rounds.trace import EVENTS as TRACED
from fedslot.scenario import Scenario
from fedslot.views.live.panels import EVENTS, FILLED, Panels, frame_columns, mean_curve, on_dark, round_columns
from fedslot.views.live.watched import WatchedRun
from fedslot.views.style import LOOKS

ROUND = {
    "round": 7,
    "test_accuracy": 0.5,
    "slots": 10,
    "pulled": 3,
    "wasted": 1,
    "lost": 0,
    "contenders": 9,
    "push_received": 2,
}
ROUND |= {"collided": 7, "cost_max": 9, "cost_frame": 11, "slots_spent": 80}


def run(group: str, seed: int = 0) -> WatchedRun:
    return WatchedRun(f"{group}, seed {seed}", group, Path(group), Scenario())


def test_the_load_of_push_slots() -> None:
    """Ten slots of which three pulled and one was wasted: six push slots, nine contenders, two received."""
    columns = round_columns(pd.DataFrame([ROUND, {**ROUND, "pulled": 9}]))
    assert columns["push_slots"].tolist() == [6, 0]
    assert columns["load"][0] == 1.5
    assert columns["throughput"][0] == pytest.approx(1 / 3)
    assert np.isnan(columns["load"][1]), "a frame without push slots has no load"


def test_ues_that_share_a_slot_share_its_width() -> None:
    frames = pd.DataFrame(
        [
            (4, 1, "pulled", 5, 0.1, np.nan),
            (4, 2, "collided", 6, 0.2, 0.0),
            (4, 2, "collided", 7, 0.3, 0.0),
            (4, 3, "idle", np.nan, np.nan, np.nan),
            (5, 2, "collided", 6, 0.2, 0.0),
        ],
        columns=["round", "slot", "event", "ue", "value", "noise"],
    )
    columns = frame_columns(frames)
    assert columns["width"] == pytest.approx([FILLED, FILLED / 2, FILLED / 2, FILLED, FILLED])
    assert columns["x"] == pytest.approx([4, 4 - FILLED / 4, 4 + FILLED / 4, 4, 5])
    assert columns["label"] == ["5", "", "", "", "6"]
    assert columns["event"] == frames["event"].to_list()


def test_the_mean_of_curves_as_far_as_all_go() -> None:
    """Two staircases by hand: at 30 slots, 0.6 (of 20 slots) and 0.4."""
    one = pd.DataFrame({"slots_spent": [10, 20, 40], "test_accuracy": [0.1, 0.6, 0.9]})
    two = pd.DataFrame({"slots_spent": [15, 30], "test_accuracy": [0.2, 0.4]})
    curve = mean_curve([one, two, one[:0]])
    assert (curve["slots_spent"][0], curve["slots_spent"][-1]) == (15, 30)
    assert (curve["accuracy"][0], curve["accuracy"][-1]) == pytest.approx((0.15, 0.5))
    assert len(mean_curve([one[:0]])["accuracy"]) == 0
    assert mean_curve([one[:1]])["accuracy"].tolist() == [0.1]


def test_every_event_has_its_colour_on_both_grounds() -> None:
    assert set(EVENTS) == set(TRACED)
    for index in (1, 2):
        assert len({event[index] for event in EVENTS.values()}) == len(EVENTS)


@pytest.mark.parametrize("name", LOOKS)
def test_curves_can_be_seen_on_dark_ground(name: str) -> None:
    red, green, blue = (int(on_dark(LOOKS[name]["color"])[i : i + 2], 16) / 255 for i in (1, 3, 5))
    assert 0.3 * red + 0.59 * green + 0.11 * blue > 0.5


def test_each_run_has_a_curve_and_each_group_of_several_a_mean() -> None:
    panels = Panels([run("push-pull", 0), run("push-pull", 1), run("mine:Oldest")])
    assert set(panels.figures) == {"accuracy", "ues", "frames", "cost", "air", "load", "followed"}
    assert list(panels.curves) == [0, 1, 2]
    assert list(panels.means) == ["push-pull"]
    assert [item.label.value for item in panels.figures["accuracy"].legend[0].items] == ["push-pull", "mine:Oldest"]


def test_the_curves_of_a_large_sweep_are_bounded() -> None:
    panels = Panels([run(f"frame.pull={i}", seed) for i in range(100) for seed in range(3)])
    figure = panels.figures["accuracy"]
    assert len(figure.renderers) < 100
    assert panels.curves == {}
    assert not figure.legend[0].visible
