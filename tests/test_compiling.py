"""Where compiled code may be kept."""

import importlib.util

import numba
import pytest

from fedslot import compiling
from fedslot.compiling import kept


def test_code_that_can_be_kept_nowhere_is_compiled_all_the_same(monkeypatch):
    asked, njit = [], numba.njit

    def no_folder(function, cache=False, **options):
        asked.extend([cache] if function is _add else [])  # Numba itself compiles more
        if cache:
            raise RuntimeError("cannot cache function: no locator available")
        return njit(function, **options)

    monkeypatch.setattr(compiling.numba, "njit", no_folder)
    assert kept(_add)(1, 2) == 3
    assert asked == [True, False]


def test_code_that_has_no_room_where_it_is_kept_runs_all_the_same(monkeypatch):
    """On a full disk, say: the code is compiled, and saving it fails."""

    def full(self, *_):
        raise OSError("no space left on device")

    monkeypatch.setattr(numba.core.caching.FunctionCache, "save_overload", full)
    add = kept(_add)
    assert add(2, 3) == 5
    assert add(4, 5) == 9


def _add(a, b):
    return a + b


@pytest.fixture
def function(tmp_path, monkeypatch):
    """A function in a file of its own."""
    monkeypatch.setattr(numba.config, "CACHE_DIR", "")
    file = tmp_path / "adding.py"
    file.write_text("def add(a, b):\n    return a + b\n")
    spec = importlib.util.spec_from_file_location("adding", file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.add


@pytest.mark.parametrize("damage", ["nbi", "nbc"])
@pytest.mark.parametrize("rest", [0, 100])
def test_damaged_code_is_compiled_anew(function, tmp_path, damage, rest):
    assert kept(function)(1, 2) == 3
    (file,) = tmp_path.rglob(f"*.{damage}")
    file.write_bytes(file.read_bytes()[:rest])
    again = kept(function)
    assert again(3, 4) == 7
    assert again(5, 6) == 11


def test_code_is_kept_by_the_contents_of_its_sources(function, tmp_path, monkeypatch):
    """Not only of its own file, which is all that Numba looks at."""
    source = tmp_path / "source.txt"
    monkeypatch.setattr(compiling, "SOURCES", (source,))
    for text, folders in (("one", 1), ("one", 1), ("two", 2)):
        source.write_text(text)
        assert kept(function)(1, 2) == 3
        assert len({file.parent for file in tmp_path.rglob("*.nbi")}) == folders
    assert numba.config.CACHE_DIR == ""
