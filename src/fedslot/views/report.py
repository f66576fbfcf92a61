"""The report of a comparison, one self-contained HTML file."""

from __future__ import annotations

import base64
from importlib import resources
from pathlib import Path

from jinja2 import Environment, StrictUndefined

from fedslot import __version__
from fedslot.experiments.comparison import Comparison
from fedslot.folders import write_atomically
from fedslot.views.comparison import FIGURES
from fedslot.views.style import save, style

CAPTIONS = {
    "accuracy_by_slots": "Test accuracy against slots spent by the clock. Bands: 95% confidence over seeds.",
    "accuracy_by_round": "Test accuracy against global rounds, which take more slots under some strategies.",
    "slots_to_targets": "Slots to target accuracies under both cost rules; a cross means that a run missed the target.",
    "on_the_air": "Mean use of the uplink slots of a frame.",
}


def write_report(comparison: Comparison, out: Path) -> Path:
    """Draw the figures (PNG and PDF), write `report.html` and return its path."""
    images = {}
    with style():
        for name, draw in FIGURES.items():
            png, _ = save(draw(comparison), out / "figures" / name)
            images[name] = base64.b64encode(png.read_bytes()).decode()
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.filters |= {
        "accuracy": lambda estimate: estimate.interval(".4f"),
        "slots": lambda estimate: estimate.interval(".0f") + estimate.fraction(" ({} of {} runs)"),
        "points": lambda estimate: estimate.percent.interval("+.2f"),
    }
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
