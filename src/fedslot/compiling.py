"""Functions that Numba compiles. Compiled code does not hold Python's lock, so threads run it side by side."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar, cast

import numba

Function = TypeVar("Function", bound=Callable[..., Any])


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
    """Compile a function and all that it calls, and keep the code if there is a place for it."""
    try:
        quick = compiled(function, keep=True)
    except RuntimeError:  # no folder can be written
        return compiled(function)

    @wraps(function)
    def call(*arguments: Any) -> Any:
        try:
            return quick(*arguments)
        except OSError:  # no room there: it is compiled, but not kept
            return quick(*arguments)

    return cast(Function, call)
