"""The wheel in an empty environment without the repository; `make package` builds what is tested here."""

from __future__ import annotations

import json
import re
import subprocess
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from wheel import REPOSITORY, VERSION, WHEEL, built, clean_environment, install

Command = Callable[..., subprocess.CompletedProcess[str]]


def _tracked(folder: str = ".") -> set[str]:
    words = ["git", "ls-files", "-z", folder]
    done = subprocess.run(words, cwd=REPOSITORY, capture_output=True, text=True, check=True)
    return {name for name in done.stdout.split("\0") if name and (REPOSITORY / name).exists()}


def test_the_wheel_has_the_package_and_nothing_else() -> None:
    with zipfile.ZipFile(built(WHEEL)) as wheel:
        files = set(wheel.namelist())
    package = {name for name in files if not name.startswith(f"fedslot-{VERSION}.dist-info/")}
    assert {f"src/{name}" for name in package} == _tracked("src/fedslot")
    assert f"fedslot-{VERSION}.dist-info/licenses/LICENSE" in files


def test_the_source_distribution_has_what_it_needs_and_nothing_odd() -> None:
    """The wheel was built from it, so that nothing is missing."""
    top = f"fedslot-{VERSION}/"
    with tarfile.open(built(f"fedslot-{VERSION}.tar.gz")) as source:
        files = {member.name.removeprefix(top) for member in source.getmembers() if member.isfile()}
    made = {"PKG-INFO", "setup.cfg"} | {name for name in files if name.startswith("src/fedslot.egg-info/")}
    ours = files - made
    assert ours <= _tracked()
    assert _tracked("src") <= ours
    beside = {name for name in ours if not name.startswith("src/")}
    assert beside == {
        "CHANGELOG.md", "CITATION.cff", "LICENSE", "MANIFEST.in", "README.md", "constraints.txt", "pyproject.toml",
    }  # fmt: skip


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The scripts of an environment with nothing but the wheel and its laboratory."""
    # the source files that are used are compiled when they are; compiling all of PyTorch takes longer
    return install(tmp_path_factory.mktemp("empty") / "venv", "sim", "--no-compile")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The current folder of all commands, far from the repository."""
    return tmp_path_factory.mktemp("work")


@pytest.fixture(scope="module")
def command(installed: Path, folder: Path) -> Command:
    """A function that runs a program of the empty environment, by default `fedslot`."""

    def run(*words: str, program: str = "fedslot", code: int = 0) -> subprocess.CompletedProcess[str]:
        environment = clean_environment() | {"FEDSLOT_DATA": str(folder / "data")}
        words = (str(installed / program), *words)
        done = subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == code, done.stdout + done.stderr
        return done

    return run


def _python(command: Command, script: str) -> str:
    return command("-c", script, program="python").stdout


def test_the_environment_is_empty_of_the_repository(command: Command, installed: Path) -> None:
    told = json.loads(_python(command, "import fedslot, json, sys; print(json.dumps([fedslot.__file__, *sys.path]))"))
    assert Path(told[0]).is_relative_to(installed.parent)
    assert not any(str(REPOSITORY) in path for path in told)
    assert Path(told[0]).with_name("py.typed").is_file()
    assert not any(re.search("^(pytest|bokeh|distributed|mypy)$", name) for name in _packages(command))


def _packages(command: Command) -> list[str]:
    script = "from importlib.metadata import distributions; print(*(found.name for found in distributions()))"
    return _python(command, script).split()


def test_versions_agree(command: Command) -> None:
    assert command("--version").stdout == f"fedslot {VERSION}\n"
    assert f"fedslot  {VERSION}" in command("doctor").stdout


def test_what_a_newcomer_types(command: Command, folder: Path) -> None:
    assert "quickstart" in command("presets").stdout
    assert command("init").stdout.startswith("mine.yaml is written")
    told = command("run", "mine.yaml", "-o", "rounds=3", "--out", "run").stdout
    assert "after 3 rounds" in told
    assert "3 of 3 rounds" in command("show", "run").stdout
    assert json.loads(command("plan", "--slots", "4", "--contenders", "3", "--json").stdout)
    assert "pip install 'fedslot[live]'" in command("watch", "run", code=2).stderr
    assert "fedslot init" in command("run", code=2).stderr


def test_a_comparison_with_its_report(command: Command, folder: Path) -> None:
    words = ["--seeds", "1", "--strategies", "push-pull,fedavg", "-o", "rounds=3", "--out", "study"]
    assert "report: study/report.html" in command("compare", "quickstart", *words).stdout
    report = (folder / "study" / "report.html").read_text("utf-8")
    assert "push-pull" in report
    assert "data:image/" in report or "<svg" in report
    assert (folder / "study" / "figures" / "accuracy_by_slots.png").is_file()
