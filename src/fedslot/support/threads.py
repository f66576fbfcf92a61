"""Several threads, one result: independent pieces of work, each computed by one thread of PyTorch.

PyTorch's own threads split single operations, and with them the order in which numbers are added; so results differ in
their last digits with the number of threads, and small operations gain nothing. Here the pieces are the same for any
number of threads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Self, TypeVar

import scipy.linalg.cython_blas  # noqa: F401 - Numba's np.dot calls it; only a loaded BLAS can be limited to a thread
import torch
from threadpoolctl import threadpool_limits

A = TypeVar("A")
B = TypeVar("B")


class Threads:
    """A pool of threads for a `with` block, in which PyTorch, NumPy and SciPy use no threads of their own.

    >>> with Threads(2) as threads:
    ...     threads.map(abs, [-1, 2, -3])
    [1, 2, 3]
    """

    def __init__(self, count: int = 1) -> None:
        self.count = count
        self._pool: ThreadPoolExecutor | None = None

    def __enter__(self) -> Self:
        self._torch_threads = torch.get_num_threads()
        torch.set_num_threads(1)
        self._limits = threadpool_limits(1)
        # OpenMP counts threads per calling thread: the first products of a new one would use all cores
        self._pool = ThreadPoolExecutor(self.count, initializer=_use_one_thread) if self.count > 1 else None
        return self

    def __exit__(self, *error: object) -> None:
        if self._pool is not None:
            self._pool.shutdown()
            self._pool = None
        self._limits.restore_original_limits()
        torch.set_num_threads(self._torch_threads)

    def map(self, function: Callable[[A], B], pieces: Iterable[A]) -> list[B]:
        """Apply a function to independent pieces of work, in order."""
        return list(map(function, pieces) if self._pool is None else self._pool.map(function, pieces))


def _use_one_thread() -> None:
    torch.set_num_threads(1)


ONE_THREAD = Threads()
"""Outside of a `with` block: everything in the calling thread."""
