"""Where compiled code may be kept."""

import numba

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
