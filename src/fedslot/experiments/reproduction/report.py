"""Draw the figures and write the page of the reproduction."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from fedslot.experiments.reproduction import page
from fedslot.experiments.reproduction.experiments import Reproduction
from fedslot.experiments.reproduction.figures import DRAWINGS
from fedslot.folders import write_atomically
from fedslot.views.style import save, style


def publish(reproduction: Reproduction, figures: Sequence[str]) -> list[Path]:
    """Write the figures (PNG and PDF) and `reproduction.md`, and return the paths of all files."""
    files: list[Path] = []
    with style():
        for figure in figures:
            for name, draw in DRAWINGS[figure].items():
                files += save(draw(reproduction), reproduction.out / "images" / "reproduction" / name)
    text = reproduction.out / "reproduction.md"
    write_atomically(text, page.write(reproduction, figures))
    return [*files, text]
