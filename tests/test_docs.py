"""The examples of the documentation run, and its links lead to files that exist."""

from __future__ import annotations

import doctest
import importlib
import pkgutil
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

import fedslot
from fedslot.experiments.study import Study

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
NEED_AN_EXTRA = (
    "fedslot.deployment.flower.",
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


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_examples_in_pages(page: Path) -> None:
    failed, _ = doctest.testfile(str(page), module_relative=False)
    assert failed == 0


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text("utf-8")):
        if "://" not in target:
            assert (page.parent / target).exists(), target


@pytest.mark.parametrize("file", [*PAGES, *sorted((ROOT / "examples").rglob("*.py"))], ids=lambda file: file.name)
def test_pages_and_examples_import_public_names_only(file: Path) -> None:
    """Names that `fedslot` or one of its packages exports, never a module inside them."""
    for module, names in re.findall(r"from (fedslot[\w.]*) import ([\w, ]+)", file.read_text("utf-8")):
        home = importlib.import_module(module)
        assert hasattr(home, "__path__"), f"{module} is no package"
        assert {name.strip() for name in names.split(",")} <= set(home.__all__), module
    assert not re.search(r"import fedslot\.", file.read_text("utf-8"))


def test_the_public_names_are_there() -> None:
    for name in fedslot.__all__:
        assert getattr(fedslot, name) is not None
    with pytest.raises(AttributeError):
        fedslot.nonsense  # type: ignore[attr-defined]  # noqa: B018


def test_the_study_in_the_pages_is_one(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "sweeps.md").read_text("utf-8")
    text = re.search(r"```yaml\n(.*?)```", page, re.DOTALL)
    assert text is not None
    (tmp_path / "study.yaml").write_text(text.group(1))
    study = Study.load(tmp_path / "study.yaml")
    assert (study.scenario.rounds, len(study.combinations), study.seeds) == (40, 6, 5)


def test_the_skeleton_of_a_strategy_runs(
    fedslot_command: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path
) -> None:
    page = (ROOT / "docs" / "strategies.md").read_text("utf-8")
    code = re.search(r"```python\n(.*?)```", page, re.DOTALL)
    assert code is not None
    (tmp_path / "mine.py").write_text(code.group(1))
    options = ["--strategies", "mine:Oldest,fedavg", "--seeds", "1", "--workers", "1", "-o", "rounds=3", "--out", "out"]
    done = fedslot_command("compare", "quickstart", *options, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "mine:Oldest" in done.stdout
