"""The report of a comparison, one self-contained HTML file."""

from __future__ import annotations

import base64
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING

from jinja2 import Environment, StrictUndefined

from fedslot import __version__
from fedslot.experiments.comparison import Comparison
from fedslot.experiments.estimates import LEAST, describe
from fedslot.runs.folders import write_atomically
from fedslot.support.extras import how_to_install, is_installed
from fedslot.views.comparison import FIGURES, with_bands
from fedslot.views.style import save, style

if TYPE_CHECKING:
    from fedslot.views.live.embedded import Embedded


def captions(comparison: Comparison) -> dict[str, str]:
    """Return the captions of the figures; they speak of intervals only if there are enough seeds for them."""
    seeds, banded = len(comparison.seeds), with_bands(comparison)
    spread, ranges = "", "Slots to target accuracies under both cost rules."
    if seeds >= LEAST:
        whose = "" if len(banded) == len(comparison.runs) else " of the best three"
        spread = f" Bands{whose}: 95% confidence over seeds, point by point (Student's t on the logit scale)."
        ranges = (
            "Mean slots to target accuracies under both cost rules, with 95% intervals (Student's t on the log scale). "
            "Where some runs missed the target: how many reached it, and a hollow mark for the median over all runs."
        )
    elif seeds == 2:
        spread = " Thin lines: the two seeds; thick ones: their mean."
        ranges += " The dots are the two seeds."
    halves = " The right panel shows the shaded heights of the left one."
    return {
        "accuracy_by_slots": "Test accuracy against slots spent, as far as all seeds go. Vertical line: "
        f"{comparison.horizon} slots, at which the tables compare." + halves + spread,
        "accuracy_by_round": "Test accuracy against global rounds, which take more slots under some strategies."
        + halves
        + spread,
        "slots_to_targets": ranges,
        "on_the_air": "Mean use of the uplink slots of a frame.",
    }


def write_report(comparison: Comparison, out: Path) -> Path:
    """Draw the figures (PNG and PDF), write `report.html` and return its path.

    If Bokeh is installed, the report has the panels of the live view too.
    """
    images = {}
    with style():
        for name, draw in FIGURES.items():
            png, _ = save(draw(comparison), out / "figures" / name)
            images[name] = base64.b64encode(png.read_bytes()).decode()
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.filters |= {
        "accuracy": lambda estimate: estimate.text(".3f"),
        "slots": lambda estimate: estimate.text(".0f"),
        "points": lambda estimate: estimate.text("+.2f", factor=100),
        "slot_difference": lambda estimate: estimate.text("+.0f"),
    }
    template = environment.from_string(resources.files(__package__).joinpath("report.html").read_text("utf-8"))
    page = template.render(
        comparison=comparison,
        scenario=comparison.scenario,
        estimates=comparison.estimates(),
        differences=comparison.differences(),
        slot_differences=[comparison.differences(comparison.slots_measure(target)) for target in comparison.targets],
        images=images,
        captions=captions(comparison),
        seeds=len(comparison.seeds),
        kind=describe(len(comparison.seeds)),
        least=LEAST,
        version=__version__,
        live=_panels(comparison),
        how_to_install=how_to_install("live"),
    )
    file = out / "report.html"
    write_atomically(file, page)
    return file


def _panels(comparison: Comparison) -> Embedded | None:
    """Return the interactive panels; None where Bokeh is not installed."""
    if not is_installed("bokeh"):
        return None
    from fedslot.views.live.embedded import embed

    return embed(comparison)
