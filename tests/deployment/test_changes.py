"""Changes of a running training: what may change, what is kept, and that a restart makes no difference."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from small_cell import scenario

import fedslot
from fedslot import InputError, RefusedError, Scenario
from fedslot.cli import main
from fedslot.deployment.changes import REQUEST, changed, write_request
from fedslot.deployment.frame import Turn
from fedslot.deployment.server import ParameterServer
from fedslot.rounds.simulation import Simulation
from fedslot.rounds.states import carry

EXACT = ["round", "slots", "pulled", "contenders", "push_received", "collided", "slots_spent", "test_loss"]


@dataclass(frozen=True)
class Answer:
    """The reply of a UE that moves the model by a constant."""

    turn: Turn
    model: np.ndarray

    def slots(self) -> tuple[int, list[int]]:
        return self.turn.round, self.turn.draw()

    def size(self) -> int:
        return self.model.nbytes

    def content(self) -> tuple[bytes, dict[str, object]]:
        return self.model.tobytes(), {"num-examples": 10}


def play(wanted: Scenario, out: Path, asked: dict[int, dict[str, object]], until: int = 10**6, **options: Any) -> Any:
    """Run a training; asked: changes that are asked for before a round."""
    simulation = Simulation(wanted)
    server = ParameterServer(wanted, simulation.model, simulation.held_out, out=out, **options)
    server.start()
    while server.now.round < until:
        if fields := asked.get(server.now.round):
            write_request(out, fields)
        names = {ue: f"node{ue}" for ue in range(server.scenario.data.ues)}
        server.roster.bind([(name, ue) for ue, name in names.items()], set(names.values()), 0)
        frame = server.announce()
        if frame is None:
            break
        model = server.now.model.numpy()
        replies = [(ue, Answer(turn, model + np.float32(0.001 * (ue + 1)))) for ue, turn in frame.turns.items()]
        server.close(frame, {ue: names[ue] for ue in frame.turns}, replies)
    return server


CHANGES: dict[int, dict[str, object]] = {
    2: {"frame.pull": 1},
    4: {"strategy.name": "greedy-shap", "frame.slots": 3},
    5: {"data.ues": 9},
}


@pytest.fixture
def wanted() -> Scenario:
    return scenario(rounds=8, push__contenders=3)


def test_a_change_holds_from_the_next_round_on_and_is_recorded(wanted: Scenario, tmp_path: Path) -> None:
    server = play(wanted, tmp_path / "out", CHANGES)
    server.finish()
    before = play(wanted, tmp_path / "before", {}, until=2)
    before.finish()
    rounds = fedslot.load(tmp_path / "out").rounds
    pd.testing.assert_frame_equal(rounds[EXACT][:2], fedslot.load(tmp_path / "before").rounds[EXACT])
    assert rounds["slots"].tolist() == [wanted.frame.slots] * 4 + [3] * 4
    assert set(rounds["pulled"][2:4]) <= {1, wanted.frame.slots}  # all slots during the warm-up
    assert rounds["pulled"][4:].tolist() == [3] * 4
    recorded = pd.read_csv(tmp_path / "out" / "changes.csv")
    fields = [("frame.pull", "1"), ("frame.slots", "3"), ("strategy.name", '"greedy-shap"'), ("data.ues", "9")]
    assert sorted(zip(recorded["round"], recorded["field"], recorded["value"], strict=True)) == sorted(
        zip([2, 4, 4, 5], *zip(*fields, strict=True), strict=True)
    )
    assert server.now.heard.shape == (9,)
    assert not (tmp_path / "out" / REQUEST).exists()
    assert Scenario.load(tmp_path / "out" / "scenario.yaml") == wanted


def test_a_change_before_the_first_round_is_another_scenario(wanted: Scenario, tmp_path: Path) -> None:
    fields: dict[str, object] = {"frame.pull": 1, "strategy.name": "only-pull", "push.probability": 0.5}
    play(wanted, tmp_path / "changed", {0: fields}).finish()
    play(changed(wanted, fields), tmp_path / "other", {}).finish()
    pd.testing.assert_frame_equal(*(fedslot.load(tmp_path / name).rounds[EXACT] for name in ("changed", "other")))


@pytest.mark.parametrize("stop", [1, 2, 3, 5, 6])
def test_a_restart_makes_no_difference(stop: int, wanted: Scenario, tmp_path: Path) -> None:
    play(wanted, tmp_path / "whole", CHANGES).finish()
    killed = play(wanted, tmp_path / "out", CHANGES, until=stop)
    if stop in CHANGES:  # killed after it took the request, before the next checkpoint
        write_request(tmp_path / "out", CHANGES[stop])
        killed.announce()
    killed.folder.close()
    rest = {round: fields for round, fields in CHANGES.items() if round != stop}
    server = play(wanted, tmp_path / "out", rest, resume=True)
    server.finish()
    whole, parts = (fedslot.load(tmp_path / name) for name in ("whole", "out"))
    pd.testing.assert_frame_equal(whole.rounds[EXACT], parts.rounds[EXACT])
    np.testing.assert_array_equal(whole.model, parts.model)
    assert (tmp_path / "whole" / "changes.csv").read_text() == (tmp_path / "out" / "changes.csv").read_text()
    assert server.scenario == changed(
        changed(changed(wanted, CHANGES[2]), CHANGES[4]), CHANGES[5]
    )  # and not only the last one


@pytest.mark.parametrize(
    "fields",
    [
        {"training.epochs": 3},
        {"data.alpha": 0.5},
        {"data.ues": 2},
        {"frame.pull": 99},
        {"strategy.name": "centralized"},
        {"strategy.name": "no-such"},
        {"strategy.options": {"no": 1}},
        {"rounds": 99},
        {"seed": 3},
    ],
    ids=str,
)
def test_what_may_not_change_is_refused_and_the_training_goes_on(
    fields: dict[str, object], wanted: Scenario, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    server = play(wanted, tmp_path / "out", {1: fields})
    server.finish()
    assert caplog.text.count("the change is refused") == 1
    assert not (tmp_path / "out" / "changes.csv").exists()
    assert not (tmp_path / "out" / REQUEST).exists()
    assert len(fedslot.load(tmp_path / "out").rounds) == 8


@pytest.mark.parametrize("text", ["[", "- 1", "7", "frame: [", "{1: 2}", "frame.pull: 1\nframe.pull: 2"])
def test_a_request_that_is_none(text: str, wanted: Scenario, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    server = play(wanted, tmp_path / "out", {}, until=1)
    (tmp_path / "out" / REQUEST).write_text(text)
    assert server.announce() is not None
    server.finish()
    assert caplog.text.count("the change is refused") == 1


def test_another_strategy_has_its_default_options(wanted: Scenario) -> None:
    own = wanted.replace({"strategy": {"name": "merit-push", "options": {"attribute": "norm"}}})
    assert changed(own, {"strategy.name": "push-pull"}).strategy.options == {}
    assert changed(own, {"frame.pull": 1}).strategy == own.strategy
    with pytest.raises(InputError, match="epochs_by_strategy"):
        changed(own.replace({"training.epochs_by_strategy": {"push-pull": 2}}), {"strategy.name": "push-pull"})


def test_the_command(wanted: Scenario, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    server = play(wanted, out, {}, until=1)
    assert main(["change", str(out), "frame.pull=1", "strategy.name=greedy-shap"]) == 0
    assert main(["change", str(out), "frame.pull=0"]) == 0
    assert main(["change", str(out), "training.epochs=2"]) == 2
    assert "frame, push, strategy, data.ues may change" in capsys.readouterr().err
    server.announce()
    assert (server.scenario.frame.pull, server.scenario.strategy.name) == (0, "greedy-shap")
    server.folder.close()
    assert main(["change", str(tmp_path), "frame.pull=1"]) == 2
    assert "holds no run" in capsys.readouterr().err


def test_a_model_to_begin_with_belongs_to_the_folder(wanted: Scenario, tmp_path: Path) -> None:
    simulation = Simulation(wanted)

    def start(origin: str, resume: bool) -> ParameterServer:
        server = ParameterServer(wanted, simulation.model, simulation.held_out, out=tmp_path / "out", resume=resume)
        server.start(simulation.model.initial + 0.5, origin)
        return server

    server = start("a", resume=False)
    np.testing.assert_allclose(server.now.model - simulation.model.initial, 0.5, rtol=1e-5)
    server.close(server.announce(), {}, [])
    server.folder.close()
    start("a", resume=True).folder.close()
    with pytest.raises(RefusedError, match="the model to begin with has changed"):
        start("b", resume=True)


@dataclass(frozen=True)
class State:
    values: np.ndarray
    pairs: np.ndarray
    frames: int


def test_carry_keeps_what_has_a_place() -> None:
    old = State(np.arange(3.0), np.ones((3, 3)), 7)
    new = State(np.full(5, np.nan), np.zeros((5, 5)), 0)
    carried = carry(old, new)
    np.testing.assert_array_equal(carried.values, [0, 1, 2, np.nan, np.nan])
    assert (carried.pairs.sum(), carried.pairs.shape, carried.frames) == (9, (5, 5), 7)
    np.testing.assert_array_equal(carry(new, replace(old)).values, old.values)  # no place for five
    assert carry(np.arange(3), np.zeros(3)).tolist() == [0, 0, 0]  # of another type
