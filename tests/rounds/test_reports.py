"""Numbers that UEs report with their updates, as strategies see them."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import fedslot
from fedslot import Grant, NoState, RefusedError, Scenario
from fedslot.rounds.simulation import Simulation

SEEN: list[Any] = []


class Curious:
    """Pulls the first UEs, and keeps the receipts."""

    needs_values = False
    needs_reports: Any = ("loss", "norm", "samples", "seconds", "battery")

    def __init__(self, cell: fedslot.Cell) -> None:
        self.cell = cell

    def init(self) -> NoState:
        return NoState()

    def schedule(self, state: NoState, round: int, rng: np.random.Generator) -> Grant:
        return Grant(np.arange(self.cell.slots))

    def observe(self, state: NoState, receipt: fedslot.Receipt, values: np.ndarray) -> NoState:
        SEEN.append(receipt)
        return state


class Vague(Curious):
    needs_reports = "loss"


def scenario(strategy: str, **more: object) -> Scenario:
    fields = {"rounds": 1, "data.ues": 6, "frame.slots": 3, "frame.pull": 3, "push.contenders": 0, "training.epochs": 1}
    return Scenario.load("quickstart", {**fields, "strategy.name": f"{__name__}:{strategy}", **more})


def test_the_simulator_reports_what_it_knows() -> None:
    SEEN.clear()
    wanted = scenario("Curious", **{"fleet.computing": {"slot": 0.5}})
    simulation = Simulation(wanted)
    start = simulation.start()
    (step,) = simulation.rounds()
    receipt = SEEN[-1]
    reports = receipt.reports
    assert set(reports) == set(Curious.needs_reports)
    np.testing.assert_allclose(reports["loss"], simulation.local.losses(start.model, receipt.received))
    np.testing.assert_array_equal(reports["samples"], simulation.fleet.sizes[receipt.received])
    np.testing.assert_allclose(reports["seconds"], simulation.devices.times(0)[receipt.received] * 0.5)
    assert (reports["norm"] > 0).all()
    assert np.isnan(reports["battery"]).all()
    assert step.round.pulled == len(receipt.received) > 0


def test_numbers_out_of_bounds_count_as_none() -> None:
    simulation = Simulation(scenario("Curious"))
    ues = np.arange(3)
    trained = simulation.local.train(simulation.model.initial, ues, 0)
    metrics: list[dict[str, float]] = [
        {"battery": 0.5, "loss": 1e13},
        {"battery": -math.inf},
        {"loss": 2.0, "other": 1.0},
    ]
    reports = simulation.ps._reports(replace(trained, metrics=metrics))
    np.testing.assert_array_equal(reports["battery"], [0.5, np.nan, np.nan])
    np.testing.assert_array_equal(reports["loss"], [np.nan, np.nan, 2.0])


def test_names_that_are_none_are_refused() -> None:
    with pytest.raises(RefusedError, match="must name numbers in needs_reports"):
        fedslot.run(scenario("Vague"))
