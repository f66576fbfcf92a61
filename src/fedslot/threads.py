"""Several threads, one result: independent pieces of work, each computed by one thread of PyTorch.

PyTorch's own threads split single operations, and with them the order in which numbers are added; so results
differ in their last digits with the number of threads, and small operations gain nothing. Here the pieces
are the same for any number of threads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

import torch
from threadpoolctl import threadpool_limits

A = TypeVar("A")
B = TypeVar("B")

_pool: ThreadPoolExecutor | None = None


@contextmanager
def threads(count: int) -> Iterator[None]:
    """Use so many threads for what is computed inside."""
    global _pool
    before, outer = torch.get_num_threads(), _pool
    torch.set_num_threads(1)
    _pool = own = ThreadPoolExecutor(count) if count > 1 else None
    try:
        with threadpool_limits(1):  # NumPy's and SciPy's too: several runs at a time would be in each other's way
            yield
    finally:
        if own is not None:
            own.shutdown()
        _pool = outer
        torch.set_num_threads(before)


def each(function: Callable[[A], B], pieces: Iterable[A]) -> list[B]:
    """Apply a function to independent pieces of work, in order."""
    return list(map(function, pieces) if _pool is None else _pool.map(function, pieces))
