"""The pages on equal slots: the result in short, and all tables and figures of the settings that were measured."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from fedslot import Comparison, Result
from fedslot.studies.equal_slots.folder import EqualSlots
from fedslot.studies.equal_slots.measures import Measures, aims
from fedslot.studies.equal_slots.settings import (
    AGGREGATIONS,
    BUDGET,
    CONTROL,
    FIRST_SEED,
    PAPER,
    REFERENCE,
    SCHEDULERS,
    SETTINGS,
    SHORT,
    SLOW,
    WINNERS,
    Setting,
)
from fedslot.studies.frame import render
from fedslot.views import accuracy_by

DRAWN = (*WINNERS, *PAPER, SHORT, CONTROL)  # strategies in the figures
SHOWN = ("mnist-200", "cifar10-200", "airtime", "time")  # settings whose figures are the result
DRAWN_TIME = "20 slots"  # of training, in the figure of those that train for a time
MOMENTS = (420, 1000, 2100)  # slots after which accuracies are shown, and after all
SMOOTHING = 210  # slots, ten frames of full length
WAITS = (0, 5, 20, 100)  # slots
WAITING = ("mnist-200", "fashion-200", "cifar10-200")  # settings for which it is shown what waits would change


def publish(study: EqualSlots) -> list[Path]:
    """Write the figures (PNG and PDF) and both pages, and return the paths of all files."""
    comparisons, figures = study.comparisons(), {}
    for key, (setting, comparison) in comparisons.items():
        drawn = {name: _as_charged(runs, setting) for name, runs in comparison.runs.items() if _is_drawn(name, setting)}
        if drawn:
            figures[key] = partial(accuracy_by, replace(comparison, runs=drawn))
    return study.write(figures, write(comparisons))


def write(comparisons: Mapping[str, tuple[Setting, Comparison]]) -> dict[str, str]:
    """Return the pages as Markdown, by name: the result and the data."""
    filters: dict[str, Callable[..., str]] = {
        "accuracy": lambda estimate: estimate.text(".3f"),
        "slots": lambda estimate: estimate.text(".0f"),
        "percent": lambda estimate: estimate.text(".0f", factor=100),
        "lost": lambda estimate: estimate.text(".1f", factor=100),
        "ratio": lambda estimate: estimate.text(".1f"),
        "brief_percent": lambda estimate: (
            f"{100 * estimate.mean:{'.1f' if estimate.mean < 0.1 else '.0f'}}" if estimate.complete else ""
        ),
        # without its interval
        "brief": lambda estimate, form: f"{estimate.mean:{form}}" if estimate.complete else estimate.text(form),
    }
    measured = {key: Measures(*one) for key, one in comparisons.items() if _needed(one[0]) <= one[1].runs.keys()}
    beside = {
        key: one.beside(measured[one.setting.beside])
        for key, one in measured.items()
        if one.setting.beside in measured and {*one.comparison.seeds} & {*measured[one.setting.beside].comparison.seeds}
    }

    def group(name: str) -> dict[str, Measures]:
        return {key: one for key, one in measured.items() if one.setting.group == name}

    runs = [run for one in measured.values() for results in one.comparison.runs.values() for run in results]
    facts = {
        "main": group("main"),
        "robust": group("robust"),
        "table": group("table").get("table"),
        "airtime": {key: one for key, one in beside.items() if measured[key].setting.group == "airtime"},
        "time": {key: one for key, one in beside.items() if measured[key].setting.group == "time"},
        "own": measured,
        "aims": aims({key: one for key, one in group("main").items() if one.setting.budget == SETTINGS[key].budget}),
        "missing": _missing(comparisons),
        "older": [one.setting.title for one in measured.values() if one.is_older],
        "moments": lambda budget: [*(slots for slots in MOMENTS if slots < budget), budget],
        "smoothing": SMOOTHING,
        "waits": WAITS,
        "waiting": [measured[key] for key in WAITING if key in measured],
        "shown": [(key, measured[key]) for key in SHOWN if key in measured],
        "slow": SLOW,
        "control": CONTROL,
        "short": SHORT,
        "reference": REFERENCE,
        "winners": WINNERS,
        "schedulers": SCHEDULERS,
        "aggregations": AGGREGATIONS,
        "first_seed": FIRST_SEED,
        "budget": next((one.setting.budget for one in group("main").values()), BUDGET),
        "images": f"images/{EqualSlots.name}",
        "curves": f"curves/{EqualSlots.name}",
        "hours": sum(float(run.rounds["seconds"].sum()) for run in runs) / 3600,
    }
    templates = {EqualSlots.name: "result.md", f"{EqualSlots.name}-data": "data.md"}
    return {name: render(__package__, filters, template, **facts) for name, template in templates.items()}


def _is_drawn(name: str, setting: Setting) -> bool:
    """Return whether a strategy is in the figure of a setting."""
    if setting.group == "time":
        return DRAWN_TIME in name
    if setting.group == "airtime":
        return "{" not in name  # too long
    return setting.group == "main" and name in DRAWN


def _as_charged(runs: Sequence[Result], setting: Setting) -> list[Result]:
    """Return runs whose slots are those of the tables: all announced ones, or by the clock."""
    if setting.group == "main":
        return [*runs]
    return [replace(run, rounds=run.rounds.assign(slots_spent=run.rounds["cost_frame"].cumsum())) for run in runs]


def _needed(setting: Setting) -> set[str]:
    """Return the labels of the strategies without which a setting cannot be shown."""
    labels = setting.labels
    if setting.group == "airtime":
        return {labels[0]}
    return {*labels} & {*WINNERS, REFERENCE} if setting.group == "main" else {*labels}


def _missing(comparisons: Mapping[str, tuple[Setting, Comparison]]) -> list[str]:
    """Return the settings that were not measured, and those in which strategies are missing."""
    missing = [setting.title for key, setting in SETTINGS.items() if key not in comparisons]
    for setting, comparison in comparisons.values():
        if absent := [label for label in setting.labels if label not in comparison.runs]:
            missing.append(f"{setting.title}: also {', '.join(absent)}")
    return missing
