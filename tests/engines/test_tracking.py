"""Tracking: what TensorBoard and MLflow read back is what the run recorded."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import fedslot
from fedslot import Callback, RefusedError, Scenario
from fedslot.cli import main
from fedslot.support.errors import InputError
from fedslot.tracking import MLflow, TensorBoard

accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
tracking = pytest.importorskip("mlflow.tracking")

# of SQLAlchemy and others under MLflow, which we can do nothing about
IGNORED = ("DeprecationWarning", "FutureWarning", "ResourceWarning")
pytestmark = pytest.mark.filterwarnings(*(f"ignore::{kind}" for kind in IGNORED))

SMALL = {"rounds": 4, "data.ues": 20, "training.epochs": 1, "strategy.warmup": 2}
AXES = ("test_accuracy", "test_loss", "val_loss")


@pytest.fixture
def scenario() -> Scenario:
    return Scenario.load("quickstart", SMALL)


@pytest.fixture(autouse=True)
def _no_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    monkeypatch.delenv("MLFLOW_EXPERIMENT_NAME", raising=False)


class Interrupt(Callback):
    def __init__(self, at: int) -> None:
        self.at = at

    def on_round(self, round: fedslot.Round, frame: object) -> None:
        if round.round == self.at:
            raise KeyboardInterrupt


def scalars(folder: Path) -> dict[str, list[tuple[int, float]]]:
    """Read all scalars of the event files in a folder, as TensorBoard does."""
    found = accumulator.EventAccumulator(str(folder))
    found.Reload()
    return {tag: [(event.step, event.value) for event in found.Scalars(tag)] for tag in found.Tags()["scalars"]}


def check_events(folder: Path, rounds: pd.DataFrame) -> None:
    rounds = rounds.dropna(axis="columns")  # without a radio, seconds and joules are unknown
    by_round, by_slots = scalars(folder), scalars(folder / "by_slots")
    assert set(by_round) == {*rounds.columns.drop("round"), "idle_slots"}
    for name in rounds.columns.drop("round"):
        steps, values = zip(*by_round[name], strict=True)
        assert list(steps) == rounds["round"].tolist(), name
        assert list(values) == pytest.approx(rounds[name].tolist(), rel=1e-6), name
    assert {name: [step for step, _ in by_slots[name]] for name in AXES} == {
        name: rounds["slots_spent"].tolist() for name in AXES
    }


def test_tensorboard_reads_back_what_was_recorded(scenario: Scenario, tmp_path: Path) -> None:
    result = fedslot.run(scenario, tmp_path / "run", callbacks=[TensorBoard()])
    check_events(tmp_path / "run" / "tensorboard", result.rounds)
    assert result.frames is not None
    idle = result.frames[result.frames["event"] == "idle"].groupby("round").size().reindex(range(4), fill_value=0)
    assert [value for _, value in scalars(tmp_path / "run" / "tensorboard")["idle_slots"]] == idle.tolist()
    fedslot.run(scenario, tmp_path / "run", force=True)
    assert not (tmp_path / "run" / "tensorboard").exists(), "--force deletes what was written"


def test_a_resumed_run_supersedes_what_it_computes_again(scenario: Scenario, tmp_path: Path) -> None:
    """As after kill -9: events that are ahead of the checkpoint."""
    folder = tmp_path / "events"
    fedslot.run(scenario, callbacks=[TensorBoard(folder)])
    with pytest.raises(KeyboardInterrupt):
        fedslot.run(scenario, tmp_path / "run", callbacks=[Interrupt(1)])
    tracker = TensorBoard(folder)
    resumed = fedslot.run(scenario, tmp_path / "run", resume=True, callbacks=[tracker])
    rounds = pd.concat([fedslot.run(scenario).rounds.iloc[:2], resumed.rounds.iloc[2:]])
    check_events(folder, rounds.assign(seconds=[value for _, value in scalars(folder)["seconds"]]))


def test_tensorboard_needs_a_folder(scenario: Scenario) -> None:
    with pytest.raises(InputError, match="given to TensorBoard"):
        fedslot.run(scenario, callbacks=[TensorBoard()])


@pytest.fixture(params=["file", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return f"file://{tmp_path}/mlruns" if request.param == "file" else f"sqlite:///{tmp_path}/mlflow.db"


def history(client: Any, run: Any, name: str) -> list[tuple[int, float]]:
    return [(metric.step, metric.value) for metric in client.get_metric_history(run.info.run_id, name)]


def test_mlflow_reads_back_what_was_recorded(scenario: Scenario, tmp_path: Path, store: str) -> None:
    """Interrupted and resumed, it is one run of MLflow."""
    client = tracking.MlflowClient(store)
    with pytest.raises(KeyboardInterrupt):
        fedslot.run(scenario, tmp_path / "run", callbacks=[MLflow(store), Interrupt(1)])
    experiment = client.get_experiment_by_name("fedslot").experiment_id
    (run,) = client.search_runs([experiment])
    assert run.info.status == "KILLED"
    result = fedslot.run(scenario, tmp_path / "run", resume=True, callbacks=[MLflow(store)])
    (run,) = client.search_runs([experiment])
    assert (run.info.status, run.info.run_name) == ("FINISHED", "push-pull, seed 0")
    assert run.data.params["frame.pull"] == str(scenario.frame.pull)
    assert run.data.params["strategy.name"] == "push-pull"
    for name in result.rounds.dropna(axis="columns").columns.drop("round"):
        expected = list(enumerate(result.rounds[name].tolist()))
        found = history(client, run, name)
        assert [step for step, _ in found] == [0, 1, 2, 3]
        assert [value for _, value in found] == pytest.approx([value for _, value in expected])
    assert [step for step, _ in history(client, run, "by_slots/test_accuracy")] == result.rounds["slots_spent"].tolist()


def test_each_run_is_one_of_its_own(scenario: Scenario, tmp_path: Path, store: str) -> None:
    for _ in range(2):
        fedslot.run(scenario, callbacks=[MLflow(store, experiment="cells", name="mine")])
    client = tracking.MlflowClient(store)
    found = client.search_runs([client.get_experiment_by_name("cells").experiment_id])
    assert [run.info.run_name for run in found] == ["mine", "mine"]


def test_a_store_that_fails_ends_the_run_in_one_line(scenario: Scenario, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(RefusedError, match=r"tracking by MLflow failed \(.*\); the run can be continued") as refused:
        fedslot.run(scenario, tmp_path / "run", callbacks=[MLflow(f"file://{tmp_path}/file/store")])
    assert "\n" not in str(refused.value)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(("tool", "module"), [("tensorboard", "torch.utils.tensorboard"), ("mlflow", "mlflow")])
def test_a_tool_that_is_not_installed_is_one_line(
    tool: str, module: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in [name for name in sys.modules if name == module or name.startswith(f"{module}.")]:
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.setitem(sys.modules, module, None)
    assert main(["run", "quickstart", "-o", "rounds=2", "--track", tool, "--out", str(tmp_path / "run")]) == 2
    assert capsys.readouterr().err.splitlines()[-1].endswith(f"type: pip install 'fedslot[{tool}]'")


def test_a_comparison_is_tracked_run_by_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"file://{tmp_path}/mlruns")
    words = ["--strategies", "fedavg,push-pull", "--seeds", "1", "-o", "rounds=2", "--out", str(tmp_path / "study")]
    tools = ["--track", "tensorboard", "--track", "mlflow"]
    assert main(["compare", "quickstart", *words, *tools]) == 0
    client = tracking.MlflowClient()
    found = client.search_runs([client.get_experiment_by_name("fedslot").experiment_id])
    assert {run.info.run_name: run.info.status for run in found} == {
        "fedavg, seed 0": "FINISHED",
        "push-pull, seed 0": "FINISHED",
    }
    for name in ("fedavg-seed0", "push-pull-seed0"):
        rounds = fedslot.load(tmp_path / "study" / "runs" / name).rounds
        assert [step for step, _ in scalars(tmp_path / "study" / "tensorboard" / name)["test_accuracy"]] == [0, 1]
        assert len(rounds) == 2
    assert main(["compare", "quickstart", *words, *tools, "--resume"]) == 0
    assert len(client.search_runs([client.get_experiment_by_name("fedslot").experiment_id])) == 2, "none is repeated"
    assert main(["compare", "quickstart", *words, "--force"]) == 0
    assert not (tmp_path / "study" / "tensorboard").exists()


def test_unknown_tools_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for command in (
        ["run", "quickstart"],
        ["compare", "quickstart"],
        ["sweep", "quickstart", "--grid", "frame.pull=2"],
    ):
        assert main([*command, "--track", "excel", "--out", str(tmp_path / "out")]) == 2
        assert "track: 'excel' is not allowed; it must be one of tensorboard, mlflow" in capsys.readouterr().err
        assert not (tmp_path / "out").exists()
