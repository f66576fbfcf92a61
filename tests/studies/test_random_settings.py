"""Settings drawn at random: they can run and stay the same, and the page tells losses first."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from fedslot.cli import main
from fedslot.experiments.tasks import check
from fedslot.studies.curves import load_curves, save_curves
from fedslot.studies.random_settings import settings as drawing
from fedslot.studies.random_settings.folder import RandomSettings
from fedslot.studies.random_settings.page import publish
from fedslot.studies.random_settings.settings import (
    CONTROL,
    FIRST_SEEDS,
    RECOMMENDED,
    SETTINGS,
    drawn,
    names,
    opponents,
)
from fedslot.support.errors import InputError, RefusedError


@pytest.mark.parametrize("number", [0, 1, 2])
def test_every_setting_can_run(number: int) -> None:
    for index in range(SETTINGS):
        study = drawn(index, number).study()
        for scenario in study.scenarios:
            check(scenario, data=False)
            assert scenario.seed == index + FIRST_SEEDS.get(number, 0)


def test_a_drawing_is_always_the_same_and_no_two_are() -> None:
    first = "fashion-mnist, 77 UEs, 2116 labels, alpha 0.055, 15 epochs, lr 0.021, half noise 0.266, 5 slots, "
    assert drawn(0, 0).title == f"{first}0.47 arrivals a slot"
    assert drawn(7) == drawn(7)
    assert len({drawn(index, number).title for index in range(SETTINGS) for number in (0, 1, 2)}) == 3 * SETTINGS
    with pytest.raises(InputError, match="setting: 30 is not allowed; it must be from 0 to 29"):
        drawn(SETTINGS)


@pytest.mark.parametrize("slots", [5, 12])
def test_all_settings_have_the_same_opponents_by_name(slots: int) -> None:
    called = [name for label in opponents(slots) for name in names(label, slots)]
    assert len(called) == len(set(called)) == 9


def _curves(study: RandomSettings, index: int, own: tuple[float, float], others: float) -> None:
    """Store runs of two rounds, after half and after all slots; a strategy takes the whole budget for its first."""
    setting = drawn(index)

    def rounds(half: float, late: float) -> pd.DataFrame:
        costs = {"cost_max": setting.budget // 2, "cost_frame": 0, "cost_sum": 0, "seconds": 1.0}
        return pd.DataFrame({"test_accuracy": [half, late], **costs})

    runs = {label: rounds(others, others) for label in setting.labels}
    runs[RECOMMENDED], runs[CONTROL] = rounds(*own), rounds(0.7, 0.7)
    late = next(label for label in setting.labels if label.startswith("fedavg+average"))
    runs[late] = runs[late].assign(cost_max=setting.budget, test_accuracy=0.9).iloc[:1]
    save_curves(runs, study.curves_file(study.key(index)))


def test_the_page_of_hand_made_runs(tmp_path: Path) -> None:
    study = RandomSettings(tmp_path)
    with pytest.raises(RefusedError, match="has no finished setting"):
        publish(study)
    _curves(study, 3, own=(0.85, 0.95), others=0.8)
    _curves(study, 5, own=(0.75, 0.792), others=0.8)
    _curves(study, 6, own=(0.81, 0.81), others=0.8)
    (file,) = publish(study)
    page = file.read_text("utf-8")
    assert "is ahead of it in 2 of 3 settings after half of the slots,\nand in 2 after all." in page
    assert "more than one point behind in 1 and 0" in page
    order = [page.index(drawn(index).title) for index in (5, 6, 3)]
    assert order == sorted(order), "losses first"
    assert f"| {drawn(5).title} | -5.0 | -0.8 | 0.750, 0.792 | 0.800, 0.800 | 0.800, 0.900 | 0.700 |" in page
    slow = names(next(label for label in opponents(5) if label.startswith("fedavg+average")), 5)[0]
    assert f"| {slow} | 0.000 | 0.900 |" in page, "before its first frame it has learned nothing"


def test_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """On one of the settings of digits, with fewer slots and opponents."""
    index = next(index for index in range(SETTINGS) if drawn(index).overrides["data.dataset"] == "digits")
    monkeypatch.setattr(drawing, "BUDGET", 60)
    monkeypatch.setattr(drawing, "opponents", lambda slots: opponents(slots)[:1])
    words = ["random-settings", str(index), "--workers", "1", "--out", str(tmp_path / "out")]
    assert main(words) == 0
    page = (tmp_path / "out" / "random-settings.md").read_text("utf-8")
    assert drawn(index).title in page
    study = RandomSettings(tmp_path / "out")
    curves = study.curves_file(study.key(index))
    assert set(load_curves(curves)) == set(drawn(index).labels)
    capsys.readouterr()
    assert main(words) == 0, "nothing is left to compute"
    assert (tmp_path / "out" / "random-settings.md").read_text("utf-8") == page
    assert main(["random-settings", "30", "--out", str(tmp_path / "no")]) == 2
    assert "error: setting: 30 is not allowed" in capsys.readouterr().err
    assert not (tmp_path / "no").exists()
