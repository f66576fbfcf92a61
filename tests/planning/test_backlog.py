"""The stationary cell against enumeration, and where it jams."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from fedslot.access import Collision, irsa
from fedslot.planning.backlog import LONG_RUN, StationaryCell
from fedslot.planning.cell import PushCell
from fedslot.planning.planner import plan
from fedslot.planning.readiness import SameReadiness
from fedslot.planning.trial import play_pushes


@pytest.mark.parametrize("rule", ["max", "frame"])
@pytest.mark.parametrize(("p", "ready", "pull"), [(1.0, 1.0, 0), (0.6, 0.7, 2), ("best", 0.4, 1)])
def test_the_backlog_of_a_small_cell_by_enumeration(rule, p, ready: float, pull: int) -> None:
    """Every choice of every UE, every pulled UE that is ready or not, and every number of arrivals."""
    slots, others, arrivals = 3, 3, 0.7
    ues = others + pull
    moves = np.zeros((others + 1, others + 1))
    for n in range(others + 1):
        sends = min(1.0, slots / max(n, 1)) if p == "best" else p
        for choice in product(range(slots + 1), repeat=n):  # 0: barred
            chance = math.prod(sends / slots if slot else 1 - sends for slot in choice)
            alone = [slot for slot in choice if slot and choice.count(slot) == 1]
            for here in product([True, False], repeat=pull):
                also = chance * math.prod(ready if one else 1 - ready for one in here)
                last_pull = max((z for z, one in enumerate(here, 1) if one), default=0)
                cost = 1 + (pull + max(alone) if alone else last_pull)
                gets = 1 - math.exp(-arrivals * (cost if rule == "max" else 1 + pull + slots) / ues)
                left = n - len(alone)
                for new in range(others - left + 1):
                    ways = math.comb(others - left, new) * gets**new * (1 - gets) ** (others - left - new)
                    moves[n, left + new] += also * ways
    law = np.eye(others + 1)[0]
    expected = np.zeros(others + 1)
    keep = 1 - 1 / LONG_RUN
    for frame in range(2000):  # it is stationary by then
        expected += (1 - keep) * keep**frame * law
        law = law @ moves
    expected += keep**2000 * law
    cell = PushCell(ues=ues, arrivals=arrivals, barring=p, rule=rule)
    found = StationaryCell(cell, pull, slots, SameReadiness(ready))
    assert found.law == pytest.approx(expected, abs=1e-9)
    split = plan(pull + slots, pulls=[pull], ues=ues, arrivals=arrivals, barring=p, rule=rule, ready=ready).best
    assert split.backlog == pytest.approx(np.arange(others + 1) @ expected)


@pytest.mark.parametrize(("ues", "push", "barring"), [(100, 5, 1.0), (40, 3, 0.7), (5000, 10, 1.0)])
def test_a_cell_is_unstable_above_its_most_arrivals(ues: int, push: int, barring: float) -> None:
    cell = PushCell(ues=ues, arrivals=0.1, barring=barring)
    most = StationaryCell(cell, 4, push, SameReadiness(1.0)).most_arrivals
    below, above = (
        StationaryCell(replace(cell, arrivals=factor * most), 4, push, SameReadiness(1.0)) for factor in (0.95, 1.05)
    )
    assert below.jammed < 0.5 < above.jammed
    assert np.arange(len(above.law)) @ above.law > 0.4 * ues


def test_the_best_barring_does_not_jam() -> None:
    """Beyond what the push slots serve, they receive as much as ever, and nearly all UEs are backlogged."""
    few, many = (plan(10, pulls=[4], ues=400, arrivals=rate, barring="best").best for rate in (1.0, 9.0))
    assert many.expected_received_push == pytest.approx(6 * (1 - 1 / 390) ** 389, rel=0.01)
    assert few.expected_received_push > 2.2
    assert many.backlog is not None
    assert many.backlog > 380


def test_the_drift_of_a_large_cell_is_where_as_many_arrive_as_are_received() -> None:
    """With a low probability of sending a backlog of hundreds is one UE a slot, and only the drift is computed."""
    cell = PushCell(ues=4000, arrivals=0.25, barring=0.1)
    assert not StationaryCell(cell, 5, 15, SameReadiness(1.0)).by_chain
    split = plan(20, pulls=[5], ues=4000, arrivals=0.25, barring=0.1).best
    assert split.backlog is not None
    arrive = 0.25 * split.expected_cost_max * (3995 - split.backlog) / 4000
    assert split.expected_received_push == pytest.approx(arrive, rel=0.02)
    received = [n * 0.1 * (1 - 0.1 / 15) ** (n - 1) for n in range(200)]
    assert split.backlog == next(n for n in range(200) if received[n] >= arrive)


# Where frames are simulated -----------------------------------------------------------------------


class _Simulated(Collision):
    """The collision channel, as one of which nothing is known."""


@pytest.mark.parametrize("rule", ["max", "frame"])
@pytest.mark.parametrize(("pull", "push", "ready"), [(5, 5, 1.0), (3, 6, 0.5)])
def test_simulated_transitions_give_what_computed_ones_do(rule, pull: int, push: int, ready: float) -> None:
    """From nearly empty cells over those that jam in half of the long run to jammed ones, within 4 standard errors."""
    fields = {"pulls": [pull], "ues": 100, "rule": rule, "ready": ready}
    for arrivals in (0.02, 0.1, 0.12, 0.2):
        exact = plan(pull + push, arrivals=arrivals, **fields).best
        played = plan(pull + push, arrivals=arrivals, channel=_Simulated(), **fields).best
        assert set(played.standard_errors) > {"backlog", "expected_received_push", "expected_cost_max"}
        for name, error in played.standard_errors.items():
            assert abs(getattr(played, name) - getattr(exact, name)) <= 4 * error + 1e-9, (arrivals, name)
    computed = StationaryCell(PushCell(ues=100, arrivals=0.1, rule=rule), pull, push, SameReadiness(ready))
    other = replace(computed, cell=replace(computed.cell, channel=_Simulated()))
    assert other.most_arrivals == pytest.approx(computed.most_arrivals, rel=0.02)


def test_more_frames_lower_the_standard_errors_of_simulated_transitions() -> None:
    few, many = (
        plan(10, pulls=[5], ues=60, arrivals=0.1, channel=_Simulated(), frames=frames).best.standard_errors["backlog"]
        for frames in (1000, 16_000)
    )
    assert few / many == pytest.approx(4, rel=0.5)  # each is itself known within 16% only


def test_a_cell_on_a_coded_channel_jams_as_often_as_its_chain_says() -> None:
    """With IRSA on ten slots, that on average receive three times these arrivals where the backlog is best."""
    arrivals, cells, frames, rng = 0.15, 200, 300, np.random.default_rng(1)
    waiting = np.zeros(cells, dtype=np.int64)
    for _ in range(frames):
        # of more than 60, none are received
        left = waiting - play_pushes(irsa(), np.minimum(waiting, 60), 10, rng)[:, 0].astype(np.int64)
        waiting = left + rng.binomial(100 - left, -math.expm1(-arrivals * 11 / 100))
    law = np.eye(101)[0]
    cell = StationaryCell(PushCell(ues=100, arrivals=arrivals, channel="irsa", rule="frame"), 0, 10, SameReadiness(1.0))
    moves = cell.frames.transitions(100, cell._arriving, cell._moves(0)).mean(axis=0)
    for _ in range(frames):
        law = law @ moves
    jammed = float(law[51:].sum())
    assert 0.05 < jammed < 0.2
    assert np.mean(waiting > 50) == pytest.approx(jammed, abs=4 * (jammed * (1 - jammed) / cells) ** 0.5)
    assert 0.07 < cell.most_arrivals < arrivals
