"""The report of a comparison, one self-contained HTML file."""

from __future__ import annotations

import base64
from functools import partial
from importlib import resources
from pathlib import Path

from jinja2 import Environment, StrictUndefined

from fedslot import __version__
from fedslot.data.sources import say_source
from fedslot.experiments.comparison import Comparison
from fedslot.experiments.estimates import LEAST, describe
from fedslot.runs.folders import write_atomically
from fedslot.runs.results import X
from fedslot.support.extras import how_to_install, is_installed
from fedslot.views.comparison import RULES, figures, with_bands
from fedslot.views.style import save, style
from fedslot.views.tables import (
    Column,
    accuracy_columns,
    difference_column,
    measured,
    privacy_columns,
    slots_columns,
    table_rows,
)


def captions(comparison: Comparison) -> dict[str, str]:
    """Return the captions of the figures; they speak of intervals only if there are enough seeds for them."""
    seeds, banded = len(comparison.seeds), with_bands(comparison)
    spread, ranges = "", "Slots to target accuracies, counted in two ways."
    if seeds >= LEAST:
        whose = "" if len(banded) == len(comparison.runs) else " of the best three"
        spread = f" Bands{whose}: 95% confidence over seeds, point by point (Student's t on the logit scale)."
        ranges = (
            "Mean slots to target accuracies, counted in two ways, with 95% intervals (Student's t on the log scale). "
            "Where some runs missed the target: how many reached it, and a hollow mark for the median over all runs."
        )
    elif seeds == 2:
        spread = " Thin lines: the two seeds; thick ones: their mean."
        ranges += " The dots are the two seeds."
    curves = {
        "slots": "slots spent, as far as all seeds go. Vertical line: "
        f"{comparison.horizon} slots, at which the tables compare",
        "seconds": "seconds on the air, as far as all seeds go",
        "joules": "the joules of all UEs, as far as all seeds go",
        "round": "global rounds, which take more slots under some strategies",
    }
    halves = "The right panel is a zoom on the shaded range of the left one."
    return {
        **{
            f"accuracy_by_{x}": f"Test {comparison.score.label} against {text}. {halves}{spread}"
            for x, text in curves.items()
        },
        "slots_to_targets": ranges,
        "on_the_air": "Mean use of the uplink slots of a frame.",
    }


def write_report(comparison: Comparison, out: Path, against: X = "slots") -> Path:
    """Draw the figures (PNG and PDF), write `report.html` and return its path.

    If Bokeh is installed, the report has the panels of the live view too. against: adds curves over seconds or joules.
    """
    images = {}
    with style():
        for name, draw in figures(against).items():
            if name == "slots_to_targets" and not comparison.targets:
                continue
            png, _ = save(draw(comparison), out / "figures" / name)
            images[name] = base64.b64encode(png.read_bytes()).decode()
    live = None
    if is_installed("bokeh"):
        from fedslot.views.live.embedded import embed

        live = embed(comparison)
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    template = environment.from_string(resources.files(__package__).joinpath("report.html").read_text("utf-8"))
    targets = comparison.targets
    score = comparison.score
    at_horizon = f"{score.label} at {comparison.horizon} slots{', percentage points' if score.share else ''}"
    slots_differences = [
        difference_column(comparison, f"slots to {target:g}", comparison.slots_measure(target), "+.0f", 1)
        for target in targets
    ]
    spent = Column("slots spent", measured(comparison, "slots_spent"))
    page = template.render(
        comparison=comparison,
        scenario=comparison.scenario,
        dataset=say_source(comparison.scenario.data.dataset),
        rule=RULES.get(comparison.scenario.rule_label, "by the cost rule of the scenario"),
        rows=partial(table_rows, comparison),
        results=[*accuracy_columns(comparison), *privacy_columns(comparison), *slots_columns(comparison), spent],
        differences=[difference_column(comparison, at_horizon), *slots_differences],
        sums=[Column(f"to {target:g}", measured(comparison, f"slots_to_{target:g}_sum")) for target in targets],
        images=images,
        captions=captions(comparison),
        seeds=len(comparison.seeds),
        kind=describe(len(comparison.seeds)),
        least=LEAST,
        version=__version__,
        live=live,
        how_to_install=how_to_install("live"),
    )
    file = out / "report.html"
    write_atomically(file, page)
    return file
