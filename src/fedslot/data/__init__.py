"""Data sets and their partition among UEs.

sources.py      load a data set by name, or a user's own .npz
partition.py    which training samples each UE holds
label_skew.py   partitions of benchmarks: equal shares, few labels per UE, labels divided by a Dirichlet distribution
catalogue.py    the data sets that can be fetched: sizes, hashes, sources
cache.py        the cache of fetched data sets
download.py     downloads over HTTPS, npm and apt
formats.py      readers of the published file formats
digits.npz      the embedded data set `digits`; digits.md has its source and licence
"""

from fedslot.data.sources import Dataset, load

__all__ = ["Dataset", "load"]
