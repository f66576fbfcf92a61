"""Threads: the libraries below use none of their own."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

# Numba calls SciPy's BLAS, which must be limited even though Numba is loaded within a run
COMPILED = """
with Threads(2):
    import fedslot.learning.sgd_kernels
    print({pool["num_threads"] for pool in threadpool_info()})
"""
# OpenMP counts threads per calling thread; with more than one, MKL's products differ in their last digits
NEW_THREADS = """
import ctypes
with Threads(2) as threads:
    libraries = [ctypes.CDLL(pool["filepath"]) for pool in threadpool_info() if pool["user_api"] == "openmp"]
    assert libraries
    print({count for library in libraries for count in threads.map(lambda _: library.omp_get_max_threads(), range(8))})
"""


@pytest.mark.parametrize("code", [COMPILED, NEW_THREADS], ids=["compiled", "new threads"])
def test_libraries_use_one_thread(code: str) -> None:
    imports = "from threadpoolctl import threadpool_info; from fedslot.support.threads import Threads\n"
    command, environment = [sys.executable, "-c", imports + code], {**os.environ, "OMP_NUM_THREADS": "3"}
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    assert done.stdout.strip() == "{1}"
