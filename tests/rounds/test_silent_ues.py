"""Runs in which UEs are away, run out of energy, or must be silent: none of them is pulled or pushes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedslot
from fedslot import Scenario
from fedslot.fleet.availability import Markov
from fedslot.support.errors import InputError, RefusedError

AWAY = {"fleet.availability": {"name": "markov", "options": {"on": 60.0, "off": 60.0}}}
ENERGY = {"radio": {"send_joules": 1.0, "listen_joules": 0.125, "joules_per_ue": 4.0}}
SENT = ["pulled", "lost", "pushed", "collided"]
ASYNCHRONOUS = {"mode": "asynchronous", "fleet.computing": {"mean_slots": 20}}


class Nobody:
    def __init__(self, ues: int, seed: int, slot_seconds: float | None) -> None:
        self.ues = ues

    def at(self, time: float) -> Any:
        return np.zeros(self.ues, dtype=bool)


class Wrong(Nobody):
    def at(self, time: float) -> Any:
        return np.ones(self.ues - 1, dtype=bool)


@pytest.fixture
def cell() -> Scenario:
    fields: dict[str, Any] = {"rounds": 40, "data.ues": 20, "frame": {"slots": 6, "pull": 3}, "push.contenders": 4}
    return Scenario.load("quickstart", {**fields, "training.epochs": 1, "cost_rule": "frame"})


def started(result: fedslot.Result) -> dict[int, float]:
    """The slots spent before each round."""
    return dict(enumerate([0.0, *result.rounds["slots_spent"].tolist()]))


STRATEGIES = ["push-pull", "greedy-shap", "fedavg", "round-robin", "power-of-choice", "scout", "merit-push", "planned"]


@pytest.mark.parametrize("mode", [{}, ASYNCHRONOUS, {"fleet.computing": {"mean_slots": 3}}])
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_nobody_is_heard_who_is_away(cell: Scenario, strategy: str, mode: dict[str, Any]) -> None:
    result = fedslot.run(cell.replace({**AWAY, **mode, "strategy.name": strategy}))
    law, times = Markov(20, cell.seed, None, on=60.0, off=60.0), started(result)
    assert result.frames is not None
    acted = result.frames[result.frames["event"].isin([*SENT, "wasted"])]
    assert len(acted) > 40
    assert all(law.at(times[row.round])[row.ue] for row in acted.itertuples())
    away = [int((~law.at(times[round])).sum()) for round in result.rounds["round"]]
    assert result.rounds["silent"].tolist() == away
    assert 5 < np.mean(away) < 15


def test_a_full_pass_visits_those_that_were_away(cell: Scenario) -> None:
    result = fedslot.run(cell.replace({**AWAY, "strategy.name": "greedy-shap"}))
    assert result.frames is not None
    assert result.frames.loc[result.frames["event"] == "pulled", "ue"].nunique() == 20


def test_ues_that_are_away_neither_listen_nor_train(cell: Scenario) -> None:
    """With energy for listening alone, each joule is that of a UE that was there."""
    radio = {"radio": {"send_joules": 0.0, "listen_joules": 1.0}}
    result = fedslot.run(cell.replace({**AWAY, **radio}))
    assert result.rounds["joules"].tolist() == (20 - result.rounds["silent"]).tolist()
    joules = result.joules_by_ue()
    assert joules is not None
    assert joules.sum() == result.rounds["joules"].sum()
    nobody = {"fleet.availability": f"{__name__}:Nobody", **ASYNCHRONOUS}
    rounds = fedslot.run(cell.replace(nobody)).rounds
    assert rounds["trainings"].sum() == 0
    assert (rounds["slots_spent"].diff().dropna() > 0).all()  # time passes


@pytest.mark.parametrize("mode", [{}, ASYNCHRONOUS])
def test_a_ue_without_energy_is_silent(cell: Scenario, mode: dict[str, Any]) -> None:
    scenario = cell.replace({**ENERGY, **mode, "rounds": 60})
    result = fedslot.run(scenario)
    joules, rounds = result.joules_by_ue(), result.rounds
    assert joules is not None
    assert joules.sum() == pytest.approx(rounds["joules"].sum())
    most_of_a_frame = 0.125 + 1.0  # listening, and one transmission
    assert (joules < 4.0 + most_of_a_frame).all()
    assert rounds["silent"].is_monotonic_increasing
    assert rounds["silent"].iloc[-1] == 20
    assert result.frames is not None
    sends = result.frames[result.frames["event"].isin(SENT)].groupby("ue")["round"]
    for ue, last in sends.max().items():
        spent = 0.125 * last + sends.get_group(ue).lt(last).sum()
        assert spent < 4.0
    assert set(rounds.loc[rounds["silent"] == 20, "joules"]) == {0.0}


@pytest.mark.parametrize("mode", [{}, ASYNCHRONOUS])
def test_such_a_run_is_continued_to_the_identical_result(cell: Scenario, tmp_path: Path, mode: dict[str, Any]) -> None:
    scenario = cell.replace({**AWAY, **ENERGY, **mode, "radio.duty_cycle": 0.2, "strategy.name": "merit-push"})
    once = fedslot.run(scenario, tmp_path / "once")
    fedslot.run(scenario.replace({"rounds": 17}), tmp_path / "twice")
    twice = fedslot.run(scenario, tmp_path / "twice", resume=True)
    assert once.rounds.drop(columns="seconds").equals(twice.rounds.drop(columns="seconds"))
    assert once.frames is not None
    assert once.frames.equals(twice.frames)
    assert np.array_equal(once.model, twice.model)
    assert once.rounds["silent"].nunique() > 5


@pytest.mark.parametrize("mode", [{}, ASYNCHRONOUS])
def test_those_that_are_always_there_change_nothing(cell: Scenario, mode: dict[str, Any]) -> None:
    always = {"name": "markov", "options": {"on": 1e9, "off": 1e-3}}
    plain, there = (fedslot.run(cell.replace({**mode, **more})) for more in ({}, {"fleet.availability": always}))
    assert plain.rounds.drop(columns="seconds").equals(there.rounds.drop(columns="seconds"))
    assert np.array_equal(plain.model, there.model)


@pytest.mark.parametrize("seed", [0, 2])
def test_no_ue_is_pulled_in_the_silence_of_its_duty_cycle(seed: int) -> None:
    """Slow UEs that were left out before they were ever received come first, but not while they must be silent."""
    scenario = Scenario.load("lora", {"rounds": 30, "training.epochs": 1, "seed": seed})
    result = fedslot.run(scenario)
    times, silent = started(result), np.zeros(scenario.data.ues)
    assert result.frames is not None
    sent = result.frames[result.frames["event"].isin(SENT)]
    length = 6 / 87  # packets of an update, compressed and in full
    for (round, ue), slots in sent.groupby(["round", "ue"]).size().items():
        assert times[round] >= silent[ue]
        silent[ue] = times[round + 1] + 99 * length * slots - 1e-6


def test_a_law_of_ones_own_must_name_all_ues(cell: Scenario) -> None:
    with pytest.raises(RefusedError, match=r"Wrong must return an array \(20,\) of booleans from at\(\)"):
        fedslot.run(cell.replace({"fleet.availability": f"{__name__}:Wrong"}))


def test_energy_per_ue_needs_energies(cell: Scenario) -> None:
    with pytest.raises(InputError, match=r"radio\.joules_per_ue: .* null without radio\.send_joules"):
        cell.replace({"radio.joules_per_ue": 1.0})
