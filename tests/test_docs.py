"""The examples in docstrings run, and pages and examples use public names only."""

from __future__ import annotations

import doctest
import importlib
import pkgutil
import re
from pathlib import Path

import pytest

import fedslot

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
NEED_AN_EXTRA = (
    "fedslot.deployment.flower.",
    "fedslot.deployment.metrics",
    *(f"fedslot.deployment.mqtt.{name}" for name in ("broker", "device", "serving", "training")),
)
MODULES = [
    module.name
    for module in pkgutil.walk_packages(fedslot.__path__, "fedslot.")
    if "__main__" not in module.name and not module.name.startswith(NEED_AN_EXTRA)
]


@pytest.mark.parametrize("name", MODULES)
def test_examples_in_docstrings(name: str) -> None:
    failed, _ = doctest.testmod(importlib.import_module(name))
    assert failed == 0


@pytest.mark.parametrize("file", [*PAGES, *sorted((ROOT / "examples").rglob("*.py"))], ids=lambda file: file.name)
def test_pages_and_examples_import_public_names_only(file: Path) -> None:
    """Names that `fedslot` or one of its packages exports, never a module inside them."""
    for module, names in re.findall(r"from (fedslot[\w.]*) import ([\w, ]+)", file.read_text("utf-8")):
        home = importlib.import_module(module)
        assert hasattr(home, "__path__"), f"{module} is no package"
        assert {name.strip() for name in names.split(",")} <= set(home.__all__), module
    assert not re.search(r"import fedslot\.", file.read_text("utf-8"))
