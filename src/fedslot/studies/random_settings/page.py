"""The page on random settings: in how many the recommended strategy is ahead, and the table of all, losses first."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from fedslot import RefusedError
from fedslot.studies.equal_slots.settings import Setting
from fedslot.studies.frame import render
from fedslot.studies.random_settings.folder import MOMENTS, RandomSettings
from fedslot.studies.random_settings.settings import BUDGET, CONTROL, DRAWING, FIRST_SEEDS, RECOMMENDED, SETTINGS

BEHIND = 0.01  # accuracy: as far as the recommended strategy may be behind


@dataclass(frozen=True)
class Row:
    """A setting. own, rival, best, control: accuracies at each moment, those of the best opponent of all among them."""

    setting: Setting
    own: tuple[float, ...]
    rival: tuple[float, ...]
    best: tuple[float, ...]
    control: float

    @property
    def leads(self) -> tuple[float, ...]:
        """By how much the recommended strategy is ahead of the best single opponent."""
        return tuple(own - rival for own, rival in zip(self.own, self.rival, strict=True))


def publish(study: RandomSettings) -> list[Path]:
    """Write `random-settings.md` of the finished settings, and return its path."""
    measured = study.measured()
    if not measured:
        raise RefusedError(f"{study.out} has no finished setting")
    tables = [table for _, table in measured.values()]
    means = mean_accuracies(tables)
    rival = str(means.mean(axis=1).idxmax())
    rows = [_row(setting, table, rival) for setting, table in measured.values()]
    rows.sort(key=lambda row: min(row.leads))
    leads = np.array([row.leads for row in rows])
    text = render(
        __package__,
        {"accuracy": "{:.3f}".format, "lead": lambda lead: f"{100 * lead:+.1f}"},
        rows=rows,
        rival=rival,
        means=sorted(means.iterrows(), key=lambda row: -row[1].mean()),
        own=[float(np.mean([row.own[moment] for row in rows])) for moment in range(len(MOMENTS))],
        control=float(np.mean([row.control for row in rows])),
        ahead=(leads > 0).sum(axis=0).tolist(),
        behind=(leads < -BEHIND).sum(axis=0).tolist(),
        budget=BUDGET,
        settings=SETTINGS,
        first_seed=FIRST_SEEDS.get(study.drawing, 0),
        drawing=study.drawing,
        page_drawing=DRAWING,
        recommended=RECOMMENDED,
        curves=f"curves/{RandomSettings.name}",
    )
    return study.write({}, {study.name: text})


def mean_accuracies(tables: list[pd.DataFrame]) -> pd.DataFrame:
    """Return the mean accuracy of each opponent over settings, at each moment; 0 counts before a first frame."""
    opponents = [table.drop(index=[RECOMMENDED, CONTROL]).fillna(0.0) for table in tables]
    return pd.concat(opponents).groupby(level=0, sort=False).mean()


def _row(setting: Setting, table: pd.DataFrame, rival: str) -> Row:
    known = table.fillna(0.0)
    others = known.drop(index=[RECOMMENDED, CONTROL])
    own, single, best = (tuple(row) for row in (known.loc[RECOMMENDED], known.loc[rival], others.max()))
    return Row(setting, own, single, best, known[MOMENTS[-1]][CONTROL])
