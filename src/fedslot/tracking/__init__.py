"""Trackers: callbacks that send the rounds of runs to tools for experiments.

    numbers.py        what is tracked: the numbers of a round, the fields of a scenario
    tensorboard.py    event files of TensorBoard
    mlflow.py         runs of MLflow, in a database, in files or on a server
    trackers.py       trackers by name, and those of many runs

Each tool is an extra, loaded when it is used: `fedslot[tensorboard]`, `fedslot[mlflow]`.
"""

from fedslot.tracking.mlflow import MLflow
from fedslot.tracking.tensorboard import TensorBoard
from fedslot.tracking.trackers import TRACKERS

__all__ = ["TRACKERS", "MLflow", "TensorBoard"]
