"""Announcements: what every UE reads from one is its turn, and free UEs are backlogged as often as in the simulator."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fedslot import Grant, Merit, Scenario
from fedslot.deployment.announcement import Announcement, Backlog, scenario_key
from fedslot.deployment.encoding import Encoding
from fedslot.deployment.frame import Frame
from fedslot.deployment.pace import OwnWork, Pace
from fedslot.deployment.timing import Timing
from fedslot.rounds.round import first_waiting, still_waiting

TIMING = Timing(slot=0.1, downlink=1.0, tolerance=0.05)


def scenario(**changes: object) -> Scenario:
    fields = {"data.ues": 8, "frame.slots": 6, "frame.pull": 2, "push.contenders": 3}
    return Scenario.load("quickstart", fields | {key.replace("__", "."): value for key, value in changes.items()})


def frame(wanted: Scenario, grant: Grant = Grant(np.arange(2), push=True), backlogged: Any = None) -> Frame:  # noqa: B008
    """The frame of a grant; its devices are free unless the backlogged UEs are given."""
    return Frame(wanted, grant, backlogged, 4, seeded=backlogged is not None, unasked=True)


def announce(
    wanted: Scenario, announced: Frame | None = None, slots_spent: int = 40, received: Sequence[int] = (1, 2)
) -> Announcement:
    return Announcement.of(announced or frame(wanted), wanted, "model", TIMING, slots_spent, list(received))


MERITS = [
    None,
    Merit("noise", most=0.02),
    Merit("noise", most=-math.inf),
    Merit("noise", least=math.inf),
    Merit("value", least=-1.0, told=np.array([0.0, math.nan, 2.0, -3.0, 1.0, 1.0, 1.0, 1.0])),
    Merit("value", most=0.5, told=np.array([math.inf, -math.inf, 2.0, -math.inf, math.nan, 0.0, 1.0, -math.inf])),
]


@pytest.mark.parametrize("merit", MERITS, ids=["all", "own", "below all", "above all", "told", "told infinities"])
@pytest.mark.parametrize("backlogged", [[7, 1, 2], None], ids=["known", "open"])
@pytest.mark.parametrize("channel", ["collision", "irsa"])
def test_every_ue_reads_its_own_turn(merit: Merit | None, backlogged: list[int] | None, channel: str) -> None:
    wanted = scenario(push__channel=channel)
    grant = Grant(np.array([5, 3]), push=True, probability=0.7, merit=merit)
    announced = frame(wanted, grant, None if backlogged is None else np.array(backlogged))
    sent = announce(wanted, announced).write()
    read = Announcement.read(sent)
    json.loads(sent, parse_constant=pytest.fail)  # no NaN and Infinity, which no other reader of JSON knows
    assert (read.round, read.slots, read.pull, read.timing) == (4, 6, [5, 3], TIMING)
    for ue in range(8):
        assert repr(read.turn(ue)) == repr(announced.turns.get(ue))  # in which NaN equals NaN


@pytest.mark.parametrize("end", ["least", "most"])
@pytest.mark.parametrize("limit", [-math.inf, 0.5, math.inf])
def test_a_device_applies_the_condition_of_the_simulator(end: str, limit: float) -> None:
    """UEs that were never received have the value -inf; UE 7 is told nothing that can be compared."""
    told = np.array([-math.inf, -math.inf, 0.0, 0.5, 1.0, math.inf, -math.inf, math.nan])
    wanted, merit = scenario(), Merit("value", told=told, **{end: limit})
    read = Announcement.read(announce(wanted, frame(wanted, Grant(np.array([6]), push=True, merit=merit))).write())
    pushing = [ue for ue in range(8) if ue != 6 and (turn := read.turn(ue)) and turn.settle() is not None]
    assert pushing == [ue for ue in np.flatnonzero(merit.holds(told)).tolist() if ue != 6]


def test_nobody_pushes_in_a_frame_without_push_slots() -> None:
    wanted = scenario(frame__pull=6, push__contenders=2)
    read = Announcement.read(announce(wanted, frame(wanted, Grant(np.arange(6), push=True))).write())
    assert read.window is None
    assert read.turn(7) is None
    assert read.turn(5) is not None


def test_no_two_announcements_have_the_same_name() -> None:
    assert len({announce(scenario()).frame for _ in range(100)}) == 100


@pytest.mark.parametrize("text", [b"", b"null", b"[]", b"{}", b'{"window": {}}', b"\xff", b'{"window": null}'])
def test_what_is_no_announcement_is_refused(text: bytes) -> None:
    with pytest.raises(ValueError):
        Announcement.read(text)


NO_LIMITS = ["nan", "1e999", "Infinity", " inf", "0.5", "abc", None, True, [], math.nan, math.inf, -math.inf]


@pytest.mark.parametrize(
    "change",
    [
        {"pull": "x"},
        {"pull": [1.5]},
        {"pull": None},
        {"round": "0"},
        {"round": True},
        {"sent": None},
        {"sent": math.nan},
        {"chance": "inf"},
        {"chance": math.inf},
        {"arrivals": "often"},
        {"backlogged": {}},
        {"told": []},
        {"told": None},
        *({"told": {"3": number}} for number in NO_LIMITS),
        *({"window": {"most": number}} for number in NO_LIMITS),
        {"window": {"least": "abc"}},
        {"window": {"slots": "5"}},
        {"window": {"channel": 3}},
        {"window": {"probability": "inf"}},
        {"window": {"more": 1}},
        {"timing": {"slot": -1.0}},
        {"timing": {"slot": "a"}},
        {"timing": {"more": 1}},
        {"more": 1},
    ],
    ids=str,
)
def test_fields_of_other_types_are_refused(change: dict[str, object]) -> None:
    fields = json.loads(announce(scenario()).write())
    for key, value in change.items():
        inside = isinstance(value, dict) and isinstance(fields.get(key), dict)
        fields[key] = {**fields[key], **value} if inside else value
    with pytest.raises(ValueError, match="no announcement"):
        Announcement.read(json.dumps(fields).encode())


@pytest.mark.parametrize("number", ["1e999", "-1e999", "9" * 400], ids=["large", "small", "whole"])
def test_numbers_beyond_the_range_of_floats_are_refused(number: str) -> None:
    text = announce(scenario()).write().decode()
    changed = text.replace('"most":0.0', f'"most":{number}')
    assert changed != text
    with pytest.raises(ValueError):
        Announcement.read(changed.encode())


def test_the_hash_of_a_scenario_does_not_depend_on_its_length() -> None:
    assert scenario_key(scenario(rounds=3)) == scenario_key(scenario(rounds=30, time_budget=90))
    assert scenario_key(scenario(seed=1)) != scenario_key(scenario())


def test_free_ues_are_backlogged_as_often_as_the_scenario_says() -> None:
    """Three contenders among six UEs that are not pulled: each has an update in half of the frames."""
    announcement, backlog = announce(scenario()), Backlog(7)
    backlogged = sum(backlog(announcement) for _ in range(4000))
    assert abs(backlogged - 2000) < 5 * math.sqrt(4000 / 4)


def test_arrivals_at_a_free_ue_follow_the_law_of_the_simulator() -> None:
    """Shares of backlogged UEs after frames of 7 slots, each received every third time it could be."""
    wanted, ues = scenario(push__arrivals=0.3), 8
    backlogs = [[Backlog(ue) for ue in range(ues)] for _ in range(60)]
    waiting, theirs, ours = first_waiting(wanted), [], []
    for round in range(1, 61):
        received = [ue for ue in range(ues) if (ue + round) % 3 == 0]
        waiting = still_waiting(wanted, waiting, np.array(received, dtype=np.int64), 7 * (round - 1), 7 * round)
        announcement = announce(wanted, None, 7 * round, received)
        ours += [backlog(announcement) for cell in backlogs for backlog in cell]
        theirs += waiting.tolist()
    assert np.mean(ours) == pytest.approx(np.mean(theirs), abs=0.12)
    assert 0.2 < np.mean(ours) < 0.8


def test_an_update_to_push_stays_until_it_is_received() -> None:
    wanted, backlog = scenario(push__arrivals=8.0), Backlog(7)
    assert backlog(announce(wanted, None, 10**6, []))
    assert backlog(announce(wanted, None, 10**6, []))
    assert not backlog(announce(wanted, None, 10**6, [7]))


def test_a_free_ue_pushes_again_until_it_gives_up() -> None:
    """Three contenders among six UEs, of which two wait: the third is one of the four others."""
    wanted, backlog = scenario(push__retries=2), Backlog(7)
    quiet = announce(scenario(push__contenders=0, push__retries=2), None, 40, [])
    assert announce(wanted, None, 40, []).chance == 0.5
    assert Announcement.of(frame(wanted), wanted, "model", TIMING, 40, [], waiting=2).chance == 0.25
    while not backlog(announce(wanted, None, 40, [])):
        continue
    for _ in range(2):
        backlog.sent()
        assert backlog(quiet), "it was not received"
    backlog.sent()
    assert not backlog(quiet), "it gave up after its third push"
    without = Backlog(7)
    without.sent()
    assert not without(announce(scenario(push__contenders=0), None, 40, []))


def test_a_free_ue_with_arrivals_gives_up_only_if_it_may() -> None:
    for retries, stays in ((None, True), (0, False)):
        wanted, backlog = scenario(push__arrivals=8.0, push__retries=retries), Backlog(7)
        assert backlog(announce(wanted, None, 10**6, []))
        backlog.sent()
        assert backlog(announce(wanted, None, 10**6, [])) is stays


def test_the_announcement_is_plain_json_with_infinities_as_text() -> None:
    wanted, told = scenario(), np.array([-math.inf, math.inf, 0.5, math.nan, 0.0, 0.0, 0.0, 0.0])
    grant = Grant(np.array([7, 6]), push=True, merit=Merit("value", most=0.5, told=told))
    fields = json.loads(announce(wanted, frame(wanted, grant)).write())
    assert fields["timing"] == {"slot": 0.1, "downlink": 1.0, "tolerance": 0.05}
    assert (fields["backlogged"], fields["chance"]) == (None, 0.5)
    assert "told" not in fields["window"]
    assert (fields["window"]["least"], fields["window"]["most"]) == ("-inf", 0.5)
    assert fields["told"] == {"0": "-inf", "1": "inf", "2": 0.5, "4": 0.0, "5": 0.0}


def test_the_encoding_is_announced_only_if_there_is_one() -> None:
    wanted = scenario(compression="eden")
    encoding = Encoding.of(wanted, [(4, 3), (4,)])
    announced = Announcement.of(frame(wanted), wanted, "model", TIMING, 0, [4], encoding=encoding)
    assert Announcement.read(announced.write()).encoding == encoding
    assert (announced.last_received(4), announced.last_received(5)) == (announced.round - 1, -1)
    assert "encoding" not in json.loads(announce(scenario()).write())
    for change in (
        {"update": '["os:system", {}]'},
        {"shapes": [[10**9, 10**9]]},
        {"seed": 5},
        {"shapes": None},
        {"x": 1},
    ):
        fields = json.loads(announced.write())
        fields["encoding"] |= change
        with pytest.raises(ValueError, match="no announcement"):
            Announcement.read(json.dumps(fields).encode())


def test_the_pace_is_announced_only_if_no_frame_waits() -> None:
    wanted, pace = scenario(), Pace("a", 100, 7.25, 2, 0.5, [4, 5])
    announced = Announcement.of(frame(wanted), wanted, "model", TIMING, 0, [4], pace=pace)
    assert Announcement.read(announced.write()).pace == pace
    assert "pace" not in json.loads(announce(wanted).write())
    for change in (
        {"training": 5},
        *({"most": most} for most in (-1, 0.5, None)),
        *({"start": start} for start in (-1, "0", 1e13, math.nan)),
        *({"wait": wait} for wait in (-1, 10**7, 0.5)),
        *({"uplink": uplink} for uplink in (0, -1.0, 1e-13, None)),
        *({"order": order} for order in (None, [0.5], {})),
    ):
        fields = json.loads(announced.write())
        fields["pace"] |= change
        with pytest.raises(ValueError, match="no announcement"):
            Announcement.read(json.dumps(fields).encode())


# Announcements that no PS made ---------------------------------------------------------------------

HONEST = {  # seeded, and of devices that know by themselves whether they have an update
    backlogged is None: json.loads(
        announce(wanted, frame(wanted, Grant(np.array([5, 3]), push=True), backlogged)).write()
    )
    | {"pace": asdict(Pace("a", 3, None if backlogged is None else 9, 1, 1, [3, 1]))}
    for wanted in [scenario(push__channel="irsa", push__arrivals=0.5)]
    for backlogged in [None, np.array([7, 1, 2])]
}
NUMBERS = st.integers(-(2**70), 2**70) | st.floats(allow_nan=True)
ANYTHING = st.recursive(
    st.none() | st.booleans() | NUMBERS | st.text(max_size=20) | st.sampled_from(["inf", '["irsa", {"degrees": {}}]']),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
PLACES = st.sampled_from(
    [(key,) for key in HONEST[True]]
    + [(key, name) for key in ("timing", "window", "pace") for name in HONEST[True][key]]
)


@given(free=st.booleans(), changes=st.lists(st.tuples(PLACES, ANYTHING), max_size=3))
@example(free=True, changes=[(("window", "channel"), '["crdsa", {"replicas": 1000000000}]')])
@example(free=True, changes=[(("window", "channel"), '["os:system", {}]')])
@example(free=False, changes=[(("window", "backlogged"), 10**12)])
@example(free=False, changes=[(("backlogged",), [1])])
@example(free=False, changes=[(("window", "slot"), -1)])
@example(free=False, changes=[(("window", "round"), -1)])
@example(free=True, changes=[(("arrivals",), -1.0)])
@example(free=True, changes=[(("arrivals",), 1e12), (("slots_spent",), 10**12)])
@example(free=True, changes=[(("timing", "slot"), 86400.0), (("slots",), 10**6)])
def test_an_announcement_is_refused_or_can_be_followed(
    free: bool, changes: list[tuple[tuple[str, ...], object]]
) -> None:
    """Whatever a device hears, it can draw its slots by it, within the frame and in a short time, or refuses it."""
    fields = json.loads(json.dumps(HONEST[free]))
    for place, value in changes:
        at = fields if len(place) == 1 else fields[place[0]]
        if isinstance(at, dict):
            at[place[-1]] = value
    try:
        read = Announcement.read(json.dumps(fields).encode())
    except ValueError:
        return
    for ue in range(8):
        Backlog(ue)(read)
        turn = read.turn(ue)
        if turn is not None and (settled := turn.settle()) is not None:
            assert all(1 <= slot <= read.slots for slot in settled.draw(late=1))
            if read.pace is not None:
                own = OwnWork(ue, lambda version: 5.0)
                assert own.hear(read.pace, read.round, 1.0)
                late = own.late(settled, read.pace)
                assert late is None or all(1 <= slot <= read.slots for slot in settled.draw(late=late))


def test_honest_announcements_are_read() -> None:
    for fields in HONEST.values():
        assert Announcement.read(json.dumps(fields).encode()).slots == 6
