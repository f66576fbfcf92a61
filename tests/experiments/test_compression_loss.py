"""The loss of accuracy by compression: pairs of runs that differ in nothing else."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

import fedslot
from fedslot import RefusedError, Scenario
from fedslot.experiments.compression_loss import estimate_compression_loss

ONE_BIT, TWO_BITS = ({"name": "quantise", "options": {"bits": bits}} for bits in (1, 2))
SMALL = {"rounds": 6, "data.ues": 10, "frame": {"slots": 4, "pull": 4}, "push.contenders": 0, "training.epochs": 1}


def small(**fields: object) -> Scenario:
    return Scenario.load("quickstart", {**SMALL, **fields})


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("loss") / "sweep"
    fedslot.sweep(small(), {"compression": [None, ONE_BIT], "rounds": [6, 4]}, seeds=3, out=out)
    return out


def test_the_mean_loss_over_pairs_at_the_rounds_of_the_shortest_run(folder: Path) -> None:
    runs = fedslot.load(folder).runs
    accuracies = {(run.scenario.compression is None, run.scenario.rounds, run.scenario.seed): run for run in runs}
    losses = [
        accuracies[True, rounds, seed].rounds["test_accuracy"][3] - run.rounds["test_accuracy"][3]
        for (plain, rounds, seed), run in accuracies.items()
        if not plain
    ]
    found = estimate_compression_loss(small(compression=ONE_BIT), fedslot.load(folder), folder)
    assert (found.rounds, found.loss.total) == (4, 6)
    assert found.loss.mean == pytest.approx(np.mean(losses))
    assert found.loss.low < found.loss.mean < found.loss.high
    assert (found.as_dict()["pairs"], found.reference) == (6, "no compression")


def test_without_runs_in_full_precision_the_most_precise_ones_are_the_reference() -> None:
    parts = {f"{bits}": {"name": "quantise", "options": {"bits": bits}} for bits in (4, 8, 1)}
    results = {name: [fedslot.run(small(compression=part))] for name, part in parts.items()}
    study = fedslot.Comparison(small(), [0], results, (0.9,))
    found = estimate_compression_loss(small(compression=ONE_BIT), study, "here")
    accuracy = {name: run.rounds["test_accuracy"][5] for name, [run] in results.items()}
    assert found.reference == "quantise {bits: 8}"
    assert found.loss.mean == pytest.approx(accuracy["8"] - accuracy["1"])
    with pytest.raises(RefusedError, match="does not tell the loss"):
        estimate_compression_loss(small(compression=parts["8"]), study, "here")


def test_options_that_are_left_out_are_their_defaults() -> None:
    results = {name: [fedslot.run(small(compression=part))] for name, part in (("a", None), ("b", "quantise"))}
    study = fedslot.Comparison(small(), [0], results, (0.9,))
    found = estimate_compression_loss(small(compression=TWO_BITS), study, "here")
    assert found.loss.total == 1
    assert found.as_dict()["low"] is None
    assert math.isfinite(found.as_dict()["mean"])


@pytest.mark.parametrize("wanted", [{"compression": TWO_BITS}, {"compression": {**ONE_BIT, "feedback": True}}], ids=str)
def test_a_study_without_such_runs_is_refused(wanted: dict[str, object], folder: Path) -> None:
    with pytest.raises(RefusedError, match=r"it holds no compression, quantise \{bits: 1\}; give a comparison"):
        estimate_compression_loss(small(**wanted), fedslot.load(folder), folder)


def test_a_single_run_is_refused() -> None:
    with pytest.raises(RefusedError, match="it holds a single run"):
        estimate_compression_loss(small(compression=ONE_BIT), fedslot.run(small(compression=ONE_BIT)), "here")
