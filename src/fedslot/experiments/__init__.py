"""Experiments of many runs.

comparison.py   several strategies under the same seeds
variants.py     strategies with options, an aggregation or scenario fields of their own
study.py        a grid of scenario fields and its combinations
sweeps.py       all combinations of a study, with one table of all runs
loading.py      the results in a folder: of a run, a comparison or a sweep
estimates.py    means over seeds with confidence intervals
curves.py       curves of finished runs, many in one small file
tasks.py        a task: one run into a folder of its own
pool.py         many tasks: in this process, in several processes or on a Dask cluster
processes.py    tasks in several local processes
cluster.py      tasks, or the local training of one run, on a Dask cluster
reproduction/   the paper's figures from our own runs
equal_slots/    which strategies win at equal slots, on three data sets
"""
