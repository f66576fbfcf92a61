"""The clock of a device: who trains from which version until when; runs in asynchronous mode."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fedslot
from fedslot import Grant, Scenario
from fedslot.fleet import Computing
from fedslot.rounds.devices import NONE, Devices, Work
from fedslot.rounds.simulation import Simulation
from fedslot.runs.callbacks import Report
from fedslot.scenario import ComputingSection
from fedslot.support.errors import InputError, RefusedError

UES = 6
NOBODY = np.empty(0, dtype=np.int64)
BUDGET = {"rounds": 10_000, "cost_rule": "frame", "mode": "asynchronous"}


@pytest.fixture
def cell() -> Scenario:
    fields: dict[str, Any] = {"rounds": 12, "data.ues": 20, "frame": {"slots": 6, "pull": 3}, "push.contenders": 4}
    return Scenario.load("quickstart", {**fields, "training.epochs": 1, "strategy.warmup": 2})


def computing(mean_slots: float, redraw: bool = False) -> Computing:
    return Computing(ComputingSection(mean_slots=mean_slots, redraw=redraw), np.full(UES, 10), seed=0)


frames = st.lists(
    st.tuples(st.sets(st.integers(0, UES - 1)), st.sets(st.integers(0, UES - 1)), st.integers(1, 9)), max_size=30
)


@given(frames, st.sampled_from([0.0, 3.0, 20.0]), st.booleans(), st.integers(0, 12))
def test_the_arrays_agree_with_a_plain_simulation_of_each_ue(
    frames: list[tuple[set[int], set[int], int]], mean: float, redraw: bool, most: int
) -> None:
    """Orders, receptions and lengths of frames at random, against one UE after the other."""
    times = computing(mean, redraw)
    devices, time = Devices(UES, times, most), 0
    work = devices.blank()
    plain: list[dict[str, Any]] = [{"trains": None, "until": 0.0, "holds": None} for _ in range(UES)]
    for round, (ordered, chosen, length) in enumerate(frames):
        start = time + 1
        work, begun = devices.begin(work, Grant(NOBODY, order=np.array(sorted(ordered), dtype=int)), round, start)
        assert begun is not None
        for ue, own in enumerate(plain):
            if own["trains"] is not None and own["until"] <= start:
                own["trains"], own["holds"] = None, own["trains"]
            for name in ("trains", "holds"):
                if own[name] is not None and own[name] < round - most:
                    own[name] = None
            begins = own["trains"] is None or ue in ordered
            assert begins == (ue in begun)
            if begins:
                own["trains"], own["until"] = round, start + times.times(round)[ue]
                if own["until"] <= start:
                    own["trains"], own["holds"] = None, round
        ready, ues = devices.ready(work, round, start), np.arange(UES)
        assert ready is not None
        versions = devices.versions(work, ues, round)
        for ue, own in enumerate(plain):
            assert ready[ue] == pytest.approx(0.0 if own["holds"] is not None else own["until"] - start)
            assert versions[ue] == (own["trains"] if own["holds"] is None else own["holds"])
        assert work.versions == {own[name] for own in plain for name in ("trains", "holds")} - {None}
        assert all(round - most <= version <= round for version in work.versions)
        can = [ue for ue in sorted(chosen) if ready[ue] <= length]
        work = devices.end(work, np.array(can, dtype=int), versions[can])
        for ue in can:
            own = plain[ue]
            if own["holds"] is None:
                own["trains"] = None
            own["holds"] = None
        time = start + length


def test_synchronous_work_ends_with_its_frame() -> None:
    devices = Devices(UES, computing(5.0), None)
    work, begun = devices.begin(devices.blank(), Grant(NOBODY), 7, 100)
    assert begun is None
    assert len(work.trains) == 0
    assert np.array_equal(devices.ready(work, 7, 100), computing(5.0).times(7))
    assert devices.versions(work, np.array([2, 4]), 7).tolist() == [7, 7]


def test_a_ue_sends_what_it_holds_and_goes_on_training() -> None:
    work = Work(np.array([8, NONE]), np.array([30.0, 0.0]), np.array([5, 6]))
    devices = Devices(2, None, 10)
    assert devices.versions(work, np.array([0, 1]), 9).tolist() == [5, 6]
    after = devices.end(work, np.array([0]), np.array([5]))
    assert (after.trains.tolist(), after.holds.tolist()) == ([8, NONE], [NONE, 6])


STRATEGIES = ["push-pull", "greedy-shap", "fedavg", "round-robin", "ucb", "s-fedavg", "oort", "power-of-choice"]
STRATEGIES += ["planned", "load-split", "only-pull", "scout", "merit-push"]


@pytest.mark.parametrize("name", STRATEGIES)
def test_without_computing_times_both_modes_are_the_same(cell: Scenario, name: str) -> None:
    """All models, frames and costs, to the digit."""
    scenario = cell.replace({"strategy.name": name, "rounds": 8})
    one, other = (fedslot.run(scenario.replace({"mode": mode})) for mode in ("synchronous", "asynchronous"))
    assert np.array_equal(one.model, other.model)
    assert one.frames is not None
    assert one.frames.equals(other.frames)
    apart = ["seconds", "trainings"]
    assert one.rounds.drop(columns=apart).equals(other.rounds.drop(columns=apart))


@pytest.mark.parametrize("name", STRATEGIES)
def test_slow_ues_are_received_and_few_pulls_are_wasted(cell: Scenario, name: str) -> None:
    slow = {**BUDGET, "fleet.computing": {"mean_slots": 40}, "strategy.name": name, "time_budget": 500}
    rounds = fedslot.run(cell.replace(slow)).rounds
    late = rounds[rounds["slots_spent"] > 150]
    assert late["pulled"].sum() + late["push_received"].sum() > 30
    assert late["wasted"].sum() < 0.1 * (late["wasted"] + late["pulled"]).sum()
    assert late["staleness"].max() > 1


def test_littles_law_gives_the_updates_in_flight(cell: Scenario, tmp_path: Path) -> None:
    """Updates on order are orders per slot times the time of each: training, and at most the frame that receives it."""
    times, time = tmp_path / "times.csv", 25
    times.write_text("ue,slots\n" + "".join(f"{ue},{time}\n" for ue in range(60)))
    fields = {**BUDGET, "data.ues": 60, "fleet.computing": {"times": str(times)}, "strategy.name": "fedavg"}
    simulation = Simulation(cell.replace({**fields, "frame.slots": 3, "push.contenders": 0, "time_budget": 2000}))
    steps = [step for step in simulation.rounds() if step.now.slots_spent > 200]
    spent = np.array([step.now.slots_spent for step in steps])
    away = [len(step.now.forecast.away) for step in steps]
    in_flight = np.average(away[:-1], weights=np.diff(spent))
    received = sum(step.round.pulled for step in steps[1:]) / (spent[-1] - spent[0])
    longest = max(step.round.cost_frame for step in steps)
    assert in_flight > 5
    assert time - longest <= in_flight / received <= time + longest


@pytest.mark.parametrize(
    "fields",
    [
        {"strategy.name": "merit-push", "aggregation.name": "filtered"},
        {"strategy.name": "push-pull", "staleness": "soft", "fleet.computing": {"mean_slots": 9, "redraw": True}},
        {"strategy.name": "scout", "staleness.most": 2, "compression": "quantise", "broadcast_compression": "quantise"},
        {"mode": "synchronous", "radio.outage": 0.2},
    ],
)
def test_a_resumed_run_has_the_same_result(cell: Scenario, tmp_path: Path, fields: dict[str, Any]) -> None:
    scenario = cell.replace({"mode": "asynchronous", "fleet.computing": {"mean_slots": 9}, **fields, "rounds": 14})
    whole = fedslot.run(scenario, tmp_path / "whole")

    def interrupt(round: fedslot.Round) -> None:
        if round.round == 8:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fedslot.run(scenario, tmp_path / "broken", callbacks=[Report(interrupt)])
    resumed = fedslot.run(scenario, tmp_path / "broken", resume=True)
    assert np.array_equal(whole.model, resumed.model)
    assert whole.rounds.drop(columns="seconds").equals(resumed.rounds.drop(columns="seconds"))
    for name in ("frames.csv",):
        assert (tmp_path / "whole" / name).read_bytes() == (tmp_path / "broken" / name).read_bytes()


def test_few_versions_are_held_and_none_is_too_old(cell: Scenario) -> None:
    fields = {**BUDGET, "fleet.computing": {"mean_slots": 60}, "staleness.most": 7, "rounds": 60}
    result = []
    for step in Simulation(cell.replace(fields)).rounds():
        assert len(step.now.versions) <= 8
        assert step.now.versions.keys() == step.now.work.versions
        result += [event.staleness for event in step.frame if event.staleness is not None]
    assert 0 < max(result) <= 7


def test_trainings_that_are_never_received_cost_energy(cell: Scenario) -> None:
    joules = {"radio": {"send_joules": 0.0, "listen_joules": 0.0, "compute_joules": 2.0}}
    slow = {"fleet.computing": {"mean_slots": 10, "slot": 0.5}, "mode": "asynchronous"}
    result = fedslot.run(cell.replace({**joules, **slow, "fleet.stragglers": 0.0, "rounds": 40}))
    rounds = result.rounds
    # 2 W for half a second a slot and 10 slots on average
    assert rounds["joules"].sum() == pytest.approx(10 * rounds["trainings"].sum(), rel=0.3)
    assert rounds["trainings"].sum() > (rounds["pulled"] + rounds["push_received"]).sum()
    with pytest.raises(RefusedError, match="asynchronous"):
        result.joules_by_ue()


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"strategy.name": "centralized"}, "mode"),
        ({"strategy.name": "ps-alone"}, "mode"),
        ({"frame.order": False}, "frame.order"),
    ],
)
def test_what_makes_no_sense_is_refused(cell: Scenario, fields: dict[str, Any], field: str) -> None:
    with pytest.raises(InputError) as caught:
        cell.replace({"mode": "asynchronous", **fields})
    assert caught.value.field == field


def test_those_that_train_and_those_that_wait_are_counted(cell: Scenario) -> None:
    """Each UE trains, holds an update, or was received, if training begins with the frame and ends with it."""
    slow = {"fleet.computing": {"mean_slots": 5}, "frame.order": False, "rounds": 5}
    result = fedslot.run(cell.replace(slow))
    rounds, received = result.rounds, result.rounds["pulled"] + result.rounds["push_received"]
    assert (rounds["training"] + rounds["holding"] + received == cell.data.ues).all()
    assert 0 < rounds["training"].iloc[0] < cell.data.ues
    slower = {"fleet.computing": {"mean_slots": 20}, "rounds": 20}
    assert (fedslot.run(cell.replace({**slow, **slower})).rounds["training"] == cell.data.ues).all()
    later = fedslot.run(cell.replace({**slower, "mode": "asynchronous"})).rounds
    assert later["training"].iloc[10:].mean() < cell.data.ues  # training goes on between frames
    assert not fedslot.run(cell.replace({"rounds": 3})).rounds[["training", "holding"]].any(axis=None)
