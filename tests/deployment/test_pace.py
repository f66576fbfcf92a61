"""Devices that train while others are on the air, without a transport: the simulator, restarts, bad versions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

import fedslot
from fedslot import InputError, Scenario
from fedslot.deployment.announcement import Announcement
from fedslot.deployment.encoding import Carried
from fedslot.deployment.frame import Turn
from fedslot.deployment.pace import OwnWork, Pace
from fedslot.deployment.server import ParameterServer
from fedslot.deployment.timing import Timing
from fedslot.rounds.local_training import LocalTraining
from fedslot.rounds.simulation import Simulation
from fedslot.runs.callbacks import Report

TIMING = Timing(slot=0.1, downlink=1.0, tolerance=0.05)
TWO_BITS = {"name": "quantise", "options": {"bits": 2}}


def scenario(**changes: object) -> Scenario:
    fields = {
        **{"rounds": 25, "data.ues": 12, "frame.slots": 5, "frame.pull": 3, "push.contenders": 5, "training.epochs": 1},
        **{"mode": "asynchronous", "fleet.computing": {"mean_slots": 9}, "fleet.noise": 0.2, "strategy.warmup": 2},
    }
    return Scenario.load("quickstart", {**fields, **{key.replace("__", "."): value for key, value in changes.items()}})


@dataclass(frozen=True)
class Message:
    """An update as it comes over a transport."""

    round: int
    used: list[int]
    numbers: bytes
    metrics: dict[str, Any]

    def slots(self) -> tuple[object, object]:
        return self.round, self.used

    def size(self) -> int:
        return len(self.numbers)

    def content(self) -> tuple[bytes, dict[str, Any]]:
        return self.numbers, self.metrics


class Cell:
    """Seeded devices in this process, which outlive parameter servers. tamper: what becomes of a message, by UE."""

    def __init__(self, scenario: Scenario, tamper: Callable[[int, Message], Message] | None = None) -> None:
        self.scenario, self.tamper = scenario, tamper or (lambda ue, message: message)
        self.simulation, self.local = Simulation(scenario), LocalTraining.of(scenario)
        self.names = {ue: f"node{ue}" for ue in range(scenario.data.ues)}
        self.own = {ue: self._work(ue) for ue in self.names}
        self.errors = {ue: Carried(np.empty(0, np.float32)) for ue in self.names}
        self.heard = dict[int, np.ndarray]()
        self.away = set[int]()

    def _work(self, ue: int) -> OwnWork:
        computing = self.local.fleet.computing
        return OwnWork(ue, None if computing is None else lambda version: float(computing.times(version)[ue]))

    def restart(self, ue: int) -> None:
        """Start a device again, which has lost its training."""
        self.own[ue], self.names[ue] = self._work(ue), self.names[ue] + "again"

    def serve(self, rounds: int = 10**6, **options: Any) -> ParameterServer:
        server = ParameterServer(
            self.scenario, self.simulation.model, self.simulation.held_out, unasked=True, **options
        )
        server.timing = TIMING
        server.start()
        for _ in range(rounds):
            here = self.names.keys() - self.away
            server.roster.bind([(self.names[ue], ue) for ue in here], {self.names[ue] for ue in here}, server.now.round)
            frame = server.announce(here)
            if frame is None:
                break
            spent, received = server.now.slots_spent, server.received.tolist()
            said = Announcement.of(
                frame, self.scenario, "", TIMING, spent, received, 0, server.encoding, server.pace
            ).write()
            announced = Announcement.read(said)
            self.heard[frame.round] = server.heard.numpy()
            replies = [(ue, reply) for ue in sorted(here) if (reply := self._answer(ue, announced))]
            server.close(frame, {ue: self.names[ue] for ue in here}, replies)
        server.finish()
        return server

    def _answer(self, ue: int, announced: Announcement) -> Message | None:
        own, error, pace = self.own[ue], self.errors[ue], announced.pace
        assert pace is not None
        error.settle(announced.round, announced.last_received(ue))
        own.received(announced.last_received(ue))
        own.hear(pace, announced.round, 0.0)
        attributes = {"noise": float(self.local.fleet.noise[ue]), "samples": float(self.local.fleet.sizes[ue])}
        turn = announced.turn(ue)
        turn = None if turn is None else turn.settle(attributes)
        late = None if turn is None else own.late(turn, pace)
        slots = [] if turn is None or late is None else turn.draw(attributes, late)
        if not slots:
            return None
        version = own.version
        own.sends(version)
        start = self.heard[version]
        trained = self.local(torch.from_numpy(start), np.array([ue]), version)
        encoded = announced.encoding.write_update(trained.models[0].numpy(), start, version, ue, error.value)
        error.advance(announced.round, encoded[1])
        metrics: dict[str, Any] = {"num-examples": int(trained.sizes[0]), "version": version}
        if (computing := self.local.fleet.computing) is not None:
            metrics["seconds"] = float(computing.times(version)[ue]) * computing.section.slot
        return self.tamper(ue, Message(announced.round, slots, encoded[0], metrics))


def as_simulated(folder: Path, wanted: Scenario) -> pd.DataFrame:
    """Compare with the simulator all but what a PS cannot know: who began to train, and who trains or was barred."""
    simulated, deployed = fedslot.run(wanted), fedslot.load(folder)
    unknown = ["seconds", "trainings", "training", "holding", "backlogged"]
    ours, theirs = deployed.rounds.drop(columns=unknown), simulated.rounds.drop(columns=unknown)
    pd.testing.assert_frame_equal(ours, theirs, rtol=1e-3, atol=1e-4)
    frames = [result.frames for result in (deployed, simulated)]
    frames = [table[table["event"] != "barred"].reset_index(drop=True) for table in frames if table is not None]
    pd.testing.assert_frame_equal(*frames, rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(deployed.model, simulated.model, rtol=1e-3, atol=1e-4)
    return ours


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"strategy__name": "fedavg", "push__probability": 0.7},
        {"strategy__name": "greedy-shap", "staleness": "soft"},
        {"strategy__name": "scout", "aggregation__name": "filtered", "staleness": "fedasync"},
        {"strategy__name": "merit-push", "aggregation__name": "filtered", "staleness__most": 2, "fleet__noise": 0.5},
        {"push__channel": "crdsa", "frame__slots": 8, "fleet__computing": {"mean_slots": 5, "redraw": True}},
        {"push__arrivals": 0.5, "push__retries": 2, "push__probability": "auto"},
        {
            "compression": {**TWO_BITS, "feedback": True},
            "broadcast_compression": {"name": "eden", "options": {"bits": 6}},
            "fleet__computing": {"mean_slots": 1},
        },
        {"push__contenders": "ready"},
    ],
    ids=str,
)
def test_same_answer_as_the_simulator(changes: dict[str, Any], tmp_path: Path) -> None:
    """Round by round: who was pulled, was not ready, pushed, collided, from which version, and what came of it."""
    wanted = scenario(**changes)
    server = Cell(wanted).serve(out=tmp_path / "out")
    assert server.faults.all == []
    rounds = as_simulated(tmp_path / "out", wanted)
    assert rounds["staleness"].max() > 1
    if not changes:  # the comparison saw all that can happen
        assert (rounds[["wasted", "pulled", "push_received", "collided"]].sum() > 0).all()


def test_without_computing_times_it_is_the_synchronous_deployment(tmp_path: Path) -> None:
    wanted = scenario(fleet__computing=None)
    Cell(wanted).serve(out=tmp_path / "out")
    as_simulated(tmp_path / "out", wanted.replace({"mode": "synchronous"}))


@pytest.mark.parametrize("most", [3, 100])
def test_a_restarted_server_has_the_versions_that_devices_hold(most: int, tmp_path: Path) -> None:
    wanted, out = scenario(staleness__most=most), tmp_path / "out"
    cell = Cell(wanted)
    before = cell.serve(rounds=9, out=out)
    assert len(before.now.versions) == min(9, most + 1)
    after = cell.serve(out=out, resume=True)
    assert after.faults.all == []
    assert as_simulated(out, wanted)["staleness"].iloc[9:].max() > 1


def test_a_server_that_starts_over_gets_no_updates_of_the_training_before(tmp_path: Path) -> None:
    wanted, out = scenario(), tmp_path / "out"
    cell = Cell(wanted)
    cell.serve(rounds=9, out=out)
    assert cell.serve(out=out, force=True).faults.all == []
    as_simulated(out, wanted)


def test_a_device_that_restarts_has_lost_its_training_and_that_is_all() -> None:
    wanted = scenario(fleet__computing={"mean_slots": 20}, strategy__name="fedavg")
    cell, ordered = Cell(wanted), list[set[int]]()

    def follow(round: fedslot.Round) -> None:
        ordered.append(set(server_now().forecast.away.tolist()))
        if round.round == 9:
            lost.update(ordered[-1])
            for ue in lost:
                cell.restart(ue)
            cell.away.update(lost)
        if round.round == 12:
            cell.away.clear()

    lost = set[int]()
    servers = list[ParameterServer]()
    server_now: Callable[[], Any] = lambda: servers[0].now  # noqa: E731

    class Kept(ParameterServer):
        def start(self, *given: Any) -> None:
            servers.append(self)
            super().start(*given)

    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(globals(), "ParameterServer", Kept)
        server = cell.serve(callbacks=[Report(follow)])
    assert lost
    assert not lost & (ordered[10] | ordered[11] | ordered[12])  # nothing is due from them
    assert lost & set().union(*ordered[13:])  # until they are back
    assert set(server.last_received[list(lost)]) & set(range(13, 25))
    assert server.faults.all == []


FEW = {"data__ues": 3, "frame__slots": 3, "push__contenders": 0, "strategy__name": "fedavg"}
FEW |= {"fleet__computing": {"mean_slots": 3}}
BAD: dict[str, tuple[Callable[[int, int], Any], str]] = {
    "of a model to come": (lambda version, round: round + 1, "no model"),
    "too old": (lambda version, round: round - 4, "too old"),
    "negative": (lambda version, round: -1, "no model"),
    "no number": (lambda version, round: "0", "no model"),
    "a truth": (lambda version, round: True, "no model"),
    "a fraction": (lambda version, round: float(version), "no model"),
    "huge": (lambda version, round: 10**400, "no model"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_version_costs_its_own_update_only(name: str) -> None:
    change, word = BAD[name]
    spoiled = list[int]()

    def tamper(ue: int, message: Message) -> Message:
        if ue != 1 or message.round < 5:
            return message
        spoiled.append(message.round)
        version = change(message.metrics["version"], message.round)
        return replace(message, metrics={**message.metrics, "version": version})

    server = Cell(scenario(**FEW, staleness__most=3), tamper).serve()
    faults = server.faults.all
    assert spoiled
    assert {(fault.ue, fault.reason) for fault in faults} == {(1, "version")}
    assert {fault.round for fault in faults} == set(spoiled)
    assert all(word in fault.detail for fault in faults)
    assert server.last_received[1] < 5
    assert (np.delete(server.last_received, 1) >= 15).all()


def test_the_same_update_counts_once() -> None:
    """A device that did not learn that it was received sends again; another frame does not make the update new."""
    first = dict[int, Message]()

    def tamper(ue: int, message: Message) -> Message:
        return replace(first.setdefault(ue, message), round=message.round, used=message.used) if ue == 1 else message

    server = Cell(scenario(**FEW), tamper).serve()
    faults = [fault for fault in server.faults.all if fault.ue == 1]
    assert faults
    assert all("after an update of version" in fault.detail for fault in faults)
    assert server.last_received[1] == first[1].round


def test_numbers_of_seconds_are_not_trusted() -> None:
    """A device that says nothing, nonsense or too much about its time is pulled when it is expected, and all go on."""
    says = {0: {}, 1: {"seconds": -5.0}, 2: {"seconds": 1e300}, 3: {"seconds": "long"}, 4: {"seconds": float("nan")}}

    def tamper(ue: int, message: Message) -> Message:
        if ue in says:
            rest = {name: value for name, value in message.metrics.items() if name != "seconds"}
            return replace(message, metrics={**rest, **says[ue]})
        return message

    server = Cell(scenario(rounds=40), tamper).serve()
    assert server.faults.all == []
    assert not np.isnan(server.now.forecast.need[5:]).all()
    assert (server.now.forecast.need[~np.isnan(server.now.forecast.need)] >= 0).all()
    assert (server.last_received[5:] > 20).sum() >= 5


# Free frames --------------------------------------------------------------------------------------


def test_a_free_device_goes_on_until_its_training_ends() -> None:
    """By its own clock; an order does not interrupt it, and what it holds is sent until the PS has received it."""
    own, pace = OwnWork(0), Pace("a", most=5, order=[0])
    assert own.hear(Pace("a", most=5), 0, now=10.0)
    assert own.received(0) is None
    assert not own.hear(Pace("a", most=5), 1, now=11.0)  # it trains
    own.done(0, now=11.5)
    assert own.version == 0
    own.sends(0)
    assert own.received(-1) is None  # it was not received
    assert own.hear(Pace("a", most=5), 2, now=12.0)  # it holds an update, and trains again
    assert own.version == 0
    own.sends(0)
    assert own.received(2) == 0
    assert own.hear(replace(pace, order=[]), 3, now=13.0) is False
    assert own.version == 2  # not finished yet
    own.drop(2)
    assert own.hear(pace, 4, now=14.0)
    own.done(2, now=14.1)  # of a training that it gave up
    own.done(4, now=14.5)
    assert own.hear(pace, 10, now=20.0)  # six frames later, it is too old
    assert own.version == 10
    assert own.hear(Pace("b", most=5), 0, now=21.0)  # of another training, nothing counts
    assert own.version == 0


@pytest.mark.parametrize(
    ("changes", "options", "field"),
    [
        ({}, {"unasked": False}, "mode"),
        ({}, {"unasked": True, "seeded": False}, "fleet.computing"),
        ({"mode": "synchronous"}, {"unasked": True}, "fleet.computing"),
    ],
)
def test_what_is_refused(changes: dict[str, Any], options: dict[str, Any], field: str) -> None:
    wanted = scenario(**changes)
    simulation = Simulation(wanted)
    with pytest.raises(InputError) as caught:
        ParameterServer(wanted, simulation.model, simulation.held_out, **options)
    assert caught.value.field == field


def test_free_frames_need_a_transport_with_timed_slots() -> None:
    wanted = scenario(fleet__computing=None)
    simulation = Simulation(wanted)
    server = ParameterServer(wanted, simulation.model, simulation.held_out, unasked=True, seeded=False)
    with pytest.raises(InputError, match="timed slots"):
        server.start()


def test_a_seeded_ue_pushes_in_a_slot_of_any_time_at_which_it_may_be_ready() -> None:
    """The PS repeats the draw for each of them, and allows no other slot."""
    turn = Turn(4, 3, 0, first=3, slots=6, channel='["collision", {}]', backlogged=5, rank=2, seed="7")
    drawn = {tuple(turn.draw(late=late)) for late in range(6)}
    assert len(drawn) > 1
    for slot in range(1, 9):
        assert turn.allows([slot], late=True) == ((slot,) in drawn)
        assert turn.allows([slot]) == ([slot] == turn.draw())
