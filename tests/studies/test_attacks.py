"""The study of attacks: every run is possible, the page tells losses first, and the command continues."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from fedslot.cli import main
from fedslot.experiments.tasks import check
from fedslot.studies.attacks import settings as chosen_here
from fedslot.studies.attacks.folder import AttackStudy
from fedslot.studies.attacks.page import publish
from fedslot.studies.attacks.settings import ATTACKS, RECOMMENDED, SETTINGS, STRATEGIES, TURN, TURN_FULL
from fedslot.studies.curves import load_curves, save_curves
from fedslot.support.errors import RefusedError


def test_every_run_is_possible_and_liars_turn_while_there_are_rounds(tmp_path: Path) -> None:
    for key, setting in SETTINGS.items():
        tasks = AttackStudy(tmp_path).tasks(key, ATTACKS, seeds=3)
        assert len(tasks) == len(ATTACKS) * len(STRATEGIES) * (1 if key == "fashion-mnist" else 3)
        assert len({task.folder for task in tasks.values()}) == len(tasks)
        for name, task in tasks.items():
            check(task.scenario, data=False)
            attack = task.scenario.fleet.attack
            assert (attack is None) == name.startswith("none: ")
            if attack is not None and attack.from_round:
                short = task.scenario.strategy.name in ("merit-push", "scout")
                assert attack.from_round == (TURN if short else TURN_FULL)
                assert short or attack.from_round < setting.budget // (1 + task.scenario.frame.slots) / 2


def test_published_runs_are_not_repeated() -> None:
    study = AttackStudy(Path(__file__).parents[2] / "docs" / "explanation")
    assert study.tasks("digits", ATTACKS, seeds=3) == {}
    assert study.tasks("mnist", ATTACKS, seeds=1) == {}


def _runs(accuracies: dict[str, float], others: float, success: float = math.nan) -> dict[str, pd.DataFrame]:
    """Curves of a round for each attack and strategy; accuracies: of the recommended one, by attack."""
    costs = {"cost_max": 5, "cost_frame": 5, "cost_sum": 9, "seconds": 1.0}
    curves = {}
    for title, own in accuracies.items():
        for name in STRATEGIES:
            accuracy = own if name == RECOMMENDED else others
            row = {"test_accuracy": accuracy, **costs, "attack_success": success if title == "backdoor" else math.nan}
            curves[f"{title}: {name}, seed 20"] = pd.DataFrame([row])
    return curves


def test_the_page_of_hand_made_runs(tmp_path: Path) -> None:
    study = AttackStudy(tmp_path)
    with pytest.raises(RefusedError, match="no attack that all strategies have met"):
        publish(study)
    accuracies = {"none": 0.9, "free riders": 0.885, "backdoor": 0.91, "sign flips": math.nan, "label flips": 0.8}
    save_curves(_runs(accuracies, others=0.88, success=0.123), study.curves_file("digits"))
    runs = load_curves(study.curves_file("digits"))
    runs[f"gaussian x10: {RECOMMENDED}, seed 20"] = runs[f"none: {RECOMMENDED}, seed 20"]  # others have not met it
    save_curves(runs, study.curves_file("digits"))
    (file,) = publish(study)
    page = file.read_text("utf-8")
    assert "The first is met by 1 of 4 attacks, the second by 2." in page
    lines = [
        line for line in page.splitlines() if line.startswith(("| sign flips ", "| label flips ", "| free riders "))
    ]
    assert [line.split(" |")[0] for line in lines] == ["| sign flips", "| label flips", "| free riders"], "losses first"
    assert lines[0].startswith("| sign flips | 0.100 (-80.0)* | 0.880 (+0.0) |"), "a run that diverged guesses"
    assert lines[2].endswith("| met | met |")
    assert "| backdoor | 12% | 12% |" in page
    assert "gaussian x10" not in page.partition("What was measured")[2]


def test_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """On digits, with few slots; a run that diverges is a result, and is not repeated."""
    monkeypatch.setitem(chosen_here.SETTINGS, "digits", replace(SETTINGS["digits"], budget=110))
    out, attack = tmp_path / "out", "sign flips x10"
    words = ["attacks", "digits", "--seeds", "1", "--attack", attack, "--workers", "1", "--out", str(out)]
    assert main(words) == 0
    page = (out / "attacks.md").read_text("utf-8")
    curves = load_curves(AttackStudy(out).curves_file("digits"))
    assert set(curves) == {f"{title}: {name}, seed 20" for title in ("none", attack) for name in STRATEGIES}
    lost = [name for name, rounds in curves.items() if rounds["test_accuracy"].isna().iloc[-1]]
    assert f"{attack}: merit-push+median, seed 20" in lost
    assert page.count(")*") == len(lost)
    capsys.readouterr()
    assert main(words) == 0
    assert "round" not in capsys.readouterr().err, "nothing is left to compute"
    assert main(["attacks", "digits", "--attack", "noise", "--out", str(tmp_path / "no")]) == 2
    assert "error: attack: 'noise' is not allowed; it must be one of none, sign flips" in capsys.readouterr().err
    assert not (tmp_path / "no").exists()
