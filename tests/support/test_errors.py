"""Errors suggest the nearest name wherever a name is given, and only a near one."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from fedslot import InputError, Scenario, compare, make_model, run
from fedslot.cli import main
from fedslot.data.sources import load as load_data
from fedslot.studies.equal_slots.settings import chosen
from fedslot.support.errors import nearest

COMMANDS = [
    (["rnu"], "run"),
    (["data", "fecth"], "fetch"),
    (["run", "quickstart", "--ressume"], "--resume"),
    (["run", "quikstart"], "quickstart"),
    (["run", "quickstart", "-o", "strateg.name=ucb"], "strategy.name"),
    (["run", "quickstart", "--track", "tensorbord"], "tensorboard"),
    (["sweep", "quickstart", "--grid", "frame.pul=1,2"], "frame.pull"),
    (["compare", "quickstart", "--strategies", "fedavg,push-pul"], "push-pull"),
    (["compare", "quickstart", "--strategies", "fedavg+fedadm"], "fedadam"),
    (["plan", "--channel", "crdas"], "crdsa"),
    (["presets", "papr"], "paper"),
    (["init", "mine.yaml", "--from", "papr"], "paper"),
    (["data", "fetch", "mnits"], "mnist"),
    (["data", "path", "mnits"], "mnist"),
    (["equal-slots", "fashion-20"], "fashion-200"),
    (["reproduce", "fg5"], "fig5"),
]


@pytest.mark.parametrize(("words", "meant"), COMMANDS)
def test_commands_suggest_the_nearest_name(
    words: list[str], meant: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(words) == 2
    assert f"; did you mean {meant}?" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("field", "value", "meant"),
    [
        ("strategy.name", "greedy-shapley", "greedy-shap"),
        ("aggregation.name", "FedYogi", "fedyogi"),
        ("push.channel", "colision", "collision"),
        ("valuation.name", "krigging", "kriging"),
        ("training.model", "MLP", "mlp"),
        ("data.dataset", "cifar-10", "cifar10"),
        ("cost_rule", "frames", "frame"),
        ("valuation.utility", "accurracy", "accuracy"),
        ("strategy.options.explorations", 2.0, "exploration"),
        ("aggregation.options.lrr", 2.0, "lr"),
        # fields: a wrong section, a wrong name, none, and a section in place of a field
        ("strateg.memory", 0.5, "strategy.memory"),
        ("fleet.slots", 3, "frame.slots"),
        ("frame.slotz", 3, "frame.slots"),
        ("lr", 0.1, "training.lr"),
        ("epoch", 3, "training.epochs"),
        ("stategy", {"name": "ucb", "memory": 0.5}, "strategy"),
        ("fleet.computing.shap", 2.0, "fleet.computing.shape"),
    ],
)
def test_scenarios_suggest_the_nearest_name(field: str, value: object, meant: str) -> None:
    fields = {"strategy.name": "ucb", "aggregation.name": "fedadam", "rounds": 1, field: value}
    with pytest.raises(InputError, match=rf"did you mean {meant}\?$"):
        run(Scenario.load("quickstart", fields))


@pytest.mark.parametrize(
    ("call", "meant"),
    [
        (lambda: run("quikstart"), "quickstart"),
        (lambda: compare("quickstart", ["ubc"]), "ucb"),
        (lambda: chosen(["many_ues"]), "many-ues"),
        (lambda: load_data("fashion_mnist"), "fashion-mnist"),
        (lambda: make_model(Scenario(training={"model": "cnnn"}), load_data("digits")), "cnn"),
    ],
)
def test_python_suggests_the_nearest_name(call: Callable[[], object], meant: str) -> None:
    with pytest.raises(InputError, match=rf"did you mean {meant}\?"):
        call()


def test_names_of_the_package_are_suggested_too() -> None:
    script = "import fedslot; fedslot.comparee"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.stderr.endswith("Did you mean: 'compare'?\n")


@pytest.mark.parametrize(
    ("name", "known"),
    [("--bogus", ["--out", "--force", "--open"]), ("qqqq", ["ucb"]), ("", ["ucb"]), ("ucb", []), ("--", ["--x"])],
)
def test_names_that_are_not_near_are_not_suggested(name: str, known: list[str]) -> None:
    assert nearest(name, known) is None
    assert nearest("UCB", ["fedavg", "ucb"]) == "ucb"
