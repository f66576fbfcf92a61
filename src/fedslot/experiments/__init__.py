"""Experiments of many runs.

comparison.py   several strategies under the same seeds
study.py        a grid of scenario fields and its combinations
sweeps.py       all combinations of a study, with one table of all runs
estimates.py    means over seeds with confidence intervals
pool.py         many runs over processes
cluster.py      many runs, or the training of one, over a Dask cluster
reproduction/   the paper's figures from our own runs
"""
