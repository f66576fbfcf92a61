"""The figure of frames: each slot has the colour of its event and the numbers of its UEs."""

from __future__ import annotations

import pandas as pd
import pytest
from matplotlib import pyplot as plt
from matplotlib.colors import to_hex
from matplotlib.patches import Rectangle

from fedslot.rounds.trace import BARRED, EVENTS
from fedslot.support.errors import InputError
from fedslot.views.frames import SLOTS, plot_frames

TRACE = pd.DataFrame(
    [
        (4, 0, "barred", 9),
        (4, 1, "pulled", 7),
        (4, 2, "collided", 3),
        (4, 2, "collided", 5),
        (4, 3, "idle", None),
        (5, 1, "pushed", 8),
        *((5, 2, "collided", ue) for ue in range(40, 46)),
    ],
    columns=["round", "slot", "event", "ue"],
)


def test_slots_have_their_events_and_ues() -> None:
    axes = plot_frames(TRACE, [4, 5])
    boxes = {patch.get_xy(): to_hex(patch.get_facecolor()) for patch in axes.patches if isinstance(patch, Rectangle)}
    expected = {(0, 0): "downlink", (1, 0): "pulled", (2, 0): "collided", (3, 0): "idle"}
    expected |= {(0, 1): "downlink", (1, 1): "pushed", (2, 1): "collided"}
    assert boxes == {place: SLOTS[event][1].lower() for place, event in expected.items()}
    assert [text.get_text() for text in axes.texts] == ["", "7", "3 5", "", "", "8", "6 UEs"]
    plt.close()


def test_all_events_of_a_slot_can_be_drawn() -> None:
    assert set(SLOTS) == {*EVENTS, "downlink"} - {BARRED}


@pytest.mark.parametrize("rounds", [[], [4, 6]])
def test_rounds_that_the_trace_lacks_are_refused(rounds: list[int]) -> None:
    with pytest.raises(InputError, match=r"rounds: .* is not allowed"):
        plot_frames(TRACE, rounds)
