"""Run a scenario, in memory or in a folder from which it can be resumed, and return a `Result`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fedslot import __version__
from fedslot.records import RunFolder, read_summary
from fedslot.round import Round, Snapshot
from fedslot.scenario import Scenario, as_scenario
from fedslot.simulation import Distribute, Simulation
from fedslot.threads import Threads

CHECKPOINT_EVERY = 5  # rounds
Rule = Literal["max", "frame", "sum"]


@dataclass(frozen=True)
class Result:
    """The result of a run.

    scenario: the scenario that was run.
    rounds: one row per round, the columns of `rounds.csv`.
    model: (P,) the last global model. state: the last state of the strategy.
    engine: `torch` or `compiled`, which trained the UEs.

    `load` reads scenario and rounds only; the others are then None.
    """

    scenario: Scenario
    rounds: pd.DataFrame
    model: NDArray[np.float32] | None = None
    state: Any = None
    engine: str | None = None

    @property
    def final_accuracy(self) -> float:
        """Test accuracy after the last round."""
        return float(self.rounds["test_accuracy"].iloc[-1])

    @property
    def slots_spent(self) -> int:
        """Number of slots that the run spent, by the scenario's cost rule."""
        return int(self.rounds["slots_spent"].iloc[-1])

    def accuracy_at(self, slots: int) -> float:
        """Return the test accuracy of the last round that was complete after `slots` slots; NaN if none was."""
        done = self.rounds.loc[self.rounds["slots_spent"] <= slots, "test_accuracy"]
        return float(done.iloc[-1]) if len(done) else float("nan")

    def slots_to(self, accuracy: float, rule: Rule = "max") -> float:
        """Return the slots until the test accuracy first reached a target, by cost rule; NaN if it never did."""
        reached = np.flatnonzero(self.rounds["test_accuracy"] >= accuracy)
        if not len(reached):
            return float("nan")
        return float(self.rounds[f"cost_{rule}"].iloc[: reached[0] + 1].sum())

    def summary(self) -> dict[str, Any]:
        """Return the content of `summary.json`."""
        rounds = self.rounds
        return {
            "strategy": self.scenario.strategy.name,
            "seed": self.scenario.seed,
            "rounds": len(rounds),
            "stopped_by": "rounds" if len(rounds) == self.scenario.rounds else "time_budget",
            "final_accuracy": self.final_accuracy,
            "best_accuracy": float(rounds["test_accuracy"].max()),
            "slots_spent": self.slots_spent,
            "cost_max": int(rounds["cost_max"].sum()),
            "cost_frame": int(rounds["cost_frame"].sum()),
            "cost_sum": int(rounds["cost_sum"].sum()),
            "push_received": int(rounds["push_received"].sum()),
            "collided": int(rounds["collided"].sum()),
            "seconds": float(rounds["seconds"].sum()),
            "engine": self.engine,
            "scenario_digest": self.scenario.digest,
            "fedslot_version": __version__,
        }


def run(
    scenario: Scenario | str | Path,
    out: str | Path | None = None,
    *,
    resume: bool = False,
    force: bool = False,
    threads: int = 1,
    distribute: Distribute | None = None,
    on_round: Callable[[Round], object] | None = None,
) -> Result:
    """Run a scenario to its end.

    scenario: a scenario, or the name of a preset or YAML file.
    out: folder for `scenario.yaml`, `rounds.csv`, `summary.json` and the checkpoint; None writes nothing.
    resume: continue the run in the folder; the result is the same as without the interruption.
    force: start over in a folder that holds a run, which is deleted.
    threads: threads that share the work of a round; the result does not depend on their number.
    distribute: wraps the local training; `fedslot.distributed_training` spreads it over a Dask cluster.
    on_round: called with each round when it is done.

    >>> from fedslot import Scenario
    >>> result = run(Scenario.load("quickstart", {"rounds": 2}))
    >>> len(result.rounds)
    2
    """
    with Threads(threads) as pool:
        simulation = Simulation(as_scenario(scenario), distribute, pool)
        if out is None:
            return _in_memory(simulation, on_round)
        folder = RunFolder(Path(out))
        with folder.claim(simulation.scenario, resume=resume, force=force):
            return _in_folder(simulation, folder, on_round)


def load(out: str | Path) -> Result:
    """Read scenario and rounds of a run folder, finished or not."""
    folder = RunFolder(Path(out))
    return Result(folder.scenario(), folder.rounds())


def is_finished(out: str | Path) -> bool:
    """Return whether the run in a folder is complete."""
    return read_summary(Path(out)) is not None


def _in_memory(simulation: Simulation, on_round: Callable[[Round], object] | None) -> Result:
    rows, now = [], simulation.start()
    for round, after in simulation.rounds(now):
        now = after
        rows.append(asdict(round))
        if on_round:
            on_round(round)
    return _result(simulation, pd.DataFrame(rows), now)


def _in_folder(simulation: Simulation, folder: RunFolder, on_round: Callable[[Round], object] | None) -> Result:
    now = folder.restore(simulation.start())
    rows = folder.open_rows(keep=now.round)

    def checkpoint() -> None:
        rows.sync()  # the rows first: a checkpoint must never be ahead of them
        folder.save(now)

    try:
        for round, after in simulation.rounds(now):
            now = after
            rows.append(round)
            if now.round % CHECKPOINT_EVERY == 0:
                checkpoint()
            if on_round:
                on_round(round)
    finally:
        checkpoint()  # also when interrupted, so that no finished round is lost
        rows.close()
    result = _result(simulation, folder.rounds(), now)
    folder.finish(result.summary())
    return result


def _result(simulation: Simulation, rounds: pd.DataFrame, now: Snapshot) -> Result:
    return Result(simulation.scenario, rounds, now.report.cpu().numpy(), now.state, simulation.trainer.engine)
