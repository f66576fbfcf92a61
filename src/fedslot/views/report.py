"""The report of a comparison: one HTML file with everything in it, which opens without a network."""

from __future__ import annotations

import base64
import math
from importlib import resources
from pathlib import Path

from jinja2 import Environment, StrictUndefined

from fedslot import __version__
from fedslot.experiments.comparison import Comparison, Estimate
from fedslot.records import write_atomically
from fedslot.views.comparison import FIGURES
from fedslot.views.style import save, style

CAPTIONS = {
    "accuracy_by_slots": "Test accuracy against slots spent by the clock. Bands: 95% confidence over seeds.",
    "accuracy_by_round": "Test accuracy against global rounds; rounds of different strategies cost different times.",
    "slots_to_targets": "Slots until target accuracies under both cost rules; a cross where a run fell short.",
    "on_the_air": "What the uplink slots of an average frame carried.",
}


def write_report(comparison: Comparison, out: Path) -> Path:
    """Draw the figures (PNG and PDF) and write `report.html` beside them; returns its path."""
    images = {}
    with style():
        for name, draw in FIGURES.items():
            png, _ = save(draw(comparison), out / "figures" / name)
            images[name] = base64.b64encode(png.read_bytes()).decode()
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.filters |= {"accuracy": _accuracy, "slots": _slots, "points": _points}
    template = environment.from_string(resources.files(__package__).joinpath("report.html").read_text("utf-8"))
    page = template.render(
        comparison=comparison,
        scenario=comparison.scenario,
        estimates=comparison.estimates(),
        differences=comparison.differences(),
        images=images,
        captions=CAPTIONS,
        version=__version__,
    )
    file = out / "report.html"
    write_atomically(file, page)
    return file


def _accuracy(estimate: Estimate) -> str:
    return f"{estimate.mean:.4f}" + _interval(estimate, ".4f")


def _slots(estimate: Estimate) -> str:
    if estimate.count == 0:
        return "never"
    partly = f" ({estimate.count} of {estimate.total} runs)" if estimate.count < estimate.total else ""
    return f"{estimate.mean:.0f}" + _interval(estimate, ".0f") + partly


def _points(estimate: Estimate) -> str:
    percent = Estimate(100 * estimate.mean, 100 * estimate.low, 100 * estimate.high, estimate.count, estimate.total)
    return f"{percent.mean:+.2f}" + _interval(percent, "+.2f")


def _interval(estimate: Estimate, form: str) -> str:
    return "" if math.isnan(estimate.low) else f" [{estimate.low:{form}}, {estimate.high:{form}}]"
