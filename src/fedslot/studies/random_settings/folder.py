"""The runs of settings drawn at random, and what was measured in those that are finished."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pandas as pd

from fedslot.experiments import Task
from fedslot.runs import RANDOM_SETTINGS
from fedslot.studies.curves import load_curves
from fedslot.studies.equal_slots.settings import Setting
from fedslot.studies.frame import StudyFolder
from fedslot.studies.random_settings.settings import DRAWING, SETTINGS, drawn, names

MOMENTS = (0.5, 1.0)  # shares of the budget after which accuracies are compared


@dataclass(frozen=True)
class RandomSettings(StudyFolder):
    """A drawing of settings; each has a file of curves."""

    name: ClassVar = "random-settings"
    kind: ClassVar = RANDOM_SETTINGS

    drawing: int = DRAWING

    def key(self, index: int) -> str:
        """Return the name of a setting's curves and runs."""
        return f"setting-{self.drawing}-{index:02d}"

    def tasks(self, index: int) -> dict[str, Task]:
        """Return the runs of a setting that have no curve yet, by the label of the strategy."""
        study = drawn(index, self.drawing).study()
        finished = load_curves(self.curves_file(self.key(index)))
        named = zip(
            [variant.label for variant in study.variants], study.tasks(self.out / "runs" / self.key(index)), strict=True
        )
        return {name: task for name, task in named if name not in finished}

    def measured(self) -> dict[int, tuple[Setting, pd.DataFrame]]:
        """Return the finished settings, with the accuracy of each strategy at each of the `MOMENTS`."""
        found = {}
        for index in range(SETTINGS):
            setting, runs = drawn(index, self.drawing), load_curves(self.curves_file(self.key(index)))
            if set(setting.labels) <= runs.keys():
                slots = setting.scenario().frame.slots
                rows = {
                    name: _at_moments(runs[label], setting.budget)
                    for label in setting.labels
                    for name in names(label, slots)
                }
                found[index] = (setting, pd.DataFrame.from_dict(rows, orient="index", columns=list(MOMENTS)))
        return found


def _at_moments(rounds: pd.DataFrame, budget: int) -> list[float]:
    """Return the test accuracy at each moment, by the clock; NaN before the first round."""
    ends, accuracies = rounds["cost_max"].cumsum().to_numpy(), rounds["test_accuracy"].to_numpy()
    last = [int(np.searchsorted(ends, share * budget, side="right")) - 1 for share in MOMENTS]
    return [float(accuracies[index]) if index >= 0 else np.nan for index in last]
