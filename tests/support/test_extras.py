"""What happens where packages of extras are missing: they are hidden from a process of its own."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from collections.abc import Iterable
from pathlib import Path

import pytest

from fedslot.support.extras import EXTRAS

PROJECT = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text("utf-8"))["project"]
LABORATORY = EXTRAS["sim"].packages
HIDE = "import sys; sys.modules.update(dict.fromkeys(sys.argv.pop(1).split(',')));"


def without(modules: Iterable[str], script: str, *words: str) -> subprocess.CompletedProcess[str]:
    """Run a script in a process that cannot import the modules."""
    whole = [sys.executable, "-c", HIDE + script, ",".join(modules), *words]
    return subprocess.run(whole, capture_output=True, text=True, check=False)


def command(modules: Iterable[str], *words: str) -> subprocess.CompletedProcess[str]:
    return without(modules, "from fedslot.cli import main; sys.exit(main())", *words)


def test_the_table_is_that_of_the_project() -> None:
    declared = {
        extra: {re.match(r"[\w.-]+", line)[0] for line in lines if not line.startswith("fedslot[")}
        for extra, lines in PROJECT["optional-dependencies"].items()
    }
    for tools in ("browser", "docs", "test", "dev"):
        del declared[tools]
    assert {extra: set(known.packages.values()) for extra, known in EXTRAS.items()} == declared


@pytest.mark.parametrize(
    "words",
    [
        ["run", "quickstart"],
        ["show", "."],
        ["equal-slots", "irsa"],
        ["device", "--ue", "1", "--broker", "mqtt://127.0.0.1"],
    ],
    ids=" ".join,
)
def test_a_command_without_the_laboratory_says_what_to_install(words: list[str]) -> None:
    done = command(LABORATORY, *words)
    assert (done.returncode, done.stdout) == (2, "")
    assert re.fullmatch(r"error: this command needs \w+; type: pip install 'fedslot\[sim\]'\n", done.stderr)


@pytest.mark.parametrize("words", [["--help"], ["presets"], ["schema"], ["data", "list"]], ids=" ".join)
def test_commands_that_work_without_the_laboratory(words: list[str]) -> None:
    done = command(LABORATORY, *words)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_doctor_says_which_extras_are_missing() -> None:
    done = command([*LABORATORY, "paho", "numba"], "doctor")
    assert (done.returncode, done.stderr) == (0, "")
    for line in ("sim  .*missing: pip install 'fedslot\\[sim\\]'", "mqtt .*missing: pip install 'fedslot\\[mqtt\\]'"):
        assert re.search(line, done.stdout)
    assert re.search(r"^  digits +embedded", done.stdout, re.MULTILINE)
    assert "unknown" not in done.stdout


@pytest.mark.parametrize(
    ("module", "script", "last"),
    [
        ("torch", "import fedslot; fedslot.run('x')", "fedslot.run needs torch; type: pip install 'fedslot[sim]'"),
        ("pandas", "from fedslot import load", "fedslot.load needs pandas; type: pip install 'fedslot[sim]'"),
        (
            "paho",
            "import fedslot.mqtt; fedslot.mqtt.Device",
            "fedslot.deployment.mqtt.Device needs paho-mqtt; type: pip install 'fedslot[mqtt]'",
        ),
        (
            "flwr",
            "from fedslot.deployment.flower import SlotAccess",
            "fedslot.deployment.flower.SlotAccess needs flwr; type: pip install 'fedslot[flower]'",
        ),
    ],
)
def test_a_public_name_says_what_to_install(module: str, script: str, last: str) -> None:
    done = without([module], script)
    assert done.stderr.splitlines()[-1] == f"fedslot.support.errors.RefusedError: {last}"


def test_a_module_of_no_extra_keeps_its_traceback() -> None:
    done = command(["ruamel"], "presets")
    assert done.returncode == 1
    assert done.stderr.startswith("Traceback")


def test_without_numba_a_run_trains_by_torch() -> None:
    script = """
import fedslot
scenario = fedslot.Scenario.load("quickstart", {"rounds": 1, "data.ues": 10, "training.epochs": 1})
print(fedslot.run(scenario).summary()["engine"])
"""
    done = without(["numba"], script)
    assert done.stdout == "torch\n", done.stderr


def test_without_numba_compiled_training_is_refused() -> None:
    done = command(["numba"], "run", "quickstart", "-o", "training.engine=compiled", "--out", "never")
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "training.engine: 'compiled' is not allowed" in done.stderr
    assert "Numba is not installed (type: pip install 'fedslot[fast]')" in done.stderr
