"""The files around the package agree with one another: one version, one set of requirements, commands that exist."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

import fedslot

REPOSITORY = Path(__file__).parent.parent
PROJECT = tomllib.loads((REPOSITORY / "pyproject.toml").read_text("utf-8"))["project"]
VERSION = PROJECT["version"]


def _text(name: str) -> str:
    return (REPOSITORY / name).read_text("utf-8")


def _yaml(name: str) -> Any:
    return YAML(typ="safe").load(_text(name))


def _pins(name: str) -> dict[str, str]:
    """Versions by package in a file of constraints."""
    lines = [line.split("#")[0].strip() for line in _text(name).splitlines()]
    pins = [line.split("==") for line in lines if line]
    assert all(len(pin) == 2 for pin in pins)
    return {package.lower().replace("_", "-"): version for package, version in pins}


def _requirements(lines: list[str]) -> dict[str, str | None]:
    """Lowest versions by package; None where there is none."""
    found = {}
    for line in lines:
        package, _, lowest = re.fullmatch(r"([\w.-]+)(?:\[[\w,]+\])?(>=([\d.]+)[,<\d.]*)?", line).groups()
        found[package.lower()] = lowest
    return {package: lowest for package, lowest in found.items() if package != "fedslot"}


def test_the_version_stands_in_one_place() -> None:
    """It is that of pyproject.toml; whatever repeats it for other programs must agree."""
    assert fedslot.__version__ == VERSION
    assert str(_yaml("CITATION.cff")["version"]) == VERSION
    newest = re.search(r"^## (\S+)", _text("CHANGELOG.md"), re.MULTILINE)[1]
    assert newest == VERSION


def test_the_citation_names_the_software_and_the_paper() -> None:
    citation = _yaml("CITATION.cff")
    assert citation["cff-version"] == "1.2.0"
    assert citation["license"] == PROJECT["license"]
    assert citation["keywords"] == PROJECT["keywords"]
    assert citation["authors"] == [{"name": "The fedslot contributors"}]
    [paper] = citation["references"]
    assert paper["title"] in " ".join(_text("README.md").split()).replace("*", "")
    assert [author["family-names"] for author in paper["authors"]] == ["Bui", "Shiraishi", "Popovski", "Pandey"]


def test_the_lowest_versions_are_those_of_the_ranges() -> None:
    pins, tested = _pins("constraints-lowest.txt"), _pins("constraints.txt")
    extras = PROJECT["optional-dependencies"]
    tools = _requirements(extras["test"])
    users = [line for name, lines in extras.items() if name not in {"test", "dev", "docs"} for line in lines]
    lowest = _requirements([*PROJECT["dependencies"], *users])
    assert len(lowest) > 20
    for package, version in lowest.items():
        wanted = tested["torch"] if package == "torch" else version
        assert _same(pins.pop(package), wanted), package
    assert all(package in tools or package in tested for package in pins), "versions that suit the lowest ones"


def _same(version: str, other: str) -> bool:
    """Whether versions are equal, as 2.0 and 2.0.0 are."""
    return version.removesuffix(".0").removesuffix(".0") == other.removesuffix(".0").removesuffix(".0")


def test_every_requirement_has_a_tested_version() -> None:
    tested = _pins("constraints.txt")
    lines = [*PROJECT["dependencies"], *(line for lines in PROJECT["optional-dependencies"].values() for line in lines)]
    for package in _requirements(lines):
        assert package in tested


def test_python_versions_agree() -> None:
    named = {line.rpartition(" ")[2] for line in PROJECT["classifiers"] if re.search(r"Python :: 3\.\d+$", line)}
    assert PROJECT["requires-python"] == f">={min(named, key=lambda version: int(version[2:]))}"
    jobs = _yaml(".github/workflows/ci.yml")["jobs"]
    setups = [step["with"]["python-version"] for step in jobs["all"]["steps"] if "with" in step]
    assert {*setups, *jobs["test"]["strategy"]["matrix"]["python"]} >= named


def test_the_workflow_calls_ci() -> None:
    workflow = _yaml(".github/workflows/ci.yml")
    assert [step["run"] for step in workflow["jobs"]["all"]["steps"] if "run" in step][-1] == ".ci/run"


@pytest.mark.parametrize("name", ["bug", "feature", "question"])
def test_forms_of_issues(name: str) -> None:
    form = _yaml(f".github/ISSUE_TEMPLATE/{name}.yml")
    assert {"name", "description", "body"} <= set(form)
    ids = [field["id"] for field in form["body"]]
    assert len(set(ids)) == len(ids)
    assert (name == "bug") == ("doctor" in ids)


def test_commands_of_make_exist() -> None:
    """Whatever CI, workflow, README and CONTRIBUTING call, and the first lines of the Makefile list."""
    targets = set(re.findall(r"^([a-z][\w-]*):", _text("Makefile"), re.MULTILINE))
    listed = _text("Makefile").partition(";")[0].replace("\n#", "").removeprefix("# make ").split(" | ")
    assert {name.strip() for name in listed} == targets - {"mosquitto", "chromium"}
    pages = [".ci/run", ".github/workflows/ci.yml", ".github/pull_request_template.md", "README.md", "CONTRIBUTING.md"]
    called = {name for page in pages for name in re.findall(r"(?:^|`|run: | {4})make ([a-z][\w-]*)", _text(page), re.M)}
    assert {"test", "lint", "package", "demo"} <= called <= targets
