"""`planned` against brute force over all splits of small cells, by both readings of problem P."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedslot.messages import Grant
from fedslot.planning.period import PushPeriod
from fedslot.rounds.round import cell
from fedslot.scenario import Scenario
from fedslot.strategies import Ledger
from fedslot.valuation import Game, exact


def scenario(
    ues: int, slots: int, contenders: int | str, limit: float | None = None, reading: str = "sum", **push: object
) -> Scenario:
    options = {"reading": reading} if limit is None else {"frame_limit": limit, "reading": reading}
    return Scenario(
        data={"ues": ues},
        frame={"slots": slots, "pull": 0},
        fleet={"computing": {"slot": 1.0} if contenders == "ready" else None},
        push={"contenders": contenders, **push},
        strategy={"name": "planned", "options": options},
    )


def grant(wanted: Scenario, values: Sequence[float], round: int = 99) -> Grant:
    strategy = wanted.strategy.make(cell(wanted))
    value = np.array(values, dtype=float)
    return strategy.schedule(Ledger(value, np.isfinite(value).astype(np.int64)), round, np.random.default_rng(0))


def utility(values: list[float], n: int, probability: float, pull: int, push: int, reading: str) -> tuple[float, float]:
    """Expected value and expected cost of a split, from the recursion over slots."""
    best = sorted(values, reverse=True)
    if reading == "set":  # deviations, the least of which is the mean difference
        best = [2 * best[0] - value - sum(best) / len(best) for value in best]
    rest = best[pull:]
    period = PushPeriod(push, min(n, len(rest)), probability)
    pushes = period.received_mean
    total = sum(best[:pull]) + pushes * (sum(rest) / len(rest) if rest else 0.0)
    if reading == "set":
        total = -total / (pull + pushes) ** 2 if pull + pushes > 1e-12 else -np.inf
    return total, period.expected_cost_max(pull)


@given(
    st.integers(1, 7), st.integers(1, 5), st.integers(0, 7) | st.just("ready"), st.none() | st.floats(2, 7),
    st.sampled_from([0.3, 1.0, "auto"]), st.sampled_from(["set", "sum"]), st.data(),
)  # fmt: skip
@settings(max_examples=100, deadline=None)
def test_no_split_is_better(
    ues: int, slots: int, contenders: int | str, limit: float | None, probability: float | str, reading: str,
    data: st.DataObject,
) -> None:  # fmt: skip
    if contenders != "ready":
        contenders = min(int(contenders), ues)
    values = data.draw(st.lists(st.floats(-1, 1), min_size=ues, max_size=ues))
    wanted = scenario(ues, slots, contenders, limit, reading, probability=probability)
    found = grant(wanted, values)
    n, most = ues if contenders == "ready" else int(contenders), 1 + slots if limit is None else limit
    assert np.array(values)[found.pull].tolist() == sorted(values, reverse=True)[: len(found.pull)]

    def auto(pull: int, push: int) -> float:
        return min(1.0, push / max(1, min(n, ues - pull))) if probability == "auto" else float(probability)

    def value(pull: int, push: int) -> tuple[float, float]:
        return utility(values, n, auto(pull, push), pull, push, reading)

    best = max(
        value(pull, push)[0]
        for pull in range(min(slots, ues) + 1)
        for push in range(slots + 1 - pull)
        if value(pull, push)[1] <= most + 1e-9
    )
    push = found.uplink_slots(slots) - len(found.pull) if found.push else 0
    got, cost = value(len(found.pull), push)
    assert cost <= most + 1e-9
    assert found.uplink_slots(slots) <= slots
    if reading == "set" or best > 1e-6:
        assert got == pytest.approx(best, abs=1e-6)
        assert found.probability is None  # the PS sets the scenario's, or controls it
    else:  # nothing is worth receiving, but a frame is not empty
        assert len(found.pull) + push >= 1


def test_the_split_follows_the_values() -> None:
    wide = scenario(40, 10, 8)
    equal = grant(wide, [1.0] * 40)
    assert (len(equal.pull), equal.push) == (10, False), "a pull slot yields more than a push slot"
    bad = grant(wide, [1.0] * 4 + [-1.0] * 36)
    assert (bad.pull.tolist(), bad.push, bad.slots) == ([0, 1, 2, 3], False, 4), "others would do harm"
    worst = grant(wide, [-2.0, -1.0, *[-3.0] * 38])
    assert (worst.pull.tolist(), worst.push, worst.slots) == ([1], False, 1)


def test_a_set_averages_out_deviations() -> None:
    wide = scenario(40, 10, 8, reading="set")
    noisy = grant(wide, [1.0, 0.9, *[-1.0] * 38])
    assert (len(noisy.pull), noisy.push) == (10, False), "nine more updates of three times the deviation average out"
    far = grant(wide, [1.0] * 5 + [-9.0] + [1.0] * 34)
    assert 5 not in far.pull
    assert len(far.pull) == 10
    few = grant(scenario(6, 6, 0, reading="set"), [1.0] * 5 + [-9.0])
    assert few.pull.tolist() == [0, 1, 2, 3, 4], "who deviates seven times as much lowers the utility of the set"


def test_deviations_lower_shapley_values_in_their_order() -> None:
    """The game of the docstring, by exact Shapley values: differences of values are those of deviations by a factor."""
    deviations = np.random.default_rng(0).uniform(0, 2, 7)
    game = Game(
        7, lambda members: 3.0 * members.any(axis=1) - members @ deviations / np.maximum(members.sum(1), 1) ** 2
    )
    values = exact(game).values
    factors = np.diff(values) / np.diff(deviations)
    assert factors == pytest.approx(factors[0])
    assert factors[0] < 0


def test_ues_without_a_value_count_as_average() -> None:
    found = grant(scenario(4, 2, 2), [1.0, 3.0, -np.inf, -np.inf])
    assert found.pull.tolist() == [1, 2]
    nobody = grant(scenario(4, 2, 2), [-np.inf] * 4)
    assert nobody.pull.tolist() == [0, 1]


def test_the_limit_holds_during_warm_up() -> None:
    first = [grant(scenario(10, 6, 3, limit=4.5), [-np.inf] * 10, round=r) for r in range(4)]
    assert [one.pull.tolist() for one in first] == [[0, 1, 2], [3, 4, 5], [6, 7, 8], [9, 0, 1]]
    assert all(one.slots == 3 for one in first)


@pytest.mark.parametrize("channel", ["capture", "irsa"])
def test_other_channels_are_simulated(channel: str) -> None:
    found = cell(scenario(30, 6, 5, channel=channel)).splits(7)
    assert [split.pull for split in found] == list(range(7))
    assert 0 < found[0].pushes <= 5
    assert found[6].pushes == 0


def test_arrivals_say_how_many_contend() -> None:
    few, many = (cell(scenario(30, 9, 5, arrivals=rate)).splits(10)[0].pushes for rate in (0.1, 0.5))
    assert few == pytest.approx(1)
    assert many == pytest.approx(5 * (8 / 9) ** 4)
