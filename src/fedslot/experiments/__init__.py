"""Experiments of many runs.

study.py        cases of a scenario with the same seeds: names, checks and runs of comparisons and sweeps
variants.py     the study of a comparison: strategies with options, an aggregation or scenario fields of their own
grid.py         the study of a sweep: a grid of scenario fields and its combinations
measures.py     what is measured of the runs of a study, and its tables
comparison.py   several strategies under the same seeds
sweeps.py       all combinations of a grid
compression_loss.py  accuracy with and without compression, from a study with both
loading.py      the results in a folder: of a run, a comparison or a sweep
curves.py       curves of accuracy, and their mean and band
estimates.py    means over seeds with confidence intervals
tasks.py        a task: one run into a folder of its own
pool.py         many tasks: in this process, in several processes or on a Dask cluster
processes.py    tasks in several local processes
cluster.py      tasks, or the local training of one run, on a Dask cluster
"""

from fedslot.experiments.estimates import ACCURACY, ACCURACY_DIFFERENCE, LEAST, SLOTS, Estimate
from fedslot.experiments.pool import failure_of, run_all
from fedslot.experiments.tasks import Listener, Settings, Task, check
from fedslot.experiments.variants import Choice, VariantStudy, make_variants

__all__ = [
    "ACCURACY",
    "ACCURACY_DIFFERENCE",
    "LEAST",
    "SLOTS",
    "Choice",
    "Estimate",
    "Listener",
    "Settings",
    "Task",
    "VariantStudy",
    "check",
    "failure_of",
    "make_variants",
    "run_all",
]
