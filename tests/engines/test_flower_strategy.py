"""Flower's side of a deployment in one process: the strategy, its grid, its nodes, and replies of every kind."""

from __future__ import annotations

import re
import sys
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pandas as pd
import pytest
import torch

pytest.importorskip("flwr")

from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Error, Message, MetricRecord, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp.strategy import FedAdam, FedAvg, FedAvgM
from flwr.supercore.task_identity import TaskIdentity  # private: without it no message can be made outside of a run
from hostile_bytes import COMPRESSION, HOSTILE
from small_cell import CLIPPED, model_without_ue_1, scenario

import fedslot
from fedslot import InputError, RefusedError, Scenario
from fedslot.data.sources import load
from fedslot.deployment.flower import DeadlineGrid, SlotAccess, to_arrays
from fedslot.deployment.flower.messages import LABEL
from fedslot.deployment.frame import Turn
from fedslot.rounds.simulation import Simulation

sys.path.insert(0, str(Path(__file__).parent.parent.parent / "examples" / "flower"))
from slots.client_app import app as CLIENT

NODE = 1000  # node of UE 0 in the grid below
DEADLINE = 8.0  # seconds, where a UE is silent; the others must answer in this time on a busy machine
Tamper = Callable[[Message, Message], Any]


@pytest.fixture(autouse=True, scope="module")
def _in_a_task() -> None:
    """Pretend to be a task of a run, within which Flower's messages are made; compile before deadlines run."""
    TaskIdentity.task_id, TaskIdentity.run_id, TaskIdentity.node_id = 1, 1, 1
    fedslot.run(scenario(rounds=1))


class LoopGrid(Grid):
    """A grid of devices in this process: each message runs the example's ClientApp.

    tamper: by UE, what to make of its reply: another one, or a function that fetches the replies of a grid. It is
        called with the message and the honest reply.
    """

    def __init__(self, scenario: Scenario, path: Path, tamper: dict[int, Tamper] | None = None) -> None:
        file = path / "scenario.yaml"
        file.write_text(scenario.to_yaml())
        self.config = {"scenario": str(file), "overrides": ""}
        self.tamper = tamper or {}
        self.nodes = {NODE + ue: ue for ue in range(scenario.data.ues)}
        self.replies: dict[str, Fetch] = {}
        self.sent: list[Message] = []
        self.hang = threading.Event()
        self.states: dict[int, RecordDict] = defaultdict(RecordDict)  # of the nodes

    def push_messages(self, messages: Iterable[Message]) -> list[str]:
        names = []
        for message in messages:
            names.append(f"m{len(self.sent)}")
            _set(message, message_id=names[-1])
            self.sent.append(message)
            self.replies[names[-1]] = self._answer(message)
        return names

    def _answer(self, message: Message) -> Fetch:
        node = message.metadata.dst_node_id
        context = Context(1, node, {"partition-id": self.nodes[node]}, self.states[node], self.config)
        reply = CLIENT(_over_the_wire(message), context)
        if self.nodes[node] in self.tamper and "who" not in message.content[LABEL]:
            reply = self.tamper[self.nodes[node]](message, reply)
        return reply if callable(reply) else lambda grid: [reply]

    def pull_messages(self, message_ids: Iterable[str]) -> list[Message]:
        replies: list[Message] = []
        for name in message_ids:
            fetched = self.replies.get(name, _silence)(self)
            replies += fetched
            if fetched:
                del self.replies[name]
        return replies

    def get_node_ids(self) -> list[int]:
        return list(self.nodes)

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> list[Message]:
        raise AssertionError("only the grid with a deadline is used")

    def create_message(self, *args: Any, **options: Any) -> Message:
        raise NotImplementedError

    def set_run(self, run: Any) -> None: ...

    @property
    def run(self) -> Any: ...


Fetch = Callable[[LoopGrid], list[Message]]


def _silence(grid: LoopGrid) -> list[Message]:
    return []


def _endless(grid: LoopGrid) -> list[Message]:
    grid.hang.wait()
    return []


def _unreadable(grid: LoopGrid) -> list[Message]:
    raise KeyError("no such class")


def _over_the_wire(message: Message) -> Message:
    """The same message with its records written and read back, as between machines."""
    content = {name: type(record).inflate(record.deflate()) for name, record in message.content.config_records.items()}
    content = RecordDict({**message.content, **content})
    copy = Message(content, message.metadata.dst_node_id, message.metadata.message_type, ttl=message.metadata.ttl)
    return _set(copy, message_id=message.metadata.message_id)


def _set(message: Message, **values: object) -> Message:
    """Set fields of a message as Flower's own grids do: there are no setters for them."""
    message.metadata.__dict__.update({f"_{name}": value for name, value in values.items()})
    return message


def make(wanted: Scenario, kind: type[SlotAccess] = SlotAccess, **options: Any) -> SlotAccess:
    simulation = Simulation(wanted)
    given = {"deadline": 300.0, "poll": 0.005, "wait": 5.0, **options}
    return kind(scenario=wanted, model=simulation.model, held_out=simulation.held_out, **given)


def deploy(
    wanted: Scenario, path: Path, tamper: dict[int, Tamper] | None = None, rounds: int | None = None, **options: Any
) -> SlotAccess:
    return start(make(wanted, **options), LoopGrid(wanted, path, tamper), rounds)


def start(strategy: SlotAccess, grid: Grid, rounds: int | None = None) -> SlotAccess:
    model = strategy.server.model
    strategy.start(grid, to_arrays(model, model.initial), rounds)
    return strategy


def _pulls(wanted: Scenario, ues: int) -> list[Message]:
    """The messages of a first frame that pulls UEs from 0 on."""
    model = Simulation(wanted).model
    records = {"arrays": to_arrays(model, model.initial), "config": ConfigRecord({"server-round": 1})}
    labels = [ConfigRecord(asdict(Turn(0, ue, ue + 1))) for ue in range(ues)]
    return [Message(RecordDict({**records, LABEL: label}), NODE + ue, "train") for ue, label in enumerate(labels)]


# The simulator's answer ---------------------------------------------------------------------------


EIGHT_BITS = {"name": "quantise", "options": {"bits": 8}}


@pytest.mark.parametrize(
    "changes",
    [
        {"push__contenders": 3},
        {"push__arrivals": 0.5, "push__probability": "auto", "push__retries": 2},
        {"compression": {**COMPRESSION, "feedback": True}, "broadcast_compression": EIGHT_BITS, "push__contenders": 3},
        {"compression": "drive", "push__contenders": 3},
        {"broadcast_compression": EIGHT_BITS, "push__contenders": 3},
    ],
    ids=str,
)
def test_same_answer_as_the_simulator(changes: dict[str, object], tmp_path: Path) -> None:
    """On a coded channel, whose turns name several slots, with updates that are clipped."""
    wanted = scenario(rounds=10, push__channel="irsa", frame__slots=8, chain=CLIPPED, **changes)
    strategy, simulated = deploy(wanted, tmp_path, out=tmp_path / "out"), fedslot.run(wanted)
    measured = fedslot.load(tmp_path / "out").rounds.drop(columns="seconds")
    pd.testing.assert_frame_equal(measured, simulated.rounds.drop(columns="seconds"), rtol=1e-3, atol=1e-4)
    assert simulated.model is not None
    np.testing.assert_allclose(strategy.server.now.model, simulated.model, rtol=1e-4, atol=1e-5)
    assert strategy.server.now.state.seen.tolist() == simulated.state.seen.tolist()
    np.testing.assert_allclose(strategy.server.now.state.value, simulated.state.value, rtol=1e-3, atol=1e-5)
    assert strategy.server.faults.all == []
    assert (tmp_path / "out" / "summary.json").is_file()


def test_without_a_seed_devices_draw_slots_of_their_own(tmp_path: Path) -> None:
    wanted = scenario(rounds=10, data__ues=5, frame__slots=5, push__contenders=3, training__epochs=1)
    runs = [deploy(wanted, tmp_path, out=tmp_path / name, seeded=False) for name in ("a", "b")]
    costs = [fedslot.load(tmp_path / name).rounds["cost_sum"].tolist() for name in ("a", "b")]
    assert costs[0] != costs[1]
    assert all(run.server.faults.all == [] for run in runs)


# Stock strategies beside it -----------------------------------------------------------------------


class Adam(SlotAccess, FedAdam):
    """Over FedAdam."""


class Momentum(SlotAccess, FedAvgM):
    """Over FedAvgM."""


OPTIONS: dict[type, dict[str, float]] = {
    Adam: {"eta": 0.01},
    Momentum: {"server_learning_rate": 1.0, "server_momentum": 0.9},
}


def test_over_fedadam(tmp_path: Path) -> None:
    wanted = scenario()
    ours = deploy(wanted, tmp_path, rounds=1, kind=Adam, eta=0.05)
    grid, initial = LoopGrid(wanted, tmp_path), ours.server.model.initial
    # the stock strategy by hand on the four updates of the first frame
    stock = FedAdam(eta=0.05, min_available_nodes=0)
    stock.current_arrays = {name: array.numpy() for name, array in to_arrays(ours.server.model, initial).items()}
    arrays, _ = stock.aggregate_train(1, grid.pull_messages(grid.push_messages(_pulls(wanted, 4))))
    assert arrays is not None
    expected = np.concatenate([array.numpy().ravel() for array in arrays.values()])
    np.testing.assert_allclose(ours.server.now.model.numpy(), expected, rtol=1e-4, atol=1e-6)
    assert ours.server.now.model.dtype == torch.float32
    assert np.abs(expected - initial.numpy()).max() > 0.01


@pytest.mark.parametrize("kind", [SlotAccess, Adam, Momentum])
def test_a_restarted_server_continues_as_if_unbroken(kind: type[SlotAccess], tmp_path: Path) -> None:
    wanted, options = scenario(), OPTIONS.get(kind, {})
    unbroken = deploy(wanted, tmp_path, out=tmp_path / "unbroken", kind=kind, **options)
    deploy(wanted, tmp_path, out=tmp_path / "broken", kind=kind, **options, rounds=3)
    again = deploy(wanted, tmp_path, out=tmp_path / "broken", kind=kind, **options, resume=True)
    assert torch.equal(again.server.now.model, unbroken.server.now.model)
    assert again.server.roster.nodes == {ue: str(NODE + ue) for ue in range(8)}


# Bad replies, where Flower's messages differ from those in tests/deployment -------------------------


def _with(**records: Any) -> Tamper:
    """The honest reply with some records replaced; None takes one away."""

    def tamper(message: Message, reply: Message) -> Message:
        content = {**reply.content, **{name.replace("_", "-"): record for name, record in records.items()}}
        return Message(RecordDict({name: record for name, record in content.items() if record}), reply_to=message)

    return tamper


BAD: dict[str, tuple[Tamper, str]] = {
    "huge arrays": (_with(arrays=ArrayRecord({"x": Array(np.zeros(10_000_000, np.float32))})), "size"),
    "huge metrics": (_with(metrics=MetricRecord({"num-examples": 5, "x": [0.0] * 100_000})), "size"),
    "other arrays": (_with(arrays=ArrayRecord({"x": Array(np.zeros(1, np.float32))})), "keys"),
    "no arrays": (_with(arrays=None), "records"),
    "a second record": (_with(more=ArrayRecord({"x": Array(np.zeros(1, "f4"))})), "records"),
    "no metrics": (_with(metrics=None), "records"),
    "no label": (_with(fedslot=None), "label"),
    "another label": (_with(fedslot=ConfigRecord({"x": 1})), "round"),
    "another's slot": (_with(fedslot=ConfigRecord({"round": 0, "slots": [1]})), "slot"),
    "error": (lambda message, reply: Message(Error(3, "out of\nmemory"), reply_to=message), "error"),
    "unreadable": (lambda message, reply: _unreadable, "error"),
}


@pytest.fixture(scope="module")
def without_ue_1() -> torch.Tensor:
    return model_without_ue_1()


@pytest.mark.parametrize("case", BAD)
def test_a_bad_reply_costs_only_its_own_update(case: str, without_ue_1: torch.Tensor, tmp_path: Path) -> None:
    tamper, reason = BAD[case]
    strategy = deploy(scenario(), tmp_path, {1: tamper}, rounds=1)
    torch.testing.assert_close(strategy.server.now.model, without_ue_1, rtol=1e-5, atol=1e-6)
    (fault,) = strategy.server.faults.all
    assert (fault.round, fault.ue, fault.node, fault.reason) == (0, 1, str(NODE + 1), reason)


@pytest.mark.parametrize("case", HOSTILE)
def test_hostile_bytes_cost_only_their_own_update(case: str, tmp_path: Path) -> None:
    """UE 1 says something else than its encoded update; the model is that of the other UEs."""
    (change, reason), wanted = HOSTILE[case], scenario(compression=COMPRESSION)
    reason = "malformed" if case == "nothing" else reason  # Flower cannot read a record with empty bytes
    shapes = Simulation(wanted).model.tensor_shapes

    def tamper(message: Message, reply: Message) -> Message:
        label = {**reply.content[LABEL]}
        assert isinstance(label["update"], bytes)
        label["update"] = change(label["update"], shapes)
        return Message(RecordDict({**reply.content, LABEL: ConfigRecord(label)}), reply_to=message)

    strategy = deploy(wanted, tmp_path, {1: tamper}, rounds=1)
    assert [(fault.ue, fault.reason) for fault in strategy.server.faults.all] == [(1, reason)]
    assert strategy.server.now.state.seen.tolist() == [1, 0, 1, 1, 0, 0, 0, 0]


def test_an_app_without_the_mod_that_encodes(tmp_path: Path) -> None:
    """Its reply has arrays in place of the encoded update."""
    wanted = scenario(compression=COMPRESSION)

    def tamper(message: Message, reply: Message) -> Message:
        arrays = to_arrays(*(lambda model: (model, model.initial))(Simulation(wanted).model))
        label = ConfigRecord({"round": 0, "slots": reply.content[LABEL]["slots"]})
        return Message(RecordDict({**reply.content, LABEL: label, "arrays": arrays}), reply_to=message)

    strategy = deploy(wanted, tmp_path, {1: tamper}, rounds=1)
    assert [(fault.ue, fault.reason) for fault in strategy.server.faults.all] == [(1, "encoding")]


@pytest.mark.parametrize(("kind", "rate"), [(Adam, "eta"), (Momentum, "server_learning_rate")])
def test_a_failed_aggregation_leaves_no_trace_in_the_moments(kind: type[SlotAccess], rate: str, tmp_path: Path) -> None:
    strategy = deploy(scenario(), tmp_path, rounds=2, kind=kind, **{**OPTIONS[kind], rate: float("inf")})
    assert torch.equal(strategy.server.now.model, strategy.server.model.initial)
    assert [fault.reason for fault in strategy.server.faults.all] == ["aggregate"] * 2
    assert not strategy.server.now.aggregation.begun.any()


# Barring ------------------------------------------------------------------------------------------


def test_a_barred_device_does_not_train(tmp_path: Path) -> None:
    answers: set[tuple[bool, bool]] = set()

    def look(message: Message, reply: Message) -> Message:
        answers.add((bool(reply.content[LABEL]["slots"]), bool(reply.content.array_records)))
        return reply

    strategy = deploy(scenario(push__probability=0.3), tmp_path, dict.fromkeys(range(8), look))
    assert answers == {(True, True), (False, False)}
    assert strategy.server.faults.all == []


# Deadlines ----------------------------------------------------------------------------------------


def _forged(message: Message, reply: Message) -> Message:
    """A reply from another node than the one that was asked."""
    return _set(Message(reply.content, reply_to=message), src_node_id=NODE + 7)


@pytest.mark.parametrize("tamper", [lambda message, reply: _endless, _forged], ids=["endless download", "forged"])
def test_a_round_closes_at_its_deadline(tamper: Tamper, without_ue_1: torch.Tensor, tmp_path: Path) -> None:
    grid = LoopGrid(scenario(), tmp_path, {1: tamper})
    try:
        strategy = start(make(scenario(), deadline=DEADLINE), grid, 1)
    finally:
        grid.hang.set()
    torch.testing.assert_close(strategy.server.now.model, without_ue_1, rtol=1e-5, atol=1e-6)
    assert [(fault.ue, fault.reason) for fault in strategy.server.faults.all] == [(1, "silent")]


def test_a_late_reply_is_not_counted_in_the_next_round(tmp_path: Path) -> None:
    """UE 1 answers the first frame once the second has begun, which stays open because UE 4 is silent."""

    def late(message: Message, reply: Message) -> Fetch:
        return lambda grid: [reply] if any(sent.content[LABEL].get("round") == 1 for sent in grid.sent) else []

    tamper = {1: late, 4: lambda message, reply: _silence}
    strategy = deploy(scenario(), tmp_path, tamper, rounds=2, deadline=DEADLINE)
    assert [(fault.round, fault.ue, fault.reason) for fault in strategy.server.faults.all] == [
        (0, 1, "silent"),
        (0, 1, "late"),
        (1, 4, "silent"),
    ]
    assert strategy.server.now.state.seen[1] == 0


def test_a_grid_with_a_deadline_serves_stock_strategies(tmp_path: Path) -> None:
    wanted = scenario()
    grid = LoopGrid(wanted, tmp_path, {1: lambda message, reply: _silence})
    replies = DeadlineGrid(grid, DEADLINE, 0.01).send_and_receive(_pulls(wanted, 3))
    assert {reply.metadata.src_node_id for reply in replies} == {NODE, NODE + 2}
    found, _ = FedAvg().aggregate_train(1, replies)
    assert found is not None
    with pytest.raises(InputError, match="deadline"):
        DeadlineGrid(grid, 0.0)


def test_a_grid_with_a_deadline_forgets_what_nobody_answers(tmp_path: Path) -> None:
    class Silent(LoopGrid):
        def pull_messages(self, message_ids: Iterable[str]) -> list[Message]:
            return []

    grid = DeadlineGrid(Silent(scenario(), tmp_path), seconds=0.05, poll=0.005)
    record = RecordDict({LABEL: ConfigRecord({"who": True})})
    old, new = (Message(record, NODE, "train") for _ in range(2))
    assert grid.send_and_receive([old]) == []
    old.metadata.created_at -= 1000
    assert grid.send_and_receive([new]) == []
    assert list(grid.open.values()) == [new]


def test_a_superlink_that_is_gone_for_a_moment_costs_nothing(tmp_path: Path) -> None:
    class Flaky(LoopGrid):
        failures = 5

        def pull_messages(self, message_ids: Iterable[str]) -> list[Message]:
            if self.failures:
                self.failures -= 1
                raise httpx.ConnectError("connection refused")
            return super().pull_messages(message_ids)

    strategy = start(make(scenario()), Flaky(scenario(), tmp_path), 1)
    assert strategy.server.faults.all == []
    assert strategy.server.now.state.seen.sum() == 4


# Who is who ---------------------------------------------------------------------------------------


class Changing(LoopGrid):
    """A grid whose nodes change before given rounds."""

    changes: dict[int, dict[int, int]]

    def get_node_ids(self) -> list[int]:
        rounds = {turn["round"] for m in self.sent if "round" in (turn := m.content[LABEL])}
        self.nodes = self.changes.get(len(rounds), self.nodes)
        return super().get_node_ids()


@pytest.mark.parametrize("keyed", [False, True])
def test_a_device_that_returns(keyed: bool, tmp_path: Path) -> None:
    """UE 1 goes after the first frame and returns as another node: without keys the UE is its own again."""
    wanted = scenario(strategy__warmup=6)
    grid = Changing(wanted, tmp_path)
    before = dict(grid.nodes)
    gone = {node: ue for node, ue in before.items() if ue != 1}
    grid.changes = {1: gone, 3: {**gone, 77: 1}}
    strategy = start(make(wanted, keyed=keyed, out=tmp_path / "out"), grid)
    assert strategy.server.roster.nodes[1] == str(NODE + 1 if keyed else 77)
    rounds = fedslot.load(tmp_path / "out").frames.query("event == 'pulled' and ue == 1")["round"]
    assert not {1, 2, 3} & set(rounds)  # while it was away, and until it was asked which UE it is
    assert bool(set(rounds) & {4, 5}) is not keyed
    taken = [(fault.ue, fault.node) for fault in strategy.server.faults.all if fault.reason == "taken"]
    assert taken == ([(1, "77")] if keyed else [])
    assert torch.isfinite(strategy.server.now.model).all()


def test_a_node_turned_away_after_a_restart(tmp_path: Path) -> None:
    """UE 1 is gone and another node claims no UE: its fault belongs to the round at which the training continues."""
    wanted = scenario()
    deploy(wanted, tmp_path, out=tmp_path / "out", rounds=3)
    grid = LoopGrid(wanted, tmp_path)
    grid.nodes = {node: ue for node, ue in grid.nodes.items() if ue != 1} | {50: 99}
    strategy = start(make(wanted, out=tmp_path / "out", resume=True, wait=0.5), grid)
    turned_away = [(fault.round, fault.node) for fault in strategy.server.faults.all if fault.reason == "claim"]
    assert turned_away == [(3, "50")]


def test_nobody_comes(tmp_path: Path) -> None:
    grid = LoopGrid(scenario(), tmp_path)
    grid.nodes = {}
    strategy = make(scenario(), wait=0.1)
    with pytest.raises(RefusedError, match=r"no UE came within 0\.1 s"):
        start(strategy, grid)


# The documentation --------------------------------------------------------------------------------


def test_the_example_of_the_documentation_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = (Path(__file__).parent.parent.parent / "docs" / "how-to" / "deployment.md").read_text("utf-8")
    (code,) = re.findall(r"```python title=\"server_app.py\"\n(.*?)```", page, re.DOTALL)
    names: dict[str, Any] = {}
    exec(compile(code, "deployment.md", "exec"), names)
    monkeypatch.chdir(tmp_path)
    changes = {"rounds": 4, "data.ues": 8, "frame.slots": 4, "frame.pull": 2, "push.contenders": 3}
    wanted = Scenario.load("quickstart", changes)
    simulation, data = Simulation(wanted), load("digits")
    result = names["main"](LoopGrid(wanted, tmp_path), simulation.model.module, data.x_test, data.y_test)
    rounds = fedslot.load(tmp_path / "out").rounds
    assert rounds["round"].tolist() == [0, 1, 2, 3]
    assert set(result.arrays) == set(simulation.model.shapes)
    assert (tmp_path / "out" / "faults.csv").read_text() == "round,ue,node,reason,detail\n"


def test_initial_arrays_are_checked(tmp_path: Path) -> None:
    strategy = make(scenario())
    with pytest.raises(InputError, match="initial_arrays"):
        strategy.start(LoopGrid(scenario(), tmp_path), ArrayRecord({"x": Array(np.zeros(3, np.float32))}))
