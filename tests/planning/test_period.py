"""Equal slots and the recursion over slots, against enumeration, counts in integers, exact fractions and each other."""

from __future__ import annotations

import math
from collections import Counter
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from collision_counts import last_slot_counts, received_counts
from hypothesis import given, settings
from hypothesis import strategies as st

from fedslot.planning.contenders import sending_pmf
from fedslot.planning.costs import last_success_mean
from fedslot.planning.period import PushPeriod, TimedPushPeriod
from fedslot.support.errors import InputError

SMALL = [(slots, n) for slots in range(1, 12) for n in range(0, 17) if slots**n <= 100_000]


def singles(slots: int, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Whether each slot has a single UE in each of the L^N outcomes (F, L), and the last of them (F,), 0 if none."""
    outcomes = np.array(list(product(range(1, slots + 1), repeat=n)), dtype=int).reshape(slots**n, n)
    alone = (outcomes[:, :, None] == np.arange(1, slots + 1)).sum(axis=1) == 1
    return alone, np.where(alone, np.arange(1, slots + 1), 0).max(axis=1, initial=0)


def enumerate_laws(laws: list[dict[int, Fraction]], slots: int) -> tuple[list[Fraction], list[Fraction]]:
    """Exact laws of N' and X when UE i uses slot s (0: silent) with probability laws[i][s]."""
    received, last = Counter[int](), Counter[int]()
    for outcome in product(*[law.items() for law in laws]):
        chance = math.prod((q for _, q in outcome), start=Fraction(1))
        alone = [s for s, k in Counter(s for s, _ in outcome).items() if s and k == 1]
        received[len(alone)] += chance
        last[max(alone, default=0)] += chance
    return [received[r] for r in range(min(slots, len(laws)) + 1)], [last[j] for j in range(slots + 1)]


def paper_cost(slots: int, n: int, pull: int = 0) -> float:
    return PushPeriod(slots, n).expected_cost_paper(pull)


def floats(values: list[Fraction]) -> list[float]:
    return [float(v) for v in values]


# Whole numbers ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("slots", "n"), SMALL)
def test_counts_equal_those_of_all_outcomes(slots: int, n: int) -> None:
    alone, last = singles(slots, n)
    assert received_counts(slots, n) == np.bincount(alone.sum(axis=1), minlength=min(slots, n) + 1).tolist()
    assert last_slot_counts(slots, n) == np.bincount(last, minlength=slots + 1).tolist()


@pytest.mark.parametrize(("slots", "n"), [(s, n) for s, n in SMALL if s**n <= 3000])
def test_everything_a_period_says_equals_enumeration(slots: int, n: int) -> None:
    alone, last = singles(slots, n)
    received, push = alone.sum(axis=1), PushPeriod(slots, n)
    assert push.received_mean == pytest.approx(received.mean(), abs=1e-12)
    assert push.received_variance == pytest.approx(received.var(), abs=1e-12)
    assert push.success_probability == pytest.approx(received.mean() / n if n else 0, abs=1e-12)
    assert push.last_slot_mean == pytest.approx(last.mean(), abs=1e-12)
    assert push.nothing_probability == pytest.approx((received == 0).mean(), abs=1e-12)
    assert push.expected_cost_exact(pull=7) == pytest.approx(7 + last.mean())
    assert push.expected_cost_max(pull=7) == pytest.approx((1 + 7 + last).mean())
    costs = sum(range(2, 9)) + alone @ (8 + np.arange(1, slots + 1))
    assert push.expected_cost_sum(pull=7) == pytest.approx(np.mean(costs))


def test_thousand_slots_and_contenders() -> None:
    # The references are fractions: E[N'] and Var N' from factorial moments; and integers for the last slot.
    size = 1000
    push = PushPeriod(size, size)
    p = Fraction(size - 1, size) ** (size - 1)
    assert push.received_mean == pytest.approx(float(size * p), rel=1e-12)
    pairs = size * (size - 1) * Fraction(size - 1, size) * Fraction(size - 2, size) ** (size - 2)
    variance = float(pairs + size * p - (size * p) ** 2)
    assert push.received_variance == pytest.approx(variance, rel=1e-10)
    r = np.arange(size + 1)
    assert r @ push.received_pmf == pytest.approx(float(size * p), rel=1e-11)
    assert (r - push.received_mean) ** 2 @ push.received_pmf == pytest.approx(variance, rel=1e-10)
    total = sum(j * count for j, count in enumerate(last_slot_counts(size, size)))
    assert push.last_slot_mean == pytest.approx(float(Fraction(total, size**size)), rel=1e-12)


# The recursion over slots --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("slots", "n"),
    [(30, 30), (300, 300), (2, 2000), (3, 50), (50, 3), (1, 5), (1, 1), (5, 0), (0, 5), (0, 0)],
)
def test_both_ways_agree_with_integers(slots: int, n: int) -> None:
    """Also the recursion, which computes equal slots if all contenders are ready for the first one."""
    outcomes = max(slots, 1) ** n
    last = [count / outcomes for count in last_slot_counts(slots, n)] if slots else [1.0]
    received = [count / outcomes for count in received_counts(slots, n)] if slots else [1.0]
    usual, recursion = PushPeriod(slots, n), PushPeriod(slots, n, ready=[float(slot == 0) for slot in range(slots)])
    for push, precision in ((usual, {"rtol": 0, "atol": 1e-12}), (recursion, {"rtol": 1e-12, "atol": 1e-30})):
        np.testing.assert_allclose(push.last_slot_pmf, last, **precision)
        if slots <= 100:  # the recursion takes long
            np.testing.assert_allclose(push.received_pmf, received, **precision)


@pytest.mark.parametrize(
    ("slots", "ready", "probability", "n"),
    [
        (3, (Fraction(1, 2), Fraction(1, 4), Fraction(1, 4)), Fraction(1), 4),
        (3, (Fraction(1, 2), Fraction(0), Fraction(1, 8)), Fraction(1), 5),
        (4, (Fraction(1, 8), Fraction(1, 8), Fraction(0), Fraction(1, 2)), Fraction(1, 2), 4),
        (2, (Fraction(0), Fraction(0)), Fraction(1), 3),
        (4, None, Fraction(3, 8), 5),
    ],
)
def test_unequal_slots_against_enumeration(
    slots: int, ready: tuple[Fraction, ...] | None, probability: Fraction, n: int
) -> None:
    first = ready or (Fraction(1), *[Fraction(0)] * (slots - 1))
    law = {
        j: probability * sum((first[e - 1] / (slots - e + 1) for e in range(1, j + 1)), Fraction(0))
        for j in range(1, slots + 1)
    }
    law[0] = 1 - sum(law.values())
    received, last = enumerate_laws([law] * n, slots)
    push = PushPeriod(slots, n, float(probability), None if ready is None else floats(list(ready)))
    np.testing.assert_allclose(push.received_pmf, floats(received), atol=1e-13)
    np.testing.assert_allclose(push.last_slot_pmf, floats(last), atol=1e-13)
    mean = sum(r * q for r, q in enumerate(received))
    assert push.received_mean == pytest.approx(float(mean), abs=1e-13)
    variance = sum((r - mean) ** 2 * q for r, q in enumerate(received))
    assert push.received_variance == pytest.approx(float(variance), abs=1e-12)
    sending = n * (1 - law[0])
    assert push.success_probability == pytest.approx(float(mean / sending) if sending else 0, abs=1e-12)


@pytest.mark.parametrize("earliest", [(1, 3), (1, 1, 2, 4), (3, 3, 3, 3), (2, 5, 9), (4,), (), (1, 2, 3, 4, 4)])
def test_known_first_slots_against_enumeration(earliest: tuple[int, ...]) -> None:
    slots = 4
    laws = [
        {j: Fraction(1, slots - e + 1) for j in range(e, slots + 1)} if e <= slots else {0: Fraction(1)}
        for e in earliest
    ]
    received, last = enumerate_laws(laws, slots)
    push = TimedPushPeriod(slots, earliest)
    np.testing.assert_allclose(push.last_slot_pmf, floats(last), atol=1e-13)
    pmf = np.zeros(len(received))
    pmf[: len(push.received_pmf)] = push.received_pmf
    np.testing.assert_allclose(pmf, floats(received), atol=1e-13)
    assert push.received_mean == pytest.approx(float(sum(r * q for r, q in enumerate(received))), abs=1e-13)


def test_number_of_contenders_can_be_random() -> None:
    law = {0: 0.1, 3: 0.5, 7: 0.4}
    mixed, parts = PushPeriod(5, law), {n: PushPeriod(5, n) for n in law}
    for name in ("last_slot_mean", "received_mean", "nothing_probability"):
        assert getattr(mixed, name) == pytest.approx(sum(q * getattr(parts[n], name) for n, q in law.items()))
    squares = sum(q * (parts[n].received_variance + parts[n].received_mean ** 2) for n, q in law.items())
    assert mixed.received_variance == pytest.approx(squares - mixed.received_mean**2)
    assert mixed.expected_cost_paper(4) == pytest.approx(sum(q * paper_cost(5, n, 4) for n, q in law.items()))


def test_barring_is_a_binomial_number_of_contenders() -> None:
    barred = PushPeriod(6, 9, probability=0.3)
    law = {n: math.comb(9, n) * 0.3**n * 0.7 ** (9 - n) for n in range(10)}
    mixed = PushPeriod(6, law)
    np.testing.assert_allclose(barred.last_slot_pmf, mixed.last_slot_pmf, atol=1e-14)
    np.testing.assert_allclose(barred.received_pmf, mixed.received_pmf, atol=1e-14)
    assert barred.received_variance == pytest.approx(mixed.received_variance)
    assert barred.expected_cost_paper(3) == pytest.approx(mixed.expected_cost_paper(3))
    np.testing.assert_allclose(sending_pmf(np.eye(10)[9], 0.3), list(law.values()), atol=1e-14)


def test_poisson_crowds_make_slots_independent() -> None:
    # With a Poisson number of contenders the slots are independent: P(X <= j) = (1 - g e^-g)^(L-j).
    mean, slots = 12.0, 8
    law = {n: math.exp(n * math.log(mean) - mean - math.lgamma(n + 1)) for n in range(80)}
    push, g = PushPeriod(slots, law), mean / slots
    quiet = 1 - g * math.exp(-g)
    np.testing.assert_allclose(push.last_slot_cdf, quiet ** (slots - np.arange(slots + 1)), atol=1e-12)
    binomials = [math.comb(slots, r) * (1 - quiet) ** r * quiet ** (slots - r) for r in range(slots + 1)]
    np.testing.assert_allclose(push.received_pmf, binomials, atol=1e-12)


# The paper's approximation ------------------------------------------------------------------------


def printed(slots: int, n: int, pull: int) -> float:
    """Eq. (5), term by term."""
    p = (1 - 1 / slots) ** (n - 1)
    where = [(slots + 1) * (n - i + 1) / (n + 1) for i in range(1, n + 1)]
    return pull * (1 - p) ** n + sum((pull + x) * p * (1 - p) ** i for i, x in enumerate(where))


@pytest.mark.parametrize(("slots", "n", "pull"), [(10, 10, 10), (10, 40, 10), (2, 2, 0), (1, 1, 3), (7, 1, 2)])
def test_paper_cost_is_equation_5(slots: int, n: int, pull: int) -> None:
    assert paper_cost(slots, n, pull) == pytest.approx(printed(slots, n, pull), rel=1e-12)


@pytest.mark.parametrize("slots", [1, 2, 3, 10, 40])
def test_paper_cost_keeps_its_digits_when_success_is_rare(slots: int) -> None:
    for n in (1, 2, 3, 5, 8, 13, 21, 34, 55, 89):
        p = (1 - Fraction(1, slots)) ** (n - 1)
        exact = Fraction(slots + 1, n + 1) * sum(1 - (1 - p) ** k for k in range(1, n + 1))
        assert paper_cost(slots, n) == pytest.approx(float(exact), rel=1e-11, abs=0)


def test_paper_cost_at_its_edges() -> None:
    assert [paper_cost(0, 5, 20), paper_cost(8, 0, 12), paper_cost(0, 0, 3)] == [20, 12, 3]
    assert paper_cost(1, 1, 4) == 5
    assert paper_cost(1, 2, 4) == 4


def test_where_the_paper_is_off() -> None:
    push_part = {(s, n): PushPeriod(s, n).paper_error() for s in range(1, 41) for n in range(1, 41)}
    assert max(push_part, key=lambda at: abs(push_part[at])) == (2, 2)
    assert push_part[2, 2] == pytest.approx(0.25)
    for slots in range(2, 41):
        assert push_part[slots, 2] == pytest.approx(1 / (2 * slots))
    assert min(push_part.values()) == push_part[2, 3] == pytest.approx(-0.15625)
    total = {(q, n): PushPeriod(20 - q, n).paper_error(q) for q in range(21) for n in range(201)}
    assert max(total.values()) == total[0, 2] == pytest.approx(0.025)
    assert min(total.values()) == total[0, 80] == pytest.approx(-0.0408, abs=5e-5)
    assert max(abs(error) for (_, n), error in total.items() if n <= 36) < 0.0251
    assert max(abs(error) for (q, _), error in total.items() if q == 10) < 0.0208
    assert PushPeriod(1000, 1000).paper_error() < 2e-9  # it does become exact with many slots


# Properties ---------------------------------------------------------------------------------------

laws = (
    st.builds(PushPeriod, st.integers(0, 25), st.integers(0, 40))
    | st.builds(PushPeriod, st.just(4), st.integers(0, 12), st.floats(0, 1), st.just((0.1, 0.0, 0.6, 0.2)))
    | st.builds(TimedPushPeriod, st.integers(1, 8), st.lists(st.integers(1, 10), max_size=9))
)


@given(laws)
@settings(deadline=None, max_examples=100)
def test_laws_add_up(push: PushPeriod | TimedPushPeriod) -> None:
    for pmf in (push.received_pmf, push.last_slot_pmf):
        assert (pmf >= 0).all()
        assert pmf.sum() == pytest.approx(1, abs=1e-12)
    assert np.arange(len(push.received_pmf)) @ push.received_pmf == pytest.approx(push.received_mean, abs=1e-12)
    assert push.received_pmf[0] == pytest.approx(push.nothing_probability, abs=1e-12)
    assert push.received_mean <= push.last_slot_mean + 1e-12  # X slots hold at most X singletons
    assert push.last_slot_cdf[-1] == pytest.approx(1)


@given(st.integers(0, 15), st.floats(0, 1))
def test_last_pull_slot_against_its_law(pull: int, ready: float) -> None:
    chances = [(1 - ready) ** pull, *(ready * (1 - ready) ** (pull - z) for z in range(1, pull + 1))]
    assert sum(chances) == pytest.approx(1)
    assert last_success_mean(pull, ready) == pytest.approx(sum(z * q for z, q in enumerate(chances)))


# Refused input ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "line"),
    [
        (lambda: PushPeriod(-1, 3), "slots: -1 is not allowed; it must be at least 0"),
        (lambda: PushPeriod(2.5, 3), "slots: 2.5 is not allowed"),  # type: ignore[arg-type]
        (lambda: PushPeriod(3, -1), "contenders: -1 is not allowed"),
        (lambda: PushPeriod(3, True), "contenders: True is not allowed"),
        (lambda: PushPeriod(3, {2: 0.5}), "contenders: {2: 0.5} is not allowed; it must be numbers with"),
        (lambda: PushPeriod(3, {2: math.nan}), "contenders: nan is not allowed"),
        (lambda: PushPeriod(3, 2, probability=1.5), "probability: 1.5 is not allowed; it must be a probability"),
        (lambda: PushPeriod(3, 2, ready=(1.0,)), "ready: (1.0,) is not allowed; it must be 3 probabilities"),
        (lambda: PushPeriod(2, 2, ready=(0.7, 0.7)), "ready: (0.7, 0.7) is not allowed"),
        (lambda: TimedPushPeriod(3, (0, 1)), "earliest: 0 is not allowed; it must be at least 1"),
    ],
)
def test_bad_arguments_are_refused_in_one_line(make: object, line: str) -> None:
    with pytest.raises(InputError) as refusal:
        make()  # type: ignore[operator]
    assert line in str(refusal.value)
    assert "\n" not in str(refusal.value)
