"""Run a scenario, in memory or in a folder from which it can be resumed, and return a `Result`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import nn

from fedslot import __version__
from fedslot.data.sources import load as load_data
from fedslot.errors import RefusedError
from fedslot.local_training import make_model
from fedslot.provenance import fingerprints
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
    parameters: (P,) the last global model, if it is in memory. state: the last state of the strategy.
    engine: `torch` or `compiled`, which trained the UEs.
    folder: where the run was loaded from.

    `load` reads scenario and rounds, and the model when it is asked for; state and engine are then None.
    """

    scenario: Scenario
    rounds: pd.DataFrame
    parameters: NDArray[np.float32] | None = None
    state: Any = None
    engine: str | None = None
    folder: Path | None = None

    @property
    def model(self) -> NDArray[np.float32] | None:
        """The last global model (P,); of a loaded run, that of its last checkpoint, and None if there is none."""
        if self.parameters is None and self.folder is not None:
            return RunFolder(self.folder).model()
        return self.parameters

    def module(self) -> nn.Module:
        """Return the network with the parameters of the last global model, on the CPU, for evaluation."""
        flat = self.model
        if flat is None:
            raise RefusedError(f"{self.folder or 'the result'} has no model; a run saves the first after some rounds")
        network = make_model(self.scenario.replace({"training.device": "cpu"}), load_data(self.scenario.data.dataset))
        return network.module_with(torch.tensor(flat))

    def in_memory(self) -> Result:
        """Return the same result without its folder, which may then be deleted."""
        return replace(self, parameters=self.model, folder=None)

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
        """Return the content of `summary.json`, apart from its hashes of rows, data and own parts."""
        rounds = self.rounds
        return {
            "strategy": self.scenario.strategy.name,
            "seed": self.scenario.seed,
            "rounds": len(rounds),
            "stopped_by": "rounds" if len(rounds) == self.scenario.most_rounds else "time_budget",
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
    resume: continue the run in the folder, also to more rounds or a larger time budget; the result is the same as
        without the interruption.
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
        return _in_folder(simulation, RunFolder(Path(out)), on_round, resume=resume, force=force)


def load(out: str | Path) -> Result:
    """Read scenario and rounds of a run folder, finished or not."""
    folder = RunFolder(Path(out))
    return Result(folder.scenario(), folder.rounds(), folder=folder.path)


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


def _in_folder(
    simulation: Simulation,
    folder: RunFolder,
    on_round: Callable[[Round], object] | None,
    *,
    resume: bool,
    force: bool,
) -> Result:
    scenario = simulation.scenario
    now = folder.open(scenario, simulation.start(), fingerprints(scenario), resume=resume, force=force)
    try:
        try:
            for round, after in simulation.rounds(now):
                now = after
                folder.append(round, now)
                if now.round % CHECKPOINT_EVERY == 0:
                    folder.save()
                if on_round:
                    on_round(round)
        except Exception:
            if now.round == 0:  # there is nothing to continue, and the next try shall find no folder in its way
                folder.withdraw()
            raise
        finally:
            if folder.is_open:
                folder.save()  # also when interrupted, so that no finished round is lost
        result = _result(simulation, folder.rounds(), now)
        folder.finish(result.summary())
    finally:
        folder.close()
    return result


def _result(simulation: Simulation, rounds: pd.DataFrame, now: Snapshot) -> Result:
    return Result(simulation.scenario, rounds, now.report.cpu().numpy(), now.state, simulation.trainer.engine)
