"""Threads: the libraries below use none of their own."""

from __future__ import annotations

import os
import subprocess
import sys

CODE = """
from threadpoolctl import threadpool_info
from fedslot.support.threads import Threads

with Threads(2):
    import fedslot.learning.sgd_kernels
    print({pool["num_threads"] for pool in threadpool_info()})
"""


def test_products_of_compiled_code_use_one_thread() -> None:
    """Numba calls SciPy's BLAS, which must be limited even though Numba is loaded within a run."""
    found = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "{1}"


NEW_THREADS = """
import ctypes
from threadpoolctl import threadpool_info
from fedslot.support.threads import Threads

with Threads(2) as threads:
    libraries = [ctypes.CDLL(pool["filepath"]) for pool in threadpool_info() if pool["user_api"] == "openmp"]
    assert libraries
    print({count for library in libraries for count in threads.map(lambda _: library.omp_get_max_threads(), range(8))})
"""


def test_new_threads_of_a_pool_use_one_thread_of_openmp() -> None:
    """OpenMP counts threads per calling thread; with more than one, MKL's products differ in their last digits."""
    environment = {**os.environ, "OMP_NUM_THREADS": "3"}
    command = [sys.executable, "-c", NEW_THREADS]
    found = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    assert found.stdout.strip() == "{1}"
