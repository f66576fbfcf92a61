"""Plans against runs: the same cells, drawn at random, are planned, and played frame by frame as a simulation does."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fedslot.access.clock import cost_frame, cost_max
from fedslot.access.controller import Contention, Controller
from fedslot.access.frame import play
from fedslot.messages import Grant
from fedslot.planning.backlog import StationaryCell
from fedslot.planning.cell import PushCell
from fedslot.planning.contenders import Floats
from fedslot.planning.planner import plan
from fedslot.planning.readiness import make_readiness
from fedslot.rounds.round import backlogged, first_waiting, still_waiting
from fedslot.scenario import Scenario
from fedslot.support.rng import CHANNEL, CONTENTION, stream

CELLS, BATCHES, BEFORE = 40, 20, 300


def draw(number: int, attempt: int = 0) -> dict[str, Any]:
    """Draw a cell: every channel, contenders or arrivals, readiness, barring.

    Cells that jam at some random time of the long run are drawn again: plans are a mean over that time, and no run is
    like it.
    """
    rng = np.random.default_rng([7, number, attempt])
    slots = int(rng.integers(4, 14))
    pull, ues = int(rng.integers(0, slots)), int(rng.integers(slots + 4, 45))
    push = slots - pull
    who: dict[str, Any] = {"contenders": int(rng.integers(0, min(ues - pull, 3 * push) + 1))}
    if number % 2:
        who = {"arrivals": float(rng.uniform(0.02, 0.6) * push / slots), "rule": str(rng.choice(["max", "frame"]))}
    elif number % 10 == 0:
        who = {"contenders": "ready"}
    ready: list[Any] = [1.0, float(rng.uniform(0.2, 0.9)), "by slot"]
    barring: list[Any] = [1.0, float(rng.uniform(0.1, 0.9)), "auto"]
    cell = {
        "slots": slots,
        "pull": pull,
        "ues": ues,
        "channel": ["collision", "capture", "crdsa", "irsa"][number // 2 % 4],
        "ready": ready[rng.integers(3)],
        "barring": barring[rng.integers(3)],
        **who,
    }
    return draw(number, attempt + 1) if 0.01 < jammed(cell) < 0.99 else cell


def jammed(cell: dict[str, Any]) -> float:
    """Return the share of jammed frames in the long run of a cell that can jam, else 0."""
    if "arrivals" not in cell or cell["barring"] == "auto":
        return 0.0
    fields = {name: cell[name] for name in ("ues", "channel", "barring", "arrivals", "rule")}
    ready = make_readiness(readiness(cell), cell["slots"])
    push = PushCell(**fields, ready=readiness(cell))
    return StationaryCell(push, cell["pull"], cell["slots"] - cell["pull"], ready).jammed


def readiness(cell: dict[str, Any]) -> Any:
    """Return the readiness of a cell as plans have it."""
    return (
        np.minimum(np.arange(cell["slots"]) / (1.3 * cell["slots"]), 1.0)
        if cell["ready"] == "by slot"
        else cell["ready"]
    )


def run(cell: dict[str, Any], frames: int) -> Floats:
    """Play frames as a simulation does. Returns (F, 3): received pushes, cost, and backlogged UEs."""
    slots, pull, ues, arrivals = cell["slots"], cell["pull"], cell["ues"], cell.get("arrivals")
    scenario = Scenario(
        data={"ues": ues},
        frame={"slots": slots, "pull": pull},
        push={"contenders": cell.get("contenders", 0), "arrivals": arrivals, "channel": cell["channel"]},
        fleet={"computing": {"slot": 1.0} if cell.get("contenders") == "ready" else None},
    )
    channel, rng = scenario.push.channel.make(), np.random.default_rng(3)
    controller, estimate = Controller(channel, ues), Contention(float(scenario.expected_contenders or ues))
    waiting, spent, rows = first_waiting(scenario), 0, []
    for number in range(frames):
        ready = np.zeros(ues)
        if cell["ready"] == "by slot":
            ready = rng.uniform(0, 1.3 * slots, ues)
        elif cell["ready"] < 1:
            ready[:pull] = np.where(rng.random(pull) < cell["ready"], 0.0, 1e6)
        chance = controller.probability(estimate, slots - pull) if cell["barring"] == "auto" else cell["barring"]
        grant = Grant(np.arange(pull), True, chance)
        pushing = backlogged(scenario, grant, waiting, number)
        contention, fading = stream(0, CONTENTION, number), stream(0, CHANNEL, number)
        receipt = play(grant, slots, pushing, ready, channel, contention, fading)
        estimate = controller.observe(estimate, slots - pull, chance, len(receipt.pushed), receipt.collided_slots)
        before, spent = spent, spent + (cost_frame if cell.get("rule") == "frame" else cost_max)(receipt)
        waiting = still_waiting(scenario, waiting, receipt.received, before, spent)
        rows.append((len(receipt.pushed), cost_max(receipt), len(pushing)))
    return np.array(rows, dtype=float)


def planned(cell: dict[str, Any], **options: Any) -> tuple[Floats, Floats]:
    """Return what a plan says of the same: received pushes, cost and backlog, and their standard errors."""
    number = cell.get("contenders", 0)
    who = {"contenders": cell["ues"] - cell["pull"] if number == "ready" else number}
    fields = {name: cell[name] for name in ("slots", "ues", "channel", "barring", "arrivals", "rule") if name in cell}
    split = plan(**{**fields, **who}, pulls=[cell["pull"]], ready=readiness(cell), **options).best
    backlog = float(who["contenders"]) if split.backlog is None else split.backlog
    errors = [split.standard_errors.get(x, 0.0) for x in ("expected_received_push", "expected_cost_max", "backlog")]
    return np.array([split.expected_received_push, split.expected_cost_max, backlog]), np.array(errors)


def compare(number: int, played: int, **options: Any) -> None:
    cell = draw(number)
    rows = run(cell, BEFORE + played)[BEFORE:]
    batches = rows.reshape(BATCHES, -1, 3).mean(axis=1)
    expected, errors = planned(cell, **options)
    spread = np.hypot(errors, batches.std(axis=0, ddof=1) / BATCHES**0.5)
    off = np.abs(rows.mean(axis=0) - expected)
    # a run that is jammed from its start on does not show the frames before a jam, one in some hundred
    assert (off <= 4 * spread + 2e-3 * (1 + expected)).all(), (
        cell,
        rows.mean(axis=0),
        expected,
        off / np.maximum(spread, 1e-9),
    )


@pytest.mark.parametrize("number", range(CELLS))
def test_plans_say_what_runs_do(number: int) -> None:
    """Received pushes, cost and backlog, within four standard errors."""
    compare(number, 300)


@pytest.mark.long
@pytest.mark.parametrize("number", range(CELLS))
def test_plans_say_what_long_runs_do(number: int) -> None:
    compare(number, 4000, frames=20_000)
