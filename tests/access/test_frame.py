from collections import Counter
from functools import partial
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedslot.access.channels import CHANNELS, Channel, Collision, make_channel
from fedslot.access.clock import cost_max, cost_sum
from fedslot.access.frame import contend, draw_backlogged, play, resolve, tally
from fedslot.messages import Grant, Merit


class Scripted(Channel):
    """A channel that receives UEs in slots that the test chose, and remembers what it was asked."""

    def __init__(self, *slots: int) -> None:
        self.slots = np.array([slots], dtype=np.int64)
        self.asked: tuple[list[int], int] | None = None

    def draw(self, earliest, slots, rng):
        self.asked = (earliest[0].tolist(), slots)
        return super().draw(earliest, slots, rng)

    def resolve(self, sent, slots, rng):
        return np.where(sent[:, :, 0] > 0, self.slots, 0)


def _ues(*numbers: int) -> np.ndarray:
    return np.array(numbers, dtype=np.int64)


def _rng() -> np.random.Generator:
    return np.random.default_rng(0)


def test_a_frame_by_hand():
    """Six slots: UEs 4 and 2 are pulled; of three contenders UE 9 gets push slot 3 and UE 7 push slot 1."""
    channel = Scripted(3, 0, 1)
    receipt = play(Grant(_ues(4, 2), push=True), 6, _ues(9, 8, 7), None, channel, _rng(), _rng())
    assert channel.asked == ([1, 1, 1], 4)
    assert receipt.received.tolist() == [4, 2, 7, 9]
    assert receipt.pull_slots.tolist() == [1, 2]
    assert receipt.push_slots.tolist() == [3, 5]
    assert receipt.collided.tolist() == [8]
    assert receipt.wasted.tolist() == []
    assert (cost_max(receipt), cost_sum(receipt)) == (6, 2 + 3 + 4 + 6)
    assert receipt.contenders == 3


def test_pulled_ues_that_are_not_ready_waste_their_slot():
    """Slot z begins z - 1 after the downlink slot: UE 0 is ready at 0, UE 1 a little late, UE 2 just in time."""
    ready = np.array([0.0, 1.01, 2.0, np.inf])
    receipt = play(Grant(_ues(0, 1, 2, 3)), 4, _ues(), ready, Collision(), _rng(), _rng())
    assert receipt.pulled.tolist() == [0, 2]
    assert receipt.pull_slots.tolist() == [1, 3]
    assert receipt.wasted.tolist() == [1, 3]
    assert cost_max(receipt) == 4


def test_readiness_gives_the_earliest_push_slot():
    """Three pull slots: push slot j begins at 2 + j. Ready by 3: any; then only slots that begin after."""
    ready = np.array([0.0, 2.9, 3.0, 3.1, 4.0, 4.5, 7.0, 7.1, np.inf, 0, 0, 0])
    channel = Scripted(1, 2, 3, 4, 5, 5, 5, 0, 0)
    receipt = play(Grant(_ues(9, 10, 11), push=True), 8, np.arange(9), ready, channel, _rng(), _rng())
    assert channel.asked == ([1, 1, 1, 2, 2, 3, 5, 6, 6], 5)
    # the two that are ready too late have not transmitted, so they have not collided either
    assert receipt.contenders == 7


@pytest.mark.parametrize(("grant", "slots"), [(Grant(_ues(0, 1), push=False), 5), (Grant(_ues(0, 1), push=True), 2)])
def test_nobody_pushes_where_it_is_not_granted_or_no_slot_is_left(grant, slots):
    receipt = play(grant, slots, _ues(2, 3), None, Collision(), _rng(), _rng())
    assert receipt.received.tolist() == [0, 1]
    assert (receipt.contenders, receipt.collided.tolist(), cost_max(receipt)) == (0, [], 3)
    assert (receipt.idle_slots, receipt.collided_slots) == (0, 0)
    assert (receipt.attempts.slots.shape, receipt.attempts.barred.tolist()) == ((0, 1), []), "one column, no UE"


@pytest.mark.parametrize("probability", [1.0, 0.3, 0.05])
def test_barring_keeps_ues_silent_with_its_probability(probability):
    """Over many frames the mean number of contenders is N times the probability."""
    frames, backlogged, rng = 2000, 20, np.random.default_rng(5)
    grant = Grant(_ues(), push=True, probability=probability)
    counts = [play(grant, 10, np.arange(backlogged), None, Collision(), rng, rng).contenders for _ in range(frames)]
    error = np.sqrt(backlogged * probability * (1 - probability) / frames)
    assert abs(np.mean(counts) - backlogged * probability) <= 4 * error


@given(st.data())
def test_every_ue_ends_in_one_place(data):
    """Pulled or wasted; pushed, collided or silent; slots in order and within the frame."""
    ues, slots = data.draw(st.integers(1, 12)), data.draw(st.integers(1, 10))
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    pull = rng.permutation(ues)[: data.draw(st.integers(0, min(ues, slots)))]
    backlogged = draw_backlogged(data.draw(st.integers(0, ues - len(pull))), ues, pull, rng)
    ready = data.draw(st.sampled_from([None, rng.exponential(4, ues)]))
    receipt = play(Grant(pull, push=True, probability=0.8), slots, backlogged, ready, Collision(), rng, rng)
    assert sorted([*receipt.pulled, *receipt.wasted]) == sorted(pull)
    heard = [*receipt.pushed, *receipt.collided]
    assert len(set(heard)) == len(heard)
    assert set(heard) <= set(backlogged.tolist())
    times = [*receipt.pull_slots, *receipt.push_slots]
    assert times == sorted(set(times))
    assert all(slot <= len(pull) for slot in receipt.pull_slots)
    assert all(len(pull) < slot <= slots for slot in receipt.push_slots)
    assert cost_max(receipt) <= slots + 1
    if ready is not None:
        assert all(ready[ue] <= slot - 1 for ue, slot in zip(receipt.received, times, strict=True))


def test_backlogged_are_uniform_over_the_ues_not_pulled():
    pulled, contenders, draws = _ues(1, 4, 7), 3, 20_000
    rng = np.random.default_rng(2)
    drawn = np.array([draw_backlogged(contenders, 10, pulled, rng) for _ in range(draws)])
    assert drawn.shape == (draws, contenders)
    sets = Counter(frozenset(row) for row in drawn.tolist())
    assert set(sets) == {frozenset(ues) for ues in combinations({0, 2, 3, 5, 6, 8, 9}, 3)}
    expected = draws / 35
    assert sum((count - expected) ** 2 / expected for count in sets.values()) < 65.25  # 34 degrees, one in a thousand


def test_all_that_are_not_pulled_are_backlogged_if_no_number_is_given():
    assert draw_backlogged(None, 5, _ues(3, 0), _rng()).tolist() == [1, 2, 4]


@pytest.mark.parametrize(("contenders", "pulled"), [(0, 3), (7, 3), (10, 0), (0, 10)])
def test_the_number_of_backlogged_is_the_number_asked_for(contenders, pulled):
    drawn = draw_backlogged(contenders, 10, np.arange(pulled), _rng())
    assert len(drawn) == contenders
    assert drawn.min(initial=10) >= pulled


@pytest.mark.parametrize("name", CHANNELS)
@given(st.integers(0, 2**32), st.integers(0, 9), st.integers(1, 12), st.floats(0.1, 1.0))
def test_the_halves_of_a_frame_make_the_whole(name: str, seed: int, number: int, slots: int, probability: float):
    """UEs that draw for themselves and a PS that resolves what they drew: the same as the frame in one."""
    channel, backlogged = make_channel(name), np.arange(10, 10 + number)
    grant = Grant(_ues(3), push=True, probability=probability)
    contention, fading = ([np.random.default_rng([seed, half]) for _ in range(2)] for half in range(2))
    whole = play(grant, slots + 1, backlogged, None, channel, contention[0], fading[0])
    sent = contend(np.zeros(number), slots, probability, channel, contention[1])
    assert ((sent >= 0) & (sent <= slots)).all()
    outcome = resolve(sent, slots, channel, fading[1]) if number else _ues()
    halves = tally(grant, slots + 1, np.array([True]), backlogged, sent, outcome, outcome < 0)
    for part in ("received", "pull_slots", "push_slots", "collided", "wasted"):
        assert getattr(halves, part).tolist() == getattr(whole, part).tolist()
    assert (halves.idle_slots, halves.collided_slots) == (whole.idle_slots, whole.collided_slots)


@given(st.integers(0, 2**32), st.integers(0, 12), st.integers(1, 8))
def test_the_receiver_counts_idle_and_collided_slots(seed: int, number: int, slots: int):
    """On the collision channel a slot is idle, received or collided; counted here slot by slot."""
    channel, backlogged = make_channel("collision"), np.arange(number)
    contention, again = (np.random.default_rng(seed) for _ in range(2))
    receipt = play(Grant(_ues(), push=True), slots, backlogged, None, channel, contention, _rng())
    picks = contend(np.zeros(number), slots, 1.0, channel, again)[:, 0].tolist() if number else []
    senders = [picks.count(slot) for slot in range(1, slots + 1)]
    assert receipt.idle_slots == senders.count(0)
    assert receipt.collided_slots == sum(count > 1 for count in senders)
    assert len(receipt.pushed) == senders.count(1)


def test_a_cancelled_copy_leaves_no_collision():
    """CRDSA with copies in slots (1, 2) and (2, 3): both are decoded, so that no slot stays undecoded."""
    sent, outcome = np.array([[1, 2], [2, 3]]), np.array([1, 2])
    receipt = tally(Grant(_ues(), push=True), 4, np.empty(0, dtype=bool), _ues(5, 6), sent, outcome, outcome < 0)
    assert (receipt.idle_slots, receipt.collided_slots) == (1, 0)
    stuck = tally(
        Grant(_ues(), push=True), 4, np.empty(0, dtype=bool), _ues(5, 6), sent[[0, 0]], _ues(0, 0), outcome < 0
    )
    assert (stuck.idle_slots, stuck.collided_slots) == (2, 2)


def test_only_ues_of_merit_contend():
    noise = np.array([0.3, 0.1, 0.2, 0.0])
    grant = Grant(_ues(3), push=True, merit=Merit("noise", most=0.15))
    play_it = partial(play, slots=9, ready=None, channel=make_channel("collision"), contention=_rng(), fading=_rng())
    receipt = play_it(grant, backlogged=_ues(0, 1, 2), own={"noise": noise.__getitem__})
    assert receipt.pushed.tolist() == [1]
    assert receipt.collided.tolist() == []
    told = np.array([5.0, 1.0, np.nan, 2.0])
    by_age = Grant(_ues(), push=True, merit=Merit("age", least=3, told=told))
    assert play_it(by_age, backlogged=_ues(0, 1, 2)).pushed.tolist() == [0]


def test_merit_does_not_change_the_draws_of_others():
    """A UE picks the same slot whether others may contend or not, so that devices can draw for themselves."""
    channel, slots = make_channel("collision"), 50
    noise = np.array([0.0, 1.0, 0.0, 1.0, 0.0])
    frames = [
        play(
            Grant(_ues(), True, 1.0, None, merit),
            slots,
            np.arange(5),
            None,
            channel,
            _rng(),
            _rng(),
            {"noise": noise.__getitem__},
        )
        for merit in (None, Merit("noise", most=0.5))
    ]
    slot_of = [dict(zip(f.pushed.tolist(), f.push_slots.tolist(), strict=True)) for f in frames]
    assert set(slot_of[1]) == {0, 2, 4}
    assert {ue: slot for ue, slot in slot_of[0].items() if ue % 2 == 0} == slot_of[1]


def test_only_backlogged_ues_compute_an_attribute():
    asked = []

    def losses(ues: np.ndarray) -> np.ndarray:
        asked.append(ues.tolist())
        return ues / 10

    grant = Grant(_ues(3), push=True, merit=Merit("loss", least=0.6))
    receipt = play(grant, 9, _ues(7, 2), None, make_channel("collision"), _rng(), _rng(), {"loss": losses})
    assert asked == [[7, 2]]
    assert receipt.pushed.tolist() == [7]
    assert receipt.attempts is not None
    assert receipt.attempts.barred.tolist() == [2]
