"""Runs: a scenario run to its end, and what it leaves behind.

execution.py   run a scenario, in memory or in a folder
results.py     the result of a run
privacy.py     the epsilon of differential privacy that each UE has spent
records.py     the run folder
folders.py     folders of results: claims, locks, files that are never half-written
provenance.py  fingerprints of data and own parts
callbacks.py   objects that are told what happens
value_ratio.py the value of pushed updates relative to pulled ones, from the trace of a run
"""

from fedslot.runs.folders import (
    ATTACK_STUDY,
    EQUAL_SLOTS,
    RANDOM_SETTINGS,
    REPRODUCTION,
    Claim,
    FolderKind,
    claim,
    write_atomically,
)

__all__ = [
    "ATTACK_STUDY",
    "EQUAL_SLOTS",
    "RANDOM_SETTINGS",
    "REPRODUCTION",
    "Claim",
    "FolderKind",
    "claim",
    "write_atomically",
]
