"""The planner against the analysis, and the simulated channels against what is known of them."""

from __future__ import annotations

import math
from itertools import accumulate

import numpy as np
import pytest
from collision_counts import last_slot_counts
from hypothesis import example, given, settings
from hypothesis import strategies as st

from fedslot.access.channels import Collision, make_channel
from fedslot.planning.contenders import contender_pmf, parse_contenders
from fedslot.planning.limits import expected_frames
from fedslot.planning.period import PushPeriod
from fedslot.planning.planner import Plan, plan
from fedslot.planning.pushes import best_barring
from fedslot.support.errors import InputError


class AlsoCollision(Collision):
    """The collision channel in disguise, so that the planner simulates it."""


@pytest.mark.parametrize("contenders", [0, 1, 10, 35, {0: 0.2, 4: 0.5, 12: 0.3}])
@pytest.mark.parametrize("barring", [1.0, 0.4])
@pytest.mark.parametrize("ready", [1.0, 0.6])
def test_every_split_agrees_with_the_analysis(contenders, barring: float, ready: float) -> None:
    result = plan(12, contenders, value_ratio=2.0, ready=ready, barring=barring, budget=500)
    assert [split.pull for split in result.splits] == list(range(13))
    for split in result.splits:
        push = PushPeriod(12 - split.pull, contenders, probability=barring)
        expected = {
            "push": 12 - split.pull,
            "success_probability": push.success_probability,
            "expected_received_push": push.received_mean,
            "expected_received": ready * split.pull + push.received_mean,
            "expected_value": ready * split.pull + 2 * push.received_mean,
            "expected_cost_exact": push.expected_cost_exact(split.pull),
            "expected_cost_paper": push.expected_cost_paper(split.pull),
            "expected_cost_max": push.expected_cost_max(split.pull, ready),
            "expected_cost_sum": push.expected_cost_sum(split.pull, ready),
            "nothing_pushed": push.nothing_probability,
        }
        for name, value in expected.items():
            assert getattr(split, name) == pytest.approx(value, rel=1e-11, abs=1e-12), name
        assert split.value_per_slot == pytest.approx(split.expected_value / split.expected_cost_max)
        assert split.expected_frames is not None
        assert abs(split.expected_frames - 500 / split.expected_cost_max) < 1 + 13 / split.expected_cost_max
        assert split.value_in_budget == pytest.approx(split.expected_frames * split.expected_value)
        assert not split.standard_errors


# The best split -----------------------------------------------------------------------------------


def test_a_pull_slot_beats_a_push_slot_unless_pushes_are_worth_more() -> None:
    assert plan(20, 20).best.pull == 20
    assert plan(20, 20, value_ratio=2.0).best.pull == 20
    assert plan(20, 20, value_ratio=3.5).best.pull < 20
    assert plan(10, 1).best.pull == 10  # nine pulls and one sure push are worth no more


@pytest.mark.parametrize("budget", [None, 1000])
def test_the_best_split_may_lie_inside(budget: float | None) -> None:
    result = plan(20, 10, value_ratio=4.0, budget=budget)
    assert result.by == ("expected_value" if budget is None else "value_in_budget")
    assert result.best.pull == int(np.argmax([getattr(split, result.by) for split in result.splits]))
    assert 0 < result.best.pull < 20


@pytest.mark.parametrize("ready", [1.0, 0.5, [0.1, 0.3, 0.5, 0.6, 0.8, 0.9, 0.9, 1.0]])
def test_frames_in_a_budget_against_trial(ready) -> None:
    """Frames are played one after the other while all slots of one are left."""
    slots, n, pull, budget, trials = 8, 5, 3, 61, 4000
    rng, chances = np.random.default_rng(5), np.broadcast_to(ready, slots)
    counts = []
    for _ in range(trials):
        left, frames = budget, 0
        while left >= 1 + slots:
            pulled = np.flatnonzero(rng.random(pull) < chances[:pull]) + 1
            first = np.zeros(n) if np.ndim(ready) == 0 else np.searchsorted(chances, rng.random(n))  # slots from 0
            first = np.maximum(first - pull, 0)
            sends = rng.integers(first, slots - pull) + 1
            alone = [slot for slot in sends if (sends == slot).sum() == 1]
            left -= 1 + max([0, *pulled, *(pull + slot for slot in alone)])
            frames += 1
        counts.append(frames)
    split = plan(slots, n, pulls=[pull], ready=ready, budget=budget).splits[0]
    assert split.expected_frames == pytest.approx(np.mean(counts), abs=4 * np.std(counts) / trials**0.5)


@given(
    st.lists(st.floats(0, 1), min_size=1, max_size=12).filter(lambda chances: sum(chances) > 0.01),
    st.integers(1, 400),
)
@example([0.0, 0.0, 1.0], 300)  # frames of equal cost
@example([0.0, 1.0, 0.0, 1.0], 399)  # even costs alone
@settings(max_examples=60)
def test_frames_in_a_budget_by_the_renewal_equation(weights: list[float], budget: int) -> None:
    costs, most = np.array(weights) / sum(weights), len(weights)
    frames = np.zeros(budget + 1)
    for left in range(most, budget + 1):
        frames[left] = 1 + sum(costs[c - 1] * frames[left - c] for c in range(1, most + 1))
    assert expected_frames(budget, costs) == pytest.approx(frames[budget], rel=1e-9, abs=1e-9)


def test_frames_in_a_budget_of_any_length() -> None:
    """Deterministic costs lose a fraction of a frame at the end, for ever; random ones come to the long run."""
    assert plan(300, 100, budget=400, pulls=[0]).best.expected_frames == pytest.approx(1)
    assert plan(10, 0, pulls=[10], budget=10**9 + 5).best.expected_frames == pytest.approx((10**9 + 5) // 11, abs=1e-3)
    split = plan(20, 10, pulls=[10], budget=10**9).best
    assert split.expected_frames == pytest.approx(10**9 / split.expected_cost_max, abs=1)
    best = plan(100, parse_contenders("poisson:300"), pulls=[73, 100], value_ratio=3, budget=250).best
    assert (best.pull, best.value_in_budget) == (73, pytest.approx(218.41, abs=0.01))


def test_only_frames_that_fit_count() -> None:
    """Two frames of ten slots fit into 22 slots, however early they may end."""
    result = plan(10, 5, value_ratio=2.0, budget=22)
    assert result.best.pull == 10
    assert {round(split.expected_frames or 0, 1) for split in result.splits} == {2.0}
    assert result.break_even == pytest.approx(plan(10, 5).break_even, rel=0.02)


@pytest.mark.parametrize(("slots", "n"), [(10, 25), (10, 5), (1, 3), (7, 7), (20, 21)])
def test_best_barring_of_a_number_is_one_a_slot(slots: int, n: int) -> None:
    best = best_barring(slots, contender_pmf(n))
    assert best == min(1, slots / n)
    grid = [PushPeriod(slots, n, p).received_mean for p in np.linspace(0.01, 1, 100)]
    assert PushPeriod(slots, n, best).received_mean >= max(grid) - 1e-12


@given(st.integers(1, 12), st.lists(st.tuples(st.integers(0, 60), st.floats(0.05, 1)), min_size=2, max_size=4))
@example(1, [(2, 0.5), (3, 0.375), (48, 1.0)])  # a narrow peak at 1/48, higher than the wide one
@settings(deadline=None, max_examples=40)
def test_best_barring_of_a_law_is_the_best_on_a_grid(slots: int, parts: list[tuple[int, float]]) -> None:
    weights = dict(parts)
    law = {n: w / math.fsum(weights.values()) for n, w in weights.items()}
    best = PushPeriod(slots, law, best_barring(slots, contender_pmf(law))).received_mean
    assert best >= max(PushPeriod(slots, law, p).received_mean for p in np.linspace(0, 1, 41)) - 1e-9


# A limit per frame --------------------------------------------------------------------------------


def brute_force(slots: int, n: int, pull: int, push: int, ready: float, barring: float) -> dict[int, float]:
    """The distribution of `cost_max`, from that of the last push and that of the last pull."""
    push_law = PushPeriod(push, n, barring).last_slot_pmf
    pull_law = {z: ready * (1 - ready) ** (pull - z) for z in range(1, pull + 1)} | {0: (1 - ready) ** pull}
    costs: dict[int, float] = {}
    for last, p in enumerate(push_law):
        for z, q in pull_law.items():
            cost = 1 + (pull + last if last else z)
            costs[cost] = costs.get(cost, 0.0) + p * q
    return costs


@pytest.mark.parametrize("confidence", [None, 0.6, 0.95, 1.0])
@pytest.mark.parametrize("ready", [1.0, 0.7, 0.0])
@pytest.mark.parametrize("limit", [1, 2, 4.5, 7, 9, 50])
def test_a_limit_per_frame_against_brute_force(limit: float, ready: float, confidence: float | None) -> None:
    slots, n, barring = 8, 6, 0.8
    found = plan(slots, n, frame_limit=limit, confidence=confidence, ready=ready, barring=barring, value_ratio=3)
    most: dict[int, int] = {}
    chances: dict[tuple[int, int], float] = {}
    for pull in range(slots + 1):
        for push in range(slots + 1 - pull):
            law = brute_force(slots, n, pull, push, ready, barring)
            chances[pull, push] = sum(p for cost, p in law.items() if cost <= limit)
            mean = sum(cost * p for cost, p in law.items())
            fits = mean <= limit + 1e-9 if confidence is None else chances[pull, push] >= confidence - 1e-12
            if fits:
                most[pull] = push
    assert {split.pull: split.push for split in found.splits} == most
    for split in found.splits:
        assert split.within_limit == pytest.approx(chances[split.pull, split.push], abs=1e-11)
    assert found.best.expected_value == max(split.expected_value for split in found.splits)


def test_a_limit_on_a_simulated_channel_is_met() -> None:
    found = plan(8, 6, frame_limit=6, confidence=0.9, channel="capture", frames=500)
    assert all((split.within_limit or 0) >= 0.9 for split in found.splits)
    assert all(split.pull + split.push <= 8 for split in found.splits)


def test_one_split_of_a_million_slots_within_a_limit() -> None:
    one = plan(10**6, 10**5, pulls=[1000], frame_limit=50_000).best
    assert one.expected_cost_max <= 50_000
    assert plan(10**6, 10**5, pulls=[1000], frame_limit=50_000 + 10).best.push > one.push


# Work ---------------------------------------------------------------------------------------------


def test_a_simulation_stops_when_it_is_precise() -> None:
    def simulated(precision: float | None) -> Plan:
        return plan(10, 8, pulls=[2], channel=AlsoCollision(), frames=50_000, precision=precision)

    rough, fine = simulated(0.05).best, simulated(None).best
    assert 0.01 < rough.standard_errors["expected_received_push"] / rough.expected_received_push <= 0.05
    assert fine.standard_errors["expected_received_push"] < rough.standard_errors["expected_received_push"] / 3


# Simulated ----------------------------------------------------------------------------------------


def test_simulation_agrees_with_computation() -> None:
    options = {"value_ratio": 3.0, "ready": 0.7, "barring": 0.8, "budget": 400}
    law = {4: 0.5, 11: 0.5}
    exact, trial = plan(9, law, **options), plan(9, law, channel=AlsoCollision(), frames=20_000, **options)
    for computed, simulated in zip(exact.splits, trial.splits, strict=True):
        assert simulated.expected_cost_paper is None
        for name, error in simulated.standard_errors.items():
            off = abs(getattr(simulated, name) - getattr(computed, name))
            assert off <= 4 * error + 1e-9, (computed.pull, name, off / error)
        assert simulated.success_probability == pytest.approx(computed.success_probability, abs=0.02)


@pytest.mark.parametrize("contenders", [30, 500, 5000])
@pytest.mark.parametrize("channel", ["irsa", "crdsa", "capture", AlsoCollision()])
def test_best_barring_by_trial(channel, contenders: int) -> None:
    """With any number of contenders, within 2% of the best of a fine scan that plays the channel by itself."""
    slots, medium, rng = 20, make_channel(channel) if isinstance(channel, str) else channel, np.random.default_rng(0)
    yields = []
    for load in np.geomspace(0.3, 3, 25):
        sending = rng.binomial(contenders, min(1.0, load * slots / contenders), 2000)
        earliest = np.where(np.arange(sending.max()) < sending[:, None], 1, slots + 1)
        yields.append((medium.play(earliest, slots, rng) > 0).sum() / 2000)
    best = plan(slots, contenders, pulls=[0], channel=channel, barring="best").best
    assert best.expected_received_push > 0.98 * max(yields) - 4 * best.standard_errors["expected_received_push"]


def test_best_barring_of_a_mixture_by_trial() -> None:
    law, options = {3: 0.5, 4: 0.1, 300: 0.4}, {"channel": "crdsa", "pulls": [0]}
    best = plan(10, law, barring="best", **options).best
    others = [plan(10, law, barring=p, frames=1000, **options).best for p in np.geomspace(0.005, 1, 24)]
    assert best.expected_received_push > max(split.expected_received_push for split in others) - 0.15


def test_simulation_is_repeatable_and_a_split_does_not_depend_on_the_others() -> None:
    def simulated(seed: int, pulls: list[int] | None = None) -> Plan:
        return plan(8, 6, channel="crdsa", frames=500, seed=seed, pulls=pulls)

    assert simulated(3) == simulated(3)
    assert simulated(3).splits[5] == simulated(3, [5]).splits[0]
    assert simulated(3) != simulated(4)


def test_progress_is_told() -> None:
    calls: list[tuple[int, int]] = []
    plan(3, 4, channel="capture", frames=10, progress=lambda done, of: calls.append((done, of)))
    assert calls == [(0, 4), (1, 4), (2, 4), (3, 4), (4, 4)]


def test_rounding_does_not_decide_about_a_limit_with_a_probability() -> None:
    """With two push slots, two contenders meet with probability 1/2; and no frame of ten slots costs more than 11."""
    assert plan(4, 2, pulls=[2], frame_limit=3, confidence=0.5).best.push == 2
    for text in ("binomial:10:0.5", "poisson:2", "poisson:9"):
        splits = plan(10, parse_contenders(text), frame_limit=11, confidence=1).splits
        assert [split.push for split in splits] == [10 - split.pull for split in splits]


@pytest.mark.parametrize(
    ("contenders", "limit", "confidence"),
    [({1: 0.7, 20: 0.3}, 2, 0.45), ({1: 0.81, 46: 0.19}, 4.0813, None)],
)
def test_a_limit_where_the_best_barring_leaps(contenders, limit: float, confidence: float | None) -> None:
    """The best barring is for one contender or for many; the most push slots that fit are found all the same."""
    slots, options = 12, {"confidence": confidence, "barring": "best"}
    alone, all_pulls = (plan(slots, contenders, pulls=p, frame_limit=limit, **options) for p in ([0], None))
    fitting = []
    for push in range(slots + 1):
        period = PushPeriod(push, contenders, best_barring(push, contender_pmf(contenders)) if push else 1.0)
        chance = float(np.sum(period.last_slot_pmf[: int(limit)]))
        if period.expected_cost_max(0) <= limit if confidence is None else chance >= confidence:
            fitting.append(push)
    assert fitting != list(range(len(fitting))), "there is a gap"
    assert alone.splits[0].push == all_pulls.splits[0].push == max(fitting)


def test_the_last_received_slot_grows_with_the_number_of_push_slots() -> None:
    """So that limits can be bisected with a given probability: P(X <= j) never grows, by exact numbers of outcomes."""
    for n in range(1, 16):
        for slots in range(1, 25):
            fewer, more = (list(accumulate(last_slot_counts(s, n))) for s in (slots, slots + 1))
            assert all(b * slots**n <= a * (slots + 1) ** n for a, b in zip(fewer, more, strict=False))


@pytest.mark.parametrize("pull", [0, 6, 15, 20])
def test_pulled_ues_are_not_among_those_that_contend_independently(pull: int) -> None:
    """Of the UEs that are not pulled, each sends in each of L slots with probability p/L."""
    (split,) = plan(20, parse_contenders("binomial:20:0.3"), pulls=[pull], ues=20).splits
    others = 20 - pull
    assert split.expected_sent == pytest.approx(others * 0.3)
    expected = others * 0.3 * (1 - 0.3 / split.push) ** (others - 1) if split.push else 0.0
    assert split.expected_received_push == pytest.approx(expected)


def test_the_end_of_a_poisson_distribution_may_exceed_the_number_of_ues() -> None:
    assert plan(10, parse_contenders("poisson:45"), pulls=[3], ues=100).best.expected_sent == pytest.approx(45)
    for text in ("poisson:95", "binomial:101:0.01", "101"):
        with pytest.raises(InputError, match=r"contenders: .* at most the number of UEs \(100\)"):
            plan(10, parse_contenders(text), ues=100)


# Contenders as text -------------------------------------------------------------------------------


def test_contenders_as_text() -> None:
    assert parse_contenders("10") == 10
    assert parse_contenders("5:0.5,10:0.5") == {5: 0.5, 10: 0.5}
    poisson = parse_contenders("poisson:8")
    assert sum(n * q for n, q in poisson.items()) == pytest.approx(8, rel=1e-11)
    assert poisson[8] == pytest.approx(8**8 * math.exp(-8) / math.factorial(8), rel=1e-11)
    assert parse_contenders("poisson:0") == {0: 1.0}
    binomial = parse_contenders("binomial:40:0.25")
    assert binomial[10] == pytest.approx(math.comb(40, 10) * 0.25**10 * 0.75**30, rel=1e-11)


@pytest.mark.parametrize(
    "text",
    ["", "ten", "-1", "1.5", "poisson", "poisson:x", "poisson:-1", "poisson:nan", "poisson:1:2", "binomial:4",
     "binomial:4:2", "binomial:4:0.5:1", "5:0.5", "5:0.5,10", "5:-0.5,6:1.5", "99999999999", "uniform:3"],
)  # fmt: skip
def test_bad_contenders_are_refused_in_one_line(text: str) -> None:
    with pytest.raises(InputError) as refusal:
        parse_contenders(text)
    assert str(refusal.value).startswith(f"contenders: {text!r} is not allowed; it must be a whole number, poisson")
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        ({"slots": 2.0}, "slots: 2.0"),
        ({"value_ratio": -1}, "value_ratio: -1"),
        ({"value_ratio": 1e308}, "value_ratio: 1e"),
        ({"channel": "crdsa", "frames": 1}, "frames: 1 "),
        ({"channel": "crdsa", "seed": -1}, "seed: -1"),
        ({"budget": 1e308}, "budget: 1e"),
        ({"frame_limit": 0.5}, "frame_limit: 0.5"),
        ({"frame_limit": math.nan}, "frame_limit: nan"),
        ({"frame_limit": 5, "pulls": [5]}, "frame_limit: 5 .*enough for 5 pull slots"),
        ({"frame_limit": 5, "confidence": 2}, "confidence: 2"),
        ({"confidence": 0.9}, "confidence: 0.9 .*left out"),
        ({"precision": -1}, "precision: -1"),
        ({"pulls": []}, "pulls: .*at least one"),
        # plans that would take hours
        ({"slots": 10**9}, "slots: .*give a single pull"),
        ({"slots": 10**5, "contenders": dict.fromkeys(range(1000), 1 / 1000)}, "slots: .*at most"),
        ({"channel": "irsa", "frames": 10**7}, "frames: .*at most"),
        ({"channel": "irsa", "contenders": 10**6}, "frames: .*at most 95"),
        ({"channel": "irsa", "slots": 10**5}, "slots: .*fewer slots"),
    ],
)
def test_bad_arguments_are_refused_in_one_line(arguments: dict[str, object], line: str) -> None:
    with pytest.raises(InputError, match=f"^{line}") as refusal:
        plan(**{"slots": 20, "contenders": 10, **arguments})  # type: ignore[arg-type]
    assert "\n" not in str(refusal.value)


# The break-even value ratio, and a cell of few UEs ---------------------------------------------------


@given(
    st.integers(1, 14),
    st.integers(0, 14) | st.just({0: 0.3, 8: 0.7}),
    st.sampled_from([1.0, 0.6, 0.2, 0.0]),
    st.sampled_from([1.0, "best"]),
    st.sampled_from([{}, {"budget": 500.0}, {"frame_limit": 6.5}]),
)
@settings(max_examples=60)
def test_break_even_is_where_the_best_split_changes(slots: int, contenders, ready: float, barring, limit) -> None:
    options = {"ready": ready, "barring": barring, **limit}
    without = plan(slots, contenders, value_ratio=0.0, **options)
    ratio = without.break_even
    if ratio is None:
        dear = plan(slots, contenders, value_ratio=1e9, **options).best
        assert dear.expected_received_push == pytest.approx(without.best.expected_received_push, abs=1e-6)
        return
    if ratio > 1e-6:
        below = plan(slots, contenders, value_ratio=ratio * (1 - 1e-6), **options).best
        assert below.expected_received_push == pytest.approx(without.best.expected_received_push, abs=1e-9)
    above = plan(slots, contenders, value_ratio=ratio * (1 + 1e-6) + 1e-9, **options).best
    assert above.expected_received_push > min(split.expected_received_push for split in without.splits)


def test_break_even_of_a_crowd_is_between_2_and_e() -> None:
    for number in (2, 5, 10, 40):
        at_best_load = (number / (number - 1)) ** (number - 1)
        assert plan(40, number, barring="best").break_even == pytest.approx(at_best_load)
    assert plan(20, 10).break_even == pytest.approx(min((20 - q) / (10 * (1 - 1 / (20 - q)) ** 9) for q in range(19)))
    assert plan(20, 10, ready=0.5).break_even == pytest.approx(plan(20, 10).break_even / 2)
    assert plan(20, 10, ready=0.0).break_even == 0
    assert plan(20, 0).break_even is None


def test_ues_are_pulled_once_and_do_not_contend_then() -> None:
    few = plan(10, 6, ues=8)
    assert [split.pull for split in few.splits] == list(range(9))
    cases = [(split, min(6, 8 - split.pull)) for split in few.splits]
    cases.append((plan(10, {2: 0.5, 6: 0.5}, ues=8).splits[5], {2: 0.5, 3: 0.5}))
    for split, contenders in cases:
        other = plan(10, contenders, pulls=[split.pull]).best
        for field in ("pull", "push", "expected_received", "expected_sent", "expected_cost_max"):
            assert getattr(split, field) == pytest.approx(getattr(other, field)), field
    with pytest.raises(InputError, match="contenders: 9 is not allowed"):
        plan(10, 9, ues=8)
    with pytest.raises(InputError, match="pull: 9 is not allowed"):
        plan(10, 2, ues=8, pulls=[9])


def test_transmissions_are_counted() -> None:
    assert plan(10, 6, pulls=[4], barring=0.5).best.expected_sent == 3
    assert plan(10, 6, pulls=[10]).best.expected_sent == 0
    assert plan(10, 6, pulls=[4], channel="crdsa", frames=50).best.expected_sent == 12
    irsa = plan(20, 6, pulls=[4], channel="irsa", frames=4000).best
    copies = 6 * (0.5 * 2 + 0.28 * 3 + 0.22 * 8)
    assert abs(irsa.expected_sent - copies) < 4 * irsa.standard_errors["expected_sent"]
