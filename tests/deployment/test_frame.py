"""Announced frames against the simulator's access layer, and which slots a UE may use."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedslot import Grant, InputError, Merit, Scenario
from fedslot.access.channels import make_channel
from fedslot.access.frame import play
from fedslot.access.reach import pull_only
from fedslot.deployment.frame import Frame, OnAir, Turn
from fedslot.rounds.trace import trace_frame
from fedslot.support.rng import CHANNEL, CONTENTION, stream

CHANNELS = ["collision", "capture", "crdsa", "irsa"]


def frame(
    channel: str = "collision",
    seeded: bool = True,
    push: int = 6,
    probability: float = 1.0,
    seed: int = 0,
    unasked: bool = False,
    merit: Merit | None = None,
) -> Frame:
    """A frame of three pull and five push slots; if devices are free and speak unasked, any of 30 UEs may push."""
    changes = {"data.ues": 30, "frame.slots": 8, "frame.pull": 3, "push.channel": channel, "seed": seed}
    grant = Grant(np.array([4, 0, 9]), push=True, probability=probability, merit=merit)
    backlogged = np.arange(10, 10 + push) if seeded or not unasked else None
    return Frame(Scenario.load("quickstart", changes), grant, backlogged, 3, seeded, unasked)


def over_the_network(turn: Turn) -> Turn:
    return Turn(**json.loads(json.dumps(asdict(turn))))


@pytest.mark.parametrize("channel", CHANNELS)
@given(seed=st.integers(0, 2**80), push=st.integers(0, 20), probability=st.floats(0.1, 1))
def test_seeded_frames_end_as_in_the_simulator(channel: str, seed: int, push: int, probability: float) -> None:
    announced = frame(channel, True, push, probability, seed)
    used = {ue: over_the_network(turn).draw() for ue, turn in announced.turns.items()}
    receipt = OnAir(announced, used).receipt(used.keys())
    random = stream(seed, CONTENTION, 3), stream(seed, CHANNEL, 3)
    expected = play(announced.grant, 8, announced.backlogged, None, make_channel(channel), *random)
    for name, ues in vars(expected).items():
        assert name == "attempts" or np.array_equal(getattr(receipt, name), ues), name
    assert trace_frame(3, receipt) == trace_frame(3, expected)


@pytest.mark.parametrize("channel", CHANNELS)
@pytest.mark.parametrize("seeded", [True, False])
def test_a_ue_may_use_what_it_drew(channel: str, seeded: bool) -> None:
    turns = frame(channel, seeded, probability=0.7).turns.values()
    assert all(turn.allows(turn.draw()) for turn in turns for _ in range(20))


@pytest.mark.parametrize(
    ("seeded", "slots"),
    [
        (True, lambda turn: [4 + (turn.draw()[0] - 4 + 1) % 5]),  # not the slot that it drew
        (True, lambda turn: []),  # not barred
        (False, lambda turn: [3]),
        (False, lambda turn: [9]),
        (False, lambda turn: [4, 5]),  # one copy only on this channel
        (False, lambda turn: [4, 4]),
    ],
)
def test_a_ue_may_not_use_other_slots(seeded: bool, slots: Any) -> None:
    turn = frame(seeded=seeded).turns[12]
    assert not turn.allows(slots(turn))


def test_a_pulled_ue_may_use_its_own_slot_only() -> None:
    turn = frame().turns[0]
    assert [slots for slots in ([], [1], [2], [3], [2, 3]) if turn.allows(slots)] == [[2]]


def test_the_number_of_copies_is_limited() -> None:
    turn = frame("crdsa", seeded=False).turns[12]
    assert turn.copies == 2
    assert turn.allows([4, 8])
    assert not turn.allows([4, 5, 6])


def test_without_a_seed_the_draw_differs() -> None:
    turn = frame(seeded=False).turns[12]
    assert len({tuple(turn.draw()) for _ in range(100)}) == 5


@pytest.mark.parametrize("sound", [True, False])
def test_an_unusable_message_occupies_its_slot(sound: bool) -> None:
    """UEs 10 and 11 collide whether or not 10's message can be used, UE 12 is received, and UE 0's slot is wasted."""
    announced = frame(push=3)
    used = {4: [1], 0: [2], 9: [3], 10: [5], 11: [5], 12: [8]}
    receipt = OnAir(announced, used).receipt({4, 9, 11, 12} | ({10} if sound else set()))
    assert receipt.collided.tolist() == [10, 11]
    assert (receipt.pushed.tolist(), receipt.push_slots.tolist()) == ([12], [8])
    assert (receipt.pulled.tolist(), receipt.wasted.tolist()) == ([4, 9], [0])


def test_an_unusable_message_alone_in_its_slot_counts_as_collided() -> None:
    receipt = OnAir(frame(push=3), {10: [4]}).receipt(set())
    assert (receipt.pushed.tolist(), receipt.collided.tolist()) == ([], [10])


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"push.channel": "fedslot.access.channels:Collision"}, "push.channel"),  # a message must not import anything
        ({"push.channel.options": {"nonsense": 1}}, "push.channel.options.nonsense"),
    ],
)
def test_channels_that_cannot_be_deployed_are_refused(changes: dict[str, object], field: str) -> None:
    with pytest.raises(InputError, match=field):
        Frame(Scenario.load("quickstart", changes), Grant(np.arange(2), push=True), np.array([5]), 0, True)


def test_degrees_of_irsa_survive_the_network() -> None:
    options = {"push.channel": "irsa", "push.channel.options": {"degrees": {3: 1.0}}, "frame.slots": 8}
    turns = Frame(Scenario.load("quickstart", options), Grant(np.arange(2), push=True), np.array([5, 6]), 0, True).turns
    assert len(over_the_network(turns[6]).draw()) == 3


# Devices that speak of their own accord ------------------------------------------------------------


@pytest.mark.parametrize("channel", CHANNELS)
@pytest.mark.parametrize("probability", [0.5, 1.0])
def test_a_seeded_ue_settles_as_it_draws(channel: str, probability: float) -> None:
    """The PS expects those that send, and no others."""
    announced = frame(channel, probability=probability, unasked=True)
    settled = {ue: over_the_network(turn).settle() for ue, turn in announced.turns.items()}
    drawn = {ue: turn.draw() for ue, turn in announced.turns.items()}
    assert [ue for ue, turn in settled.items() if turn] == [ue for ue, slots in drawn.items() if slots]
    assert announced.expected == [ue for ue, slots in drawn.items() if slots]
    assert all(turn.draw() == drawn[ue] for ue, turn in settled.items() if turn)
    assert announced.foreseen


def test_a_condition_that_only_the_ue_knows_is_its_own_to_check() -> None:
    turn = frame(unasked=True, merit=Merit("noise", most=0.5)).turns[11]
    assert turn.settle({"noise": 0.6}) is None
    assert turn.settle() is None
    settled = turn.settle({"noise": 0.4})
    assert settled is not None
    assert settled.draw() == turn.draw({"noise": 0.4})


@pytest.mark.parametrize("seeded", [True, False])
def test_a_condition_on_what_training_tells_is_checked_after_it(seeded: bool) -> None:
    turn = frame(seeded=seeded, unasked=True, merit=Merit("loss", least=0.5)).turns[11]
    settled = over_the_network(turn).settle({"noise": 0.1})
    assert settled is not None, "it trains first"
    assert settled.draw({"loss": 0.4}) == settled.draw() == []
    slots = settled.draw({"loss": 0.6})
    assert slots
    assert turn.allows(slots)
    assert turn.allows([])
    assert not seeded or slots == turn.draw({"loss": 0.6})


def test_a_condition_that_the_ps_told_is_known_to_both() -> None:
    told = np.zeros(30)
    told[11] = 2.0
    announced = frame(unasked=True, merit=Merit("value", least=1.0, told=told))
    assert announced.foreseen
    assert announced.expected == [4, 0, 9, 11]


@pytest.mark.parametrize("channel", CHANNELS)
@given(late=st.integers(0, 6))
def test_a_free_ue_draws_slots_that_have_not_begun(channel: str, late: int) -> None:
    turn = frame(channel, seeded=False, unasked=True).turns[20].settle()
    assert turn is not None
    slots = turn.draw(late=late)
    assert all(3 + late < slot <= 8 for slot in slots)
    assert bool(slots) == (late < 5) or channel in ("crdsa", "irsa")
    assert not slots or turn.allows(slots)


def test_free_ues_are_barred_as_often_as_announced() -> None:
    turn = frame(seeded=False, probability=0.25, unasked=True).turns[20]
    contending = sum(turn.settle() is not None for _ in range(2000))
    assert abs(contending - 500) < 5 * (2000 * 0.25 * 0.75) ** 0.5


def test_of_free_ues_those_count_that_sent() -> None:
    """Three of 27 UEs push: two collide, one is received; the others are not known to have anything to send."""
    announced = frame(seeded=False, unasked=True)
    assert len(announced.turns) == 30
    used = {4: [1], 9: [3], 20: [5], 21: [5], 29: [8]}
    assert set(OnAir(announced, used).received) == {4, 9, 29}
    receipt = OnAir(announced, used).receipt({4, 20, 21, 29})
    assert receipt.pulled.tolist() == [4]
    assert receipt.wasted.tolist() == [0, 9]
    assert (receipt.pushed.tolist(), receipt.collided.tolist()) == ([29], [20, 21])
    assert (receipt.contenders, receipt.idle_slots, receipt.collided_slots) == (3, 3, 1)


# The kinds of frames ------------------------------------------------------------------------------

PULLED, PUSHING, BARRING = [4, 0, 9], [12, 14], {"probability": 0.4, "seed": 64}  # by this seed, these push
NOISE, VALUE = Merit("noise", most=0.5), Merit("value", most=0.5, told=np.full(30, -np.inf))
TURNS = [*PULLED, *range(10, 16)]
KINDS: list[tuple[bool, bool, Merit | None, bool, bool, list[int], list[int]]] = [
    # unasked, seeded, merit; open, foreseen, expected, UEs that are barred if they say nothing
    (False, True, None, False, True, TURNS, []),
    (False, True, VALUE, False, True, TURNS, []),
    (False, True, NOISE, False, False, TURNS, []),
    (False, False, None, False, False, TURNS, []),
    (False, False, NOISE, False, False, TURNS, []),
    (True, True, None, False, True, [*PULLED, *PUSHING], [10, 11, 13, 15]),
    (True, True, VALUE, False, True, [*PULLED, *PUSHING], [10, 11, 13, 15]),
    (True, True, NOISE, False, False, PULLED, [10, 11, 12, 13, 14, 15]),
    (True, False, None, True, False, PULLED, []),
    (True, False, NOISE, True, False, PULLED, []),
]


@pytest.mark.parametrize(("unasked", "seeded", "merit", "is_open", "foreseen", "expected", "barred"), KINDS)
def test_whom_the_ps_expects(
    unasked: bool,
    seeded: bool,
    merit: Merit | None,
    is_open: bool,
    foreseen: bool,
    expected: list[int],
    barred: list[int],
) -> None:
    """One that must have sent and is not heard is lost; one that need not have sent and says nothing is barred."""
    announced = frame(seeded=seeded, unasked=unasked, merit=merit, **BARRING)
    assert (announced.open, announced.foreseen, announced.expected) == (is_open, foreseen, expected)
    attempts = OnAir(announced, {}).receipt(set()).attempts
    assert attempts is not None
    assert (attempts.ues.tolist(), attempts.barred.tolist()) == ([], barred)


@pytest.mark.parametrize("unasked", [False, True])
def test_a_ue_that_names_no_slots_was_barred(unasked: bool) -> None:
    announced = frame(unasked=unasked, **BARRING)
    attempts = OnAir(announced, {10: [], 12: [5], 14: []}).receipt({12}).attempts
    assert attempts is not None
    assert attempts.ues.tolist() == [12]
    assert attempts.barred.tolist() == ([10, 11, 13, 14, 15] if unasked else [10, 14])


# UEs that are offline -----------------------------------------------------------------------------

UES = st.sets(st.integers(0, 11))


@given(
    pull=st.permutations(range(12)),
    count=st.integers(0, 12),
    here=UES,
    owed=UES,
    push=st.booleans(),
    round=st.integers(0, 99),
)
def test_only_ues_that_are_here_are_pulled(
    pull: list[int], count: int, here: set[int], owed: set[int], push: bool, round: int
) -> None:
    """First those that are owed a pull, then those that were chosen, then any others, as many as there are slots."""
    chosen = pull[:count]
    grant = pull_only(Grant(np.array(chosen, dtype=np.int64), push=push, slots=14), here, owed, 20, round)
    got = grant.pull.tolist()
    assert len(set(got)) == len(got) == min(count, len(here))
    assert set(got) <= here
    kept = [ue for ue in got if ue in chosen]
    assert kept == [ue for ue in chosen if ue in here][: len(kept)]
    back = (owed & here) - set(chosen)
    assert len(back & set(got)) == min(len(back), count)
    if back <= set(got) and set(got) - set(chosen) - back:
        assert len(kept) == len(set(chosen) & here)
    assert grant.slots == (14 if push or not count else 14 - (count - len(got)))  # nobody waits for an empty slot


def test_ues_take_turns_in_the_slots_of_those_that_are_offline() -> None:
    grant = Grant(np.array([0, 1, 2]))
    filled = [pull_only(grant, {1, *range(3, 9)}, set(), 3, round).pull.tolist() for round in range(6)]
    assert {ue for pull in filled for ue in pull} == {1, *range(3, 9)}
    assert all(pull[1] == 1 for pull in filled)


def test_one_that_comes_back_takes_the_last_slot() -> None:
    assert pull_only(Grant(np.array([0, 1, 2])), set(range(9)), {7}, 3, 0).pull.tolist() == [0, 1, 7]
