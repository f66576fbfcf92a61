"""Functions that Numba compiles. Compiled code does not hold Python's lock, so threads run it side by side."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from hashlib import sha256
from pathlib import Path
from pickle import UnpicklingError
from typing import Any, TypeVar, cast

import numba

Function = TypeVar("Function", bound=Callable[..., Any])

SOURCES = (Path(__file__), Path(__file__).parent / "learning" / "registers.py")
DAMAGED = (OSError, EOFError, UnpicklingError)  # what reading and writing kept code may end in


def compiled(function: Function, *, keep: bool = False) -> Function:
    """Compile a function when it is first called, and perhaps keep the code for later processes.

    Sums may be reordered, but what is not a number stays so.
    """
    fast = {"reassoc", "contract", "nsz"}
    return cast(Function, numba.njit(function, cache=keep, nogil=True, error_model="numpy", fastmath=fast))


def inlined(function: Function) -> Function:
    """Put a function's own lines where compiled code calls it, so that loops around it run over registers."""
    return cast(Function, numba.njit(function, inline="always"))


def kept(function: Function) -> Function:
    """Compile a function and all that it calls, and keep the code if there is a place for it.

    What it calls belongs into its own file, or into one of `SOURCES`: code is kept by the contents of these.
    """
    try:
        with _folder(function):
            quick = compiled(function, keep=True)
    except RuntimeError:  # no folder can be written
        return compiled(function)

    @wraps(function)
    def call(*arguments: Any) -> Any:
        nonlocal quick
        try:
            return quick(*arguments)
        except DAMAGED:
            try:
                return quick(*arguments)  # it is compiled, only that there was no room to keep it
            except DAMAGED:
                quick = compiled(function)
                return quick(*arguments)

    return cast(Function, call)


@contextmanager
def _folder(function: Callable[..., Any]) -> Iterator[None]:
    """Where code is kept meanwhile: in a folder of its own for each state of the sources, if the user names none."""
    config: Any = numba.config
    usual, own = config.CACHE_DIR, Path(function.__code__.co_filename)
    if not usual and own.is_file():
        digest = sha256(b"".join(file.read_bytes() for file in (own, *SOURCES))).hexdigest()[:16]
        config.CACHE_DIR = str(own.parent / "__pycache__" / digest)
    try:
        yield
    finally:
        config.CACHE_DIR = usual
