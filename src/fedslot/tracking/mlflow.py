"""Runs of MLflow: the scenario's fields as parameters, every number of a round as a metric."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from fedslot.rounds.round import Round
from fedslot.rounds.trace import Event
from fedslot.runs.callbacks import Callback
from fedslot.runs.results import Result
from fedslot.scenario import Scenario
from fedslot.tracking.numbers import AGAINST_SLOTS, flat_fields, numbers, refusing

if TYPE_CHECKING:
    from mlflow.tracking import MlflowClient

FOLDER = "fedslot.folder"  # the tag by which a run is found again
LONGEST = 500  # characters of a parameter, as much as every store of MLflow takes


class MLflow(Callback):
    """Logs a run to MLflow; one that is resumed goes on in the same run of MLflow.

    Metrics have the round as step; `by_slots/test_accuracy` and the like have the slots spent.

    uri: the store or the server; None: MLflow's own setting, `MLFLOW_TRACKING_URI`, or else its default.
    experiment: its name; None: `MLFLOW_EXPERIMENT_NAME`, or else `fedslot`.
    name: of the run; None: strategy and seed.
    """

    def __init__(self, uri: str | None = None, experiment: str | None = None, name: str | None = None) -> None:
        with refusing("MLflow", "mlflow"):  # now, before the first round is lost
            from mlflow.tracking import MlflowClient
        self._make, self._uri, self._name = MlflowClient, uri, name
        self._experiment = experiment or os.environ.get("MLFLOW_EXPERIMENT_NAME") or "fedslot"
        self._client: MlflowClient | None = None
        self._run = ""

    def on_start(self, scenario: Scenario, done: int, folder: Path | None) -> None:
        with refusing("MLflow", "mlflow"):
            self._client = client = self._make(self._uri)
            experiment = client.get_experiment_by_name(self._experiment)
            home = client.create_experiment(self._experiment) if experiment is None else experiment.experiment_id
            where = "" if folder is None else str(folder.resolve())
            quoted = where.replace("'", "\\'")
            for run in client.search_runs([home], f"tags.`{FOLDER}` = '{quoted}'", max_results=1) if done else ():
                self._run = run.info.run_id
                client.update_run(self._run, status="RUNNING")
                return
            from mlflow.entities import Param

            tags = {FOLDER: where, "fedslot.scenario_digest": scenario.digest}
            self._run = client.create_run(home, run_name=self._name or scenario.label, tags=tags).info.run_id
            fields = [Param(key, str(value)[:LONGEST]) for key, value in flat_fields(scenario).items()]
            client.log_batch(self._run, params=fields)

    def on_round(self, round: Round, frame: Sequence[Event]) -> None:
        values = numbers(round, frame)
        with refusing("MLflow", "mlflow"):
            from mlflow.entities import Metric

            now = int(1000 * time.time())
            metrics = [Metric(name, number, now, round.round) for name, number in values.items()]
            metrics += [
                Metric(f"by_slots/{name}", values[name], now, int(round.slots_spent))
                for name in AGAINST_SLOTS
                if name in values
            ]
            assert self._client is not None
            self._client.log_batch(self._run, metrics=metrics)

    def on_end(self, result: Result | None) -> None:
        with refusing("MLflow", "mlflow"):
            assert self._client is not None
            finished = result is not None and not result.stopped
            self._client.set_terminated(self._run, "FINISHED" if finished else "KILLED")
