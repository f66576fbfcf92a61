"""Threads: the libraries below use none of their own."""

from __future__ import annotations

import subprocess
import sys

CODE = """
from threadpoolctl import threadpool_info
from fedslot.threads import Threads

with Threads(2):
    import fedslot.learning.sgd_kernels
    print({pool["num_threads"] for pool in threadpool_info()})
"""


def test_products_of_compiled_code_use_one_thread() -> None:
    """Numba calls SciPy's BLAS, which must be limited even though Numba is loaded within a run."""
    found = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "{1}"
