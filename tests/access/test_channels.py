"""The channels, against enumeration, closed forms, a naive receiver and published thresholds."""

from __future__ import annotations

import math
from itertools import combinations, product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedslot.access.channels import (
    CHANNELS,
    LIVA,
    Capture,
    Channel,
    Coded,
    Collision,
    crdsa,
    irsa,
    make_channel,
)
from fedslot.planning.period import PushPeriod, TimedPushPeriod
from fedslot.support.errors import InputError, RefusedError


def play(channel: Channel, frames: int, contenders: int, slots: int, seed: int = 0) -> np.ndarray:
    earliest = np.ones((frames, contenders), dtype=np.int64)
    return channel.play(earliest, slots, np.random.default_rng(seed))


def z_score(sample: np.ndarray, expected: float) -> float:
    """Distance of a sample mean from what it should be, in standard errors."""
    off, error = abs(float(sample.mean()) - expected), float(sample.std(ddof=1)) / math.sqrt(len(sample))
    # A sample of one value: it may have missed events of which a few were due, no more.
    return off / error if error > 0 else (off - 1e-12) * len(sample) / 3


# All channels -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", CHANNELS)
@pytest.mark.parametrize(("frames", "contenders", "slots"), [(3, 0, 5), (0, 4, 5), (3, 4, 0), (0, 0, 0)])
def test_nothing_to_play(name: str, frames: int, contenders: int, slots: int) -> None:
    received = play(make_channel(name), frames, contenders, slots)
    assert received.shape == (frames, contenders)
    assert not received.any()


@pytest.mark.parametrize("name", CHANNELS)
def test_frames_are_the_same_for_the_same_generator_state(name: str) -> None:
    first, again, other = (play(make_channel(name), 50, 9, 12, seed) for seed in (1, 1, 2))
    assert (first == again).all()
    assert (first != other).any()


@pytest.mark.parametrize("name", CHANNELS)
@given(st.data())
@settings(deadline=None, max_examples=40)
def test_what_every_channel_keeps_to(name: str, data: st.DataObject) -> None:
    slots = data.draw(st.integers(1, 9))
    shape = (data.draw(st.integers(1, 5)), data.draw(st.integers(1, 12)))
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    earliest = rng.integers(1, slots + 3, size=shape)
    received = make_channel(name).play(earliest, slots, rng)
    assert received.shape == shape
    assert received.dtype == np.int64
    assert ((received == 0) | ((received >= earliest) & (received <= slots))).all()
    if name in ("collision", "capture"):  # at most one a slot
        for row in received:
            used = row[row > 0]
            assert len(set(used.tolist())) == len(used)


@pytest.mark.parametrize("name", CHANNELS)
def test_a_lone_ue_is_always_received(name: str) -> None:
    assert (play(make_channel(name), 200, 1, 4) > 0).all()
    crowd = np.full((200, 6), 5)  # five silent UEs disturb nothing
    crowd[:, 2] = 1
    received = make_channel(name).play(crowd, 4, np.random.default_rng(3))
    assert (received[:, 2] > 0).all()
    assert not np.delete(received, 2, axis=1).any()


# Collision ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("slots", [1, 3, 5, 10, 20])
@pytest.mark.parametrize("contenders", [1, 2, 5, 10, 20, 40])
def test_collision_channel_does_what_the_analysis_says(slots: int, contenders: int) -> None:
    received = play(Collision(), 20_000, contenders, slots, seed=17)
    push = PushPeriod(slots, contenders)
    count = (received > 0).sum(axis=1).astype(float)
    if push.received_mean < 1e-3:  # too rare for a sample of 20,000 frames to tell more
        assert count.sum() < 40
        return
    assert z_score(count, push.received_mean) < 4
    assert z_score((count - push.received_mean) ** 2, push.received_variance) < 4
    assert z_score(received.max(axis=1).astype(float), push.last_slot_mean) < 4
    assert z_score((count == 0).astype(float), push.nothing_probability) < 4
    for pull in (0, 7):
        cost_sum = (received + (received > 0) * (pull + 1)).sum(axis=1) + pull * (pull + 3) / 2
        assert z_score(cost_sum, push.expected_cost_sum(pull)) < 4


def test_collision_channel_with_late_ues() -> None:
    rng = np.random.default_rng(5)
    known = np.array([1, 1, 2, 3, 3, 6, 9])
    received = Collision().play(np.tile(known, (40_000, 1)), 6, rng)
    timed = TimedPushPeriod(6, known.tolist())
    assert z_score((received > 0).sum(axis=1).astype(float), timed.received_mean) < 4
    assert z_score(received.max(axis=1).astype(float), timed.last_slot_mean) < 4
    ready = (0.3, 0.0, 0.2, 0.1, 0.0, 0.25)  # never ready with probability 0.15
    earliest = rng.choice(np.arange(1, 8), p=[*ready, 0.15], size=(40_000, 8))
    received = Collision().play(earliest, 6, rng)
    late = PushPeriod(6, 8, ready=ready)
    assert z_score((received > 0).sum(axis=1).astype(float), late.received_mean) < 4
    assert z_score(received.max(axis=1).astype(float), late.last_slot_mean) < 4
    assert z_score((received.max(axis=1) == 0).astype(float), late.nothing_probability) < 4


# Capture ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("threshold_db", "slots", "contenders"),
    [(0, 1, 2), (3, 1, 3), (10, 1, 6), (10, 1, 2), (-6, 1, 3), (6, 5, 5), (6, 10, 20), (6, 20, 10)],
)
def test_capture_against_the_closed_form(threshold_db: float, slots: int, contenders: int) -> None:
    # Each of the N-1 others shares my slot with probability 1/L and then costs a factor 1 / (1 + z): in one slot,
    # P(E > z (sum of n-1 others)) = E[e^(-z S)] = (1 + z)^-(n-1).
    got = (play(Capture(threshold_db), 30_000, contenders, slots, seed=8) > 0).sum(axis=1)
    ratio = 10 ** (threshold_db / 10)
    assert z_score(got.astype(float), contenders * (1 - ratio / (1 + ratio) / slots) ** (contenders - 1)) < 4
    assert slots > 1 or (got.max() > 1) == (threshold_db < 0)  # below 0 dB, several can be taken from a slot


def test_noise_drowns_a_lone_ue() -> None:
    got = (play(Capture(0.0, noise=0.5), 40_000, 1, 3) > 0).sum(axis=1).astype(float)
    assert z_score(got, math.exp(-0.5)) < 4


@pytest.mark.parametrize("channel", [Capture(120.0), Coded({1: 1.0})])
def test_a_high_threshold_or_one_copy_is_the_collision_channel(channel: Channel) -> None:
    received, push = play(channel, 20_000, 8, 10, seed=9), PushPeriod(10, 8)
    assert z_score((received > 0).sum(axis=1).astype(float), push.received_mean) < 4
    assert z_score(received.max(axis=1).astype(float), push.last_slot_mean) < 4


# Coded access -------------------------------------------------------------------------------------


def naive_receiver(copies: np.ndarray, slots: int) -> np.ndarray:
    """After each slot, peel all slots heard so far from scratch; note when a UE is first resolved."""
    received = np.zeros(len(copies), dtype=np.int64)
    for now in range(1, slots + 1):
        resolved: set[int] = set()
        progress = True
        while progress:
            progress = False
            for slot in range(1, now + 1):
                left = [ue for ue, where in enumerate(copies) if slot in where and ue not in resolved]
                if len(left) == 1:
                    resolved.add(left[0])
                    progress = True
        for ue in resolved:
            received[ue] = received[ue] or now
    return received


@pytest.mark.parametrize("channel", [crdsa(2), crdsa(3), irsa(), Coded({1: 0.3, 2: 0.7})])
@pytest.mark.parametrize(("slots", "contenders"), [(1, 3), (4, 3), (6, 5), (12, 9), (20, 16), (15, 30)])
def test_cancellation_against_a_naive_receiver(channel: Coded, slots: int, contenders: int) -> None:
    rng = np.random.default_rng(slots * 100 + contenders)
    earliest = rng.integers(1, slots + 2, size=(25, contenders))
    copies = channel.draw(earliest, slots, rng)
    received = channel.resolve(copies, slots, rng)
    for frame in range(25):
        assert received[frame].tolist() == naive_receiver(copies[frame], slots).tolist()


def test_a_freed_ue_counts_when_it_was_freed() -> None:
    copies = np.array([[[1, 2], [1, 4], [2, 3]]])  # slots 1 and 2 collide until 3 frees UE 2, then 0, then 1
    received = crdsa().resolve(copies, 4, np.random.default_rng(0))
    assert received.tolist() == [[3, 3, 3]]


@pytest.mark.parametrize("channel", [crdsa(2), crdsa(3), irsa()], ids=["crdsa2", "crdsa3", "irsa"])
def test_copies_are_distinct_and_honour_the_earliest_slot(channel: Coded) -> None:
    rng = np.random.default_rng(0)
    earliest = rng.integers(1, 12, size=20_000)
    copies = channel.draw(earliest[None], 10, rng)[0]
    for first, row in zip(earliest, copies, strict=True):
        used = row[row > 0]
        assert len(set(used.tolist())) == len(used) <= max(channel.degrees)
        assert first > 10 or (used.min() >= first and used.max() <= 10)
        if len(channel.degrees) == 1:
            assert len(used) == min(*channel.degrees, 11 - first)


def test_copies_are_uniform_over_the_slots_and_the_degrees() -> None:
    copies = irsa().draw(np.ones((1, 60_000), dtype=np.int64), 10, np.random.default_rng(6))[0]
    number = (copies > 0).sum(axis=1)
    for degree, chance in LIVA.items():
        assert z_score((number == degree).astype(float), chance) < 4
    for slot in range(1, 11):
        assert z_score((copies == slot).any(axis=1).astype(float), (0.5 * 2 + 0.28 * 3 + 0.22 * 8) / 10) < 4
    pairs = np.sort(copies[number == 2][:, :2], axis=1) @ [10, 1]
    counts = np.unique(pairs, return_counts=True)[1]
    assert len(counts) == 45  # all pairs, equally often: chi-square with 44 degrees of freedom
    assert ((counts - counts.mean()) ** 2).sum() / counts.mean() < 44 + 4 * math.sqrt(88)


@pytest.mark.parametrize(("slots", "contenders"), [(4, 2), (4, 3), (5, 3), (3, 4)])
def test_two_copies_against_all_outcomes(slots: int, contenders: int) -> None:
    pairs = list(combinations(range(1, slots + 1), 2))
    outcomes = [naive_receiver(np.array(each), slots) for each in product(pairs, repeat=contenders)]
    received = play(crdsa(), 30_000, contenders, slots, seed=12)
    for measure in (lambda x: (x > 0).sum(axis=1), lambda x: x.max(axis=1), lambda x: x.sum(axis=1)):
        assert z_score(measure(received).astype(float), measure(np.array(outcomes)).mean()) < 4


@pytest.mark.parametrize(
    ("channel", "published"), [(crdsa(2), 0.5), (crdsa(3), 0.818), (crdsa(4), 0.772), (irsa(), 0.938)]
)
def test_threshold_is_the_published_one(channel: Coded, published: float) -> None:
    assert channel.threshold == pytest.approx(published, abs=1e-3)


@pytest.mark.parametrize(
    ("channel", "below"),
    [(crdsa(2), 0.40), (crdsa(3), 0.70), (irsa(), 0.80)],
    ids=["crdsa2", "crdsa3", "irsa"],
)
def test_losses_vanish_below_the_threshold_as_frames_grow(channel: Coded, below: float) -> None:
    def loss(slots: int, load: float, ues: int = 60_000) -> float:
        contenders = round(load * slots)
        return float((play(channel, max(1, ues // contenders), contenders, slots, seed=slots) == 0).mean())

    sizes = [50, 200, 1000, 5000]
    under = [loss(slots, below) for slots in sizes]
    assert under == sorted(under, reverse=True)
    assert under[0] > 3 * under[-1]
    assert under[-1] < 0.006
    assert loss(sizes[-1], 1.25 * channel.threshold) > 0.1  # and above it they do not


def test_two_copies_peak_above_their_threshold_at_the_published_055() -> None:
    # Losses of CRDSA set in gently above 0.5, so its throughput still grows for a while, to about 0.55 per slot.
    received = [play(crdsa(2), 50, contenders, 2000, seed=1) > 0 for contenders in (1200, 1250, 1300)]
    assert max(pushes.sum(axis=1).mean() for pushes in received) / 2000 == pytest.approx(0.55, abs=0.015)


@pytest.mark.long
@pytest.mark.parametrize("channel", [crdsa(3), irsa()], ids=["crdsa3", "irsa"])
def test_peak_throughput_comes_up_to_the_threshold_from_below(channel: Coded) -> None:
    def throughput(slots: int, load: float) -> float:
        contenders = round(load * channel.threshold * slots)
        received = play(channel, max(1, 20_000 // contenders), contenders, slots, seed=slots) > 0
        return float(received.sum(axis=1).mean()) / slots

    loads = (0.75, 0.8, 0.85, 0.9, 0.93, 0.96, 0.98, 1.0, 1.05)
    peaks = [max(throughput(slots, load) for load in loads) for slots in (50, 200, 1000, 5000)]
    assert peaks == sorted(peaks)
    assert 0.93 * channel.threshold < peaks[-1] < channel.threshold


# Names --------------------------------------------------------------------------------------------


def test_channels_by_name() -> None:
    assert list(CHANNELS) == ["collision", "capture", "crdsa", "irsa"]
    assert isinstance(make_channel("collision"), Collision)
    capture = make_channel("capture", threshold_db=1.5)
    assert isinstance(capture, Capture)
    assert capture.threshold_db == 1.5
    assert dict(make_channel("crdsa", replicas=3).degrees) == {3: 1.0}  # type: ignore[attr-defined]
    assert isinstance(make_channel("fedslot.access.channels:Collision"), Collision)


@pytest.mark.parametrize(
    "make",
    [
        lambda: Capture(math.nan),
        lambda: Capture(3.0, noise=-1),
        lambda: Coded({}),
        lambda: Coded({0: 1.0}),
        lambda: Coded({2: 0.6}),
        lambda: Coded({2: 1.5, 3: -0.5}),
        lambda: crdsa(0),
        lambda: make_channel("capture", treshold=3),
    ],
)
def test_bad_options_are_refused_in_one_line(make: object) -> None:
    with pytest.raises(InputError) as refusal:
        make()  # type: ignore[operator]
    assert "\n" not in str(refusal.value)


# Channels of one's own ----------------------------------------------------------------------------


class Own(Channel):
    """Returns whatever it is given."""

    def __init__(self, drawn: object = None, resolved: object = None) -> None:
        self.drawn, self.resolved = drawn, resolved

    def draw(self, earliest: Any, slots: int, rng: np.random.Generator) -> Any:
        return super().draw(earliest, slots, rng) if self.drawn is None else self.drawn

    def resolve(self, sent: Any, slots: int, rng: np.random.Generator) -> Any:
        return sent[:, :, 0] if self.resolved is None else self.resolved


WHOLE = "must return an array {} of whole numbers from 0 to 5 from {}\\(\\), not "
DRAWN, RESOLVED = WHOLE.format(r"\(1, 2, copies\)", "draw"), WHOLE.format(r"\(1, 2\)", "resolve")


@pytest.mark.parametrize(
    ("channel", "told"),
    [
        (Own(drawn=np.array([[[99], [1]]])), DRAWN),
        (Own(drawn=np.array([[[-1], [1]]])), DRAWN),
        (Own(drawn=np.array([[[0.5], [1]]])), DRAWN),
        (Own(drawn=np.array([[3, 1]])), DRAWN),
        (Own(drawn=np.array([[[3], [1], [2]]])), DRAWN),
        (Own(drawn=[[[3], [1]]]), DRAWN),
        (Own(drawn=np.array([[[1], [1]]])), "must draw no slot before a UE's earliest"),
        (Own(resolved=np.array([[99, 0]])), RESOLVED),
        (Own(resolved=np.array([[-1, 0]])), RESOLVED),
        (Own(resolved=np.array([[0.5, 0]])), RESOLVED),
        (Own(resolved=np.array([[True, False]])), RESOLVED),
        (Own(resolved=np.array([3, 0])), RESOLVED),
        (Own(resolved=7), RESOLVED),
        (Own(drawn=np.array([[[3], [0]]]), resolved=np.array([[3, 3]])), "must resolve to 0 for UEs that sent nothing"),
    ],
)
def test_what_a_channel_of_ones_own_returns_is_checked(channel: Own, told: str) -> None:
    rng = np.random.default_rng(0)
    with pytest.raises(RefusedError, match=f"channel Own {told}") as refusal:
        channel.play(np.array([[3, 1]]), 5, rng)
    assert "\n" not in str(refusal.value)


def test_channels_may_use_any_integers() -> None:
    channel = Own(drawn=np.array([[[3], [1]]], dtype=np.uint8), resolved=np.array([[3, 1]], dtype=np.int32))
    received = channel.play(np.array([[3, 1]]), 5, np.random.default_rng(0))
    assert received.dtype == np.int64
    assert received.tolist() == [[3, 1]]
