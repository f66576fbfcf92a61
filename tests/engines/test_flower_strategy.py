"""The Flower strategy in one process: the simulator's answer, restarts, faults and hostile devices."""

from __future__ import annotations

import re
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

pytest.importorskip("flwr")

from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Error, Message, MetricRecord, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp.strategy import FedAdam, FedAvg, FedAvgM, FedMedian
from flwr.supercore.task_identity import TaskIdentity

import fedslot
from fedslot import InputError, RefusedError, Scenario
from fedslot.data.sources import load
from fedslot.deployment.flower import DeadlineGrid, Limits, SlotAccess, to_arrays
from fedslot.deployment.flower.faults import Fault, FaultLog
from fedslot.deployment.flower.turn import LABEL, Turn, answer
from fedslot.simulation import Simulation

sys.path.insert(0, str(Path(__file__).parent.parent.parent / "examples" / "flower"))
from slots.client_app import app as CLIENT

SMALL = {
    "rounds": 6,
    "data.ues": 8,
    "frame.slots": 4,
    "frame.pull": 2,
    "push.contenders": 4,
    "push.probability": 0.8,
    "training.epochs": 2,
    "fleet.noise": 0.2,
    "valuation.method": "exact",
}
NODE = 1000  # node of UE 0 in the grid below
Tamper = Callable[[Message, Message], Any]


@pytest.fixture(autouse=True)
def _in_a_task() -> Iterator[None]:
    """Flower's messages are made within a task of a run."""
    before = TaskIdentity._task_id, TaskIdentity._run_id, TaskIdentity._node_id
    TaskIdentity.task_id, TaskIdentity.run_id, TaskIdentity.node_id = 1, 1, 1
    yield
    TaskIdentity._task_id, TaskIdentity._run_id, TaskIdentity._node_id = before


class LoopGrid(Grid):
    """A grid of devices in this process: each message runs the example's ClientApp.

    tamper: by UE, what to make of its reply: a reply, a list of replies, an exception to raise when it is fetched, or
        None for silence. It is called with the message and the honest reply.
    """

    def __init__(self, scenario: Scenario, path: Path, tamper: dict[int, Tamper] | None = None) -> None:
        file = path / "scenario.yaml"
        file.write_text(scenario.to_yaml())
        self.config = {"scenario": str(file), "overrides": ""}
        self.tamper = tamper or {}
        self.nodes = {NODE + ue: ue for ue in range(scenario.data.ues)}
        self.replies: dict[str, Any] = {}
        self.sent: list[Message] = []
        self.lock, self.hang = threading.Lock(), threading.Event()

    def push_messages(self, messages: Iterable[Message]) -> list[str]:
        names = []
        for message in messages:
            name = f"m{len(self.sent)}"
            message.metadata.__dict__["_message_id"] = name
            self.sent.append(message)
            self.replies[name] = self._answer(message)
            names.append(name)
        return names

    def _answer(self, message: Message) -> Any:
        node = message.metadata.dst_node_id
        context = Context(1, node, {"partition-id": self.nodes[node]}, RecordDict(), self.config)
        asks = "who" in message.content[LABEL]
        reply = CLIENT(_over_the_wire(message), context)
        tamper = self.tamper.get(self.nodes[node])
        return reply if tamper is None or asks else tamper(message, reply)

    def pull_messages(self, message_ids: Iterable[str]) -> list[Message]:
        found: list[Message] = []
        with self.lock:
            for name in message_ids:
                reply = self.replies.get(name)
                if isinstance(reply, _Later):
                    reply = reply() if time.monotonic() >= reply.when else None
                if isinstance(reply, Exception):
                    raise reply
                if reply is not None:
                    found += reply if isinstance(reply, list) else [reply]
                    del self.replies[name]
        if any(isinstance(reply, _Hanging) for reply in found):
            self.hang.wait(60)
        return [reply for reply in found if not isinstance(reply, _Hanging)]

    def get_node_ids(self) -> list[int]:
        return list(self.nodes)

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> list[Message]:
        raise AssertionError("only the grid with a deadline is used")

    def create_message(self, *args: Any, **options: Any) -> Message:
        raise NotImplementedError

    def set_run(self, run: Any) -> None: ...

    @property
    def run(self) -> Any: ...


class _Hanging:
    """A reply whose download does not end."""


class _Later:
    """A reply that comes after some seconds."""

    def __init__(self, reply: Message, seconds: float) -> None:
        self.reply, self.when = reply, time.monotonic() + seconds

    def __call__(self) -> Message:
        return self.reply


def _over_the_wire(message: Message) -> Message:
    """The same message with its records written and read back, as between machines."""
    content = RecordDict({name: _copy(record) for name, record in message.content.items()})
    copy = Message(content, message.metadata.dst_node_id, message.metadata.message_type, ttl=message.metadata.ttl)
    copy.metadata.__dict__["_message_id"] = message.metadata.message_id
    return copy


def _copy(record: Any) -> Any:
    if isinstance(record, ArrayRecord):
        return record
    return type(record).inflate(record.deflate())


def scenario(**changes: object) -> Scenario:
    named = {key.replace("__", "."): value for key, value in changes.items()}
    return Scenario.load("quickstart", {**SMALL, **named})


def make(wanted: Scenario, kind: type[SlotAccess] = SlotAccess, **options: Any) -> SlotAccess:
    simulation = Simulation(wanted)
    given = {"deadline": 30.0, "poll": 0.005, "wait": 5.0, **options}
    return kind(scenario=wanted, model=simulation.model, held_out=simulation.held_out, **given)


def deploy(
    wanted: Scenario, path: Path, tamper: dict[int, Tamper] | None = None, rounds: int | None = None, **options: Any
) -> SlotAccess:
    strategy = make(wanted, **options)
    strategy.start(LoopGrid(wanted, path, tamper), to_arrays(strategy.model, strategy.model.initial), rounds)
    return strategy


class Watched(SlotAccess):
    """Remembers every frame."""

    def start(self, *args: Any, **options: Any) -> Any:
        self.frames: list[Any] = []
        return super().start(*args, **options)

    def aggregate_train(self, server_round: int, replies: Iterable[Message]) -> Any:
        before = self.now
        result = super().aggregate_train(server_round, replies)
        if self._frame is not None:
            self.frames.append((self._frame.grant, before, self.now))
        return result


# The simulator's answer ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"strategy__name": "fedavg"},
        {"strategy__name": "greedy-shap"},
        {"strategy__name": "only-pull"},
        {"push__channel": "capture"},
        {"push__channel": "crdsa", "frame__slots": 6},
        {"push__channel": "irsa", "frame__slots": 8, "push__probability": 1.0},
        {"valuation__method": "kriging", "strategy__memory": "mean"},
        {"time_budget": 18, "seed": 5},
    ],
    ids=str,
)
def test_same_answer_as_the_simulator(changes: dict[str, object], tmp_path: Path) -> None:
    wanted = scenario(**{"rounds": 10, "push__contenders": 3, **changes})
    simulation = Simulation(wanted)
    strategy = deploy(wanted, tmp_path, kind=Watched, out=tmp_path / "out")
    assert isinstance(strategy, Watched)
    simulated, now = [], simulation.start()
    for row, after in simulation.rounds():
        simulated.append((row, now, after))
        now = after
    assert len(strategy.frames) == len(simulated)
    for (row, before, after), (grant, deployed_before, deployed) in zip(simulated, strategy.frames, strict=True):
        wanted_grant = simulation.strategy.schedule(before.state, row.round, simulation._rng("schedule", row.round))
        assert grant.pull.tolist() == wanted_grant.pull.tolist()
        torch.testing.assert_close(deployed.model, after.model, rtol=1e-4, atol=1e-5)
        if hasattr(after.state, "value"):
            assert deployed.state.seen.tolist() == after.state.seen.tolist()
            np.testing.assert_allclose(deployed.state.value, after.state.value, rtol=1e-3, atol=1e-5)
        assert deployed.slots_spent == after.slots_spent
        assert deployed_before.round == before.round
    measured = fedslot.load(tmp_path / "out")
    simulated_rows = pd.DataFrame([vars(row) for row, _, _ in simulated])
    exact = ["round", "pulled", "wasted", "contenders", "push_received", "collided", "cost_max", "cost_sum"]
    pd.testing.assert_frame_equal(measured.rounds[exact], simulated_rows[exact])
    np.testing.assert_allclose(measured.rounds["test_loss"], simulated_rows["test_loss"], rtol=1e-3)
    assert strategy.faults.all == []
    assert (tmp_path / "out" / "summary.json").is_file()
    if not changes:  # the comparison saw all that can happen in a frame
        assert (measured.rounds[["pulled", "push_received", "collided"]].sum() > 0).all()
        assert (measured.rounds["contenders"].iloc[2:] < 3).any()  # barred


@pytest.mark.parametrize("seeded", [True, False])
def test_devices_draw_their_own_slots(seeded: bool, tmp_path: Path) -> None:
    """Without a seed the slots differ from run to run, but the scenario, the hopefuls and the rules are the same."""
    wanted = scenario(rounds=12, data__ues=5, frame__slots=5, push__contenders=3, training__epochs=1)
    runs = [deploy(wanted, tmp_path, out=tmp_path / f"{n}", seeded=seeded) for n in range(3)]
    costs = [fedslot.load(tmp_path / f"{n}").rounds["cost_sum"].tolist() for n in range(3)]
    assert (costs[0] == costs[1] == costs[2]) is seeded
    assert all(run.faults.all == [] for run in runs)


# Stock strategies beside it -----------------------------------------------------------------------


class Adam(SlotAccess, FedAdam):
    """Over FedAdam."""


class Momentum(SlotAccess, FedAvgM):
    """Over FedAvgM."""


class Median(SlotAccess, FedMedian):
    """Over FedMedian."""


def test_over_fedadam(tmp_path: Path) -> None:
    wanted = scenario()
    ours = deploy(wanted, tmp_path, rounds=1, kind=Adam, eta=0.05)
    plain, grid = make(wanted), LoopGrid(wanted, tmp_path)
    start = to_arrays(plain.model, plain.model.initial)
    # the stock strategy by hand on the four updates of the first frame
    stock = FedAdam(eta=0.05, min_available_nodes=0)
    stock.current_arrays = {name: array.numpy() for name, array in start.items()}
    replies = []
    for ue in range(4):
        label = Turn(0, ue, ue + 1).to_record()
        content = RecordDict({"arrays": start, "config": ConfigRecord({"server-round": 1}), LABEL: label})
        (name,) = grid.push_messages([Message(content, NODE + ue, "train")])
        replies += grid.pull_messages([name])
    arrays, _ = stock.aggregate_train(1, replies)
    assert arrays is not None
    expected = np.concatenate([array.numpy().ravel() for array in arrays.values()])
    np.testing.assert_allclose(ours.now.model.numpy(), expected, rtol=1e-4, atol=1e-6)
    assert ours.now.model.dtype == torch.float32
    assert np.abs(expected - plain.model.initial.numpy()).max() > 0.01


@pytest.mark.parametrize("kind", [SlotAccess, Adam, Momentum, Median])
def test_a_restarted_server_goes_on_as_if_nothing_had_happened(kind: type[SlotAccess], tmp_path: Path) -> None:
    wanted = scenario()
    unbroken = deploy(wanted, tmp_path, out=tmp_path / "unbroken", kind=kind)
    first = deploy(wanted, tmp_path, out=tmp_path / "broken", kind=kind, rounds=3)
    assert first.now.round == 3
    again = deploy(wanted, tmp_path, out=tmp_path / "broken", kind=kind, resume=True)
    assert torch.equal(again.now.model, unbroken.now.model)
    np.testing.assert_array_equal(again.now.state.value, unbroken.now.state.value)
    assert again.roster.nodes.tolist() == [NODE + ue for ue in range(8)]
    assert again.claims.tolist() == unbroken.claims.tolist()
    rows = [fedslot.load(tmp_path / name).rounds.drop(columns="seconds") for name in ("unbroken", "broken")]
    pd.testing.assert_frame_equal(*rows)


def test_faults_of_rounds_that_come_anew_are_dropped(tmp_path: Path) -> None:
    log = FaultLog(tmp_path)
    log.add([Fault(round, 1, NODE, "norm", f'1e9, "far"\nfrom {round}') for round in range(4)])
    again = FaultLog(tmp_path, until=2)
    assert again.all == log.all[:2]
    again.add([Fault(2, 5, 0, "absent")])
    assert FaultLog(tmp_path, until=9).all == [*log.all[:2], Fault(2, 5, 0, "absent")]


def test_a_folder_in_use_is_refused(tmp_path: Path) -> None:
    deploy(scenario(), tmp_path, out=tmp_path / "out", rounds=1)
    with pytest.raises(RefusedError, match="holds a run already"):
        deploy(scenario(), tmp_path, out=tmp_path / "out")
    with pytest.raises(RefusedError, match="seed is 0, not 1"):
        deploy(scenario(seed=1), tmp_path, out=tmp_path / "out", resume=True)


# Hostile devices ----------------------------------------------------------------------------------


def _with(**records: Any) -> Tamper:
    """The honest reply with some records replaced; None takes one away."""

    def tamper(message: Message, reply: Message) -> Message:
        content = {**reply.content, **{name.replace("_", "-"): record for name, record in records.items()}}
        return Message(RecordDict({name: record for name, record in content.items() if record}), reply_to=message)

    return tamper


def _array(change: Callable[[Array], Array | None]) -> Tamper:
    """The honest reply with its first array changed."""

    def tamper(message: Message, reply: Message) -> Message:
        arrays = dict(reply.content["arrays"])
        name = next(iter(arrays))
        changed = change(arrays.pop(name))
        return _with(arrays=ArrayRecord({**({} if changed is None else {name: changed}), **arrays}))(message, reply)

    return tamper


def _numbers(change: Callable[[np.ndarray], np.ndarray]) -> Tamper:
    return _array(lambda array: Array(change(array.numpy())))


def _every(change: Callable[[np.ndarray], np.ndarray]) -> Tamper:
    """The honest reply with all of its arrays changed."""

    def tamper(message: Message, reply: Message) -> Message:
        arrays = {name: Array(change(array.numpy())) for name, array in reply.content["arrays"].items()}
        return _with(arrays=ArrayRecord(arrays))(message, reply)

    return tamper


def _raw(data: Callable[[bytes], bytes]) -> Tamper:
    return _array(lambda array: Array(array.dtype, array.shape, array.stype, data(array.data)))


def _first(value: float) -> Callable[[np.ndarray], np.ndarray]:
    def change(numbers: np.ndarray) -> np.ndarray:
        numbers = numbers.copy()
        numbers.flat[0] = value
        return numbers

    return change


def _pickled(_: bytes) -> bytes:
    import io

    stream = io.BytesIO()
    np.save(stream, np.array([{"run": "me"}], dtype=object), allow_pickle=True)
    return stream.getvalue()


def _examples(value: Any) -> Tamper:
    return _with(metrics=MetricRecord({"num-examples": value}))


def _relabel(label: dict[str, Any] | None) -> Tamper:
    return _with(fedslot=None if label is None else ConfigRecord(label))


HUGE_CLAIM = b"{'descr': '<f4', 'fortran_order': False, 'shape': (50, 1000000000000), }"
HOSTILE: dict[str, tuple[Tamper, str]] = {
    "wrong shape": (_numbers(lambda numbers: numbers[:-1]), "shape"),
    "transposed": (_numbers(lambda numbers: numbers.T), "shape"),
    "float64": (_numbers(lambda numbers: numbers.astype(np.float64)), "dtype"),
    "big-endian": (_numbers(lambda numbers: numbers.astype(">f4")), "dtype"),
    "integers": (_numbers(lambda numbers: numbers.view(np.int32)), "dtype"),
    "nan": (_numbers(_first(np.nan)), "finite"),
    "infinite": (_numbers(_first(-np.inf)), "finite"),
    "far away": (_numbers(lambda numbers: 1e6 * numbers), "norm"),
    "largest float": (_numbers(_first(3.4e38)), "norm"),
    "array missing": (_array(lambda array: None), "keys"),
    "array too many": (
        lambda message, reply: _with(arrays=ArrayRecord({**reply.content["arrays"], "x": Array(np.zeros(1, "f4"))}))(
            message, reply
        ),
        "keys",
    ),
    "no arrays": (_with(arrays=None), "records"),
    "arrays twice": (lambda message, reply: _with(more=reply.content["arrays"])(message, reply), "records"),
    "a second record": (_with(more=ArrayRecord({"x": Array(np.zeros(1, "f4"))})), "records"),
    "no metrics": (_with(metrics=None), "records"),
    "huge array": (_numbers(lambda numbers: np.zeros(10_000_000, np.float32)), "size"),
    "huge metrics": (_with(metrics=MetricRecord({"num-examples": 5, "x": [0.0] * 100_000})), "size"),
    "pickle": (_raw(_pickled), "dtype"),
    "no npy": (_raw(lambda data: b"garbage"), "array"),
    "empty": (_raw(lambda data: b""), "array"),
    "cut short": (_raw(lambda data: data[:-4]), "array"),
    "too long": (_raw(lambda data: data + b"0000"), "array"),
    "header that claims a terabyte": (
        _raw(lambda data: b"\x93NUMPY\x01\x00" + len(HUGE_CLAIM).to_bytes(2, "little") + HUGE_CLAIM),
        "shape",
    ),
    "no examples": (_examples(0), "examples"),
    "negative examples": (_examples(-7), "examples"),
    "half an example": (_examples(0.5), "examples"),
    "nan examples": (_examples(float("nan")), "examples"),
    "examples as a list": (_examples([1, 2]), "examples"),
    "no label": (_relabel(None), "label"),
    "earlier round": (_relabel({"round": -1, "slots": [2]}), "round"),
    "later round": (_relabel({"round": 7, "slots": [2]}), "round"),
    "round as a word": (_relabel({"round": "0", "slots": [2]}), "round"),
    "another's slot": (_relabel({"round": 0, "slots": [1]}), "slot"),
    "two slots": (_relabel({"round": 0, "slots": [2, 3]}), "slot"),
    "slot beyond the frame": (_relabel({"round": 0, "slots": [99]}), "slot"),
    "slot as a fraction": (_relabel({"round": 0, "slots": [2.0]}), "slot"),
    "slot as a number": (_relabel({"round": 0, "slots": 2}), "slot"),
    "no slots": (_relabel({"round": 0}), "slot"),
    "error": (lambda message, reply: Message(Error(3, "out of\nmemory"), reply_to=message), "error"),
    "unreadable": (lambda message, reply: KeyError("no such class"), "error"),
}


@pytest.fixture(scope="module")
def without_ue_1(tmp_path_factory: pytest.TempPathFactory) -> torch.Tensor:
    """The model after a frame in which UE 1 sent nothing of use."""
    TaskIdentity.task_id, TaskIdentity.run_id, TaskIdentity.node_id = 1, 1, 1
    wanted = scenario()
    simulation = Simulation(wanted)
    others = np.array([0, 2, 3])
    return simulation._aggregate(
        simulation.model.initial, simulation.train(simulation.model.initial, others, 0), others
    )


@pytest.mark.parametrize("case", HOSTILE)
def test_a_bad_answer_costs_only_itself(case: str, without_ue_1: torch.Tensor, tmp_path: Path) -> None:
    tamper, reason = HOSTILE[case]
    began = time.monotonic()
    strategy = deploy(scenario(), tmp_path, {1: tamper}, rounds=1, out=tmp_path / "out")
    assert time.monotonic() - began < 20
    torch.testing.assert_close(strategy.now.model, without_ue_1, rtol=1e-5, atol=1e-6)
    (fault,) = strategy.faults.all
    assert (fault.round, fault.ue, fault.node, fault.reason) == (0, 1, NODE + 1, reason)
    faults = pd.read_csv(tmp_path / "out" / "faults.csv")
    assert faults[["round", "ue", "node", "reason"]].to_numpy().tolist() == [[0, 1, NODE + 1, reason]]
    (row,) = fedslot.load(tmp_path / "out").rounds.to_dict("records")
    assert (row["pulled"], row["wasted"], row["cost_max"]) == (3, 1, 5)
    assert strategy.now.state.seen.tolist() == [1, 0, 1, 1, 0, 0, 0, 0]


def test_a_bad_answer_costs_only_itself_through_a_whole_run(tmp_path: Path) -> None:
    """Every kind of bad answer in turn from two of eight UEs: the model stays finite and still learns."""
    kinds = iter([HOSTILE[case][0] for case in HOSTILE] * 10)
    wanted = scenario(rounds=15, fleet__noise=0.0, push__channel="crdsa")
    bad = {
        ue: lambda message, reply: next(kinds)(message, reply) if reply.content.array_records else reply
        for ue in (2, 5)
    }
    strategy = deploy(wanted, tmp_path, bad, out=tmp_path / "out")
    rounds = fedslot.load(tmp_path / "out").rounds
    assert len(rounds) == 15
    assert torch.isfinite(strategy.now.model).all()
    assert rounds["test_accuracy"].iloc[-1] > rounds["test_accuracy"].iloc[0] + 0.1
    assert {fault.ue for fault in strategy.faults.all} == {2, 5}
    assert strategy.now.state.seen[[2, 5]].tolist() == [0, 0]


def test_an_update_whose_loss_overflows_is_not_taken(without_ue_1: torch.Tensor, tmp_path: Path) -> None:
    huge = {1: _every(lambda numbers: 1e25 * numbers)}
    strategy = deploy(scenario(), tmp_path, huge, rounds=1, limits=Limits(norm=1e30))
    torch.testing.assert_close(strategy.now.model, without_ue_1, rtol=1e-5, atol=1e-6)
    assert [(fault.ue, fault.reason) for fault in strategy.faults.all] == [(1, "loss")]


def test_a_duplicate_counts_once(tmp_path: Path) -> None:
    honest = deploy(scenario(), tmp_path, rounds=1)
    twice = deploy(scenario(), tmp_path, {1: lambda message, reply: [reply, reply]}, rounds=1)
    assert torch.equal(twice.now.model, honest.now.model)
    assert [fault.reason for fault in twice.faults.all] == ["duplicate"]


def test_nobody_answers_for_another(without_ue_1: torch.Tensor, tmp_path: Path) -> None:
    """A reply from another node than the one that was asked is not heard, and does not silence the right one."""

    def foreign(message: Message, reply: Message) -> list[Message]:
        forged = Message(reply.content, reply_to=message)
        forged.metadata.__dict__["_src_node_id"] = NODE + 7
        return [forged]

    strategy = deploy(scenario(), tmp_path, {1: foreign}, rounds=1, deadline=1.0)
    torch.testing.assert_close(strategy.now.model, without_ue_1, rtol=1e-5, atol=1e-6)
    assert [fault.reason for fault in strategy.faults.all] == ["silent"]


def test_nobody_buys_weight(tmp_path: Path) -> None:
    wanted = scenario()
    strategy = deploy(wanted, tmp_path, {1: _examples(10**12)}, rounds=1)
    simulation = Simulation(wanted)
    ues, sizes = np.arange(4), simulation.fleet.sizes[:4].copy()
    sizes[1] = int(10 * sorted([sizes[0], sizes[2], sizes[3]])[1])  # lower median of four, the lie among them
    updates = simulation.train(simulation.model.initial, ues, 0)
    expected = torch.as_tensor(sizes / sizes.sum(), dtype=torch.float32) @ updates
    torch.testing.assert_close(strategy.now.model, expected, rtol=1e-4, atol=1e-5)
    assert [(fault.ue, fault.reason) for fault in strategy.faults.all] == [(1, "weight")]


def test_a_useless_aggregate_is_not_taken(tmp_path: Path) -> None:
    strategy = make(scenario(), Adam, eta=float("inf"))
    strategy.start(LoopGrid(scenario(), tmp_path), to_arrays(strategy.model, strategy.model.initial), 2)
    assert torch.equal(strategy.now.model, strategy.model.initial)
    assert [fault.reason for fault in strategy.faults.all] == ["aggregate"] * 2


# Contention ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("seeded", "slots", "reason"),
    [
        (True, lambda turn: [turn.first + (turn.draw()[0] - turn.first + 1) % turn.slots], "slot"),  # not the one drawn
        (True, lambda turn: [], "slot"),
        (False, lambda turn: [turn.first - 1], "slot"),
        (False, lambda turn: [turn.first + turn.slots], "slot"),
        (False, lambda turn: [turn.first, turn.first + 1], "slot"),  # one copy only on this channel
    ],
)
def test_a_push_slot_that_may_not_be_used(seeded: bool, slots: Any, reason: str, tmp_path: Path) -> None:
    wanted = scenario(rounds=3, push__probability=1.0)
    pushed = []

    def cheat(message: Message, reply: Message) -> Message:
        turn = Turn.from_record(message.content[LABEL])
        if turn.slot:
            return reply
        pushed.append(turn.ue)
        reply.content[LABEL] = answer(turn.round, slots(turn))
        return reply

    strategy = deploy(wanted, tmp_path, dict.fromkeys(range(8), cheat), seeded=seeded, out=tmp_path / "out")
    assert len(pushed) == 4
    assert [(fault.round, fault.ue, fault.reason) for fault in strategy.faults.all] == [
        (2, ue, reason) for ue in pushed
    ]
    assert fedslot.load(tmp_path / "out").rounds["contenders"].tolist() == [0, 0, 0]


@pytest.mark.parametrize("garbage", [False, True])
def test_garbage_takes_its_slot_as_a_good_message_would(garbage: bool, tmp_path: Path) -> None:
    """Two UEs in one push slot collide whether or not one of them made sense; a third is received."""
    wanted = scenario(rounds=3, push__contenders=3, push__probability=1.0)
    order: list[int] = []

    def contend(message: Message, reply: Message) -> Message:
        turn = Turn.from_record(message.content[LABEL])
        if turn.slot:
            return reply
        order.append(turn.ue)
        if garbage and turn.rank == 0:
            reply = _numbers(_first(np.nan))(message, reply)
        reply.content[LABEL] = answer(turn.round, [turn.first + (turn.rank == 2)])
        return reply

    strategy = deploy(wanted, tmp_path, dict.fromkeys(range(8), contend), seeded=False, out=tmp_path / "out")
    last = fedslot.load(tmp_path / "out").rounds.iloc[-1]
    assert (last["pulled"], last["contenders"], last["push_received"], last["collided"]) == (2, 3, 1, 2)
    assert [(fault.ue, fault.reason) for fault in strategy.faults.all] == ([(order[0], "finite")] if garbage else [])


def test_a_barred_device_does_not_train(tmp_path: Path) -> None:
    wanted = scenario(rounds=6, push__probability=0.3)
    strategy = make(wanted)
    grid = LoopGrid(wanted, tmp_path)
    answers: list[tuple[bool, bool]] = []

    def look(message: Message, reply: Message) -> Message:
        answers.append((bool(reply.content[LABEL]["slots"]), bool(reply.content.array_records)))
        return reply

    grid.tamper = dict.fromkeys(range(8), look)
    strategy.start(grid, to_arrays(strategy.model, strategy.model.initial))
    assert {(True, True), (False, False)} == set(answers)
    assert strategy.faults.all == []


# Deadlines ----------------------------------------------------------------------------------------


def test_a_round_closes_at_its_deadline(without_ue_1: torch.Tensor, tmp_path: Path) -> None:
    strategy = deploy(
        scenario(), tmp_path, {1: lambda message, reply: None}, rounds=1, deadline=1.0, out=tmp_path / "o"
    )
    torch.testing.assert_close(strategy.now.model, without_ue_1, rtol=1e-5, atol=1e-6)
    assert [(fault.ue, fault.reason) for fault in strategy.faults.all] == [(1, "silent")]
    assert fedslot.load(tmp_path / "o").rounds["seconds"].iloc[0] < 5


def test_a_late_answer_is_known_as_late(without_ue_1: torch.Tensor, tmp_path: Path) -> None:
    late = {1: lambda message, reply: _Later(reply, 1.0) if message.content[LABEL]["round"] == 0 else reply}
    wanted = scenario(fleet__stragglers=0.0)
    models: list[torch.Tensor] = []
    strategy = make(wanted, deadline=0.8)
    strategy.start(
        LoopGrid(wanted, tmp_path, {**late, 4: lambda message, reply: None}),
        to_arrays(strategy.model, strategy.model.initial),
        2,
        evaluate_fn=lambda round, arrays: models.append(strategy.now.model),
    )
    assert [(f.round, f.ue, f.reason) for f in strategy.faults.all] == [
        (0, 1, "silent"),
        (0, 1, "late"),
        (1, 4, "silent"),
    ]
    assert strategy.now.state.seen[1] == 0


def test_a_download_without_end_holds_nobody_back(without_ue_1: torch.Tensor, tmp_path: Path) -> None:
    wanted = scenario()
    grid = LoopGrid(wanted, tmp_path, {1: lambda message, reply: _Hanging()})
    strategy = make(wanted, deadline=1.0)
    began = time.monotonic()
    try:
        strategy.start(grid, to_arrays(strategy.model, strategy.model.initial), 1)
        assert time.monotonic() - began < 10
    finally:
        grid.hang.set()
    torch.testing.assert_close(strategy.now.model, without_ue_1, rtol=1e-5, atol=1e-6)
    assert [fault.reason for fault in strategy.faults.all] == ["silent"]


def test_a_grid_with_a_deadline_serves_stock_strategies(tmp_path: Path) -> None:
    wanted = scenario()
    grid = LoopGrid(wanted, tmp_path, {1: lambda message, reply: None})
    label = {ue: Turn(0, ue, ue + 1).to_record() for ue in range(3)}
    arrays, config = (
        to_arrays(Simulation(wanted).model, Simulation(wanted).model.initial),
        ConfigRecord({"server-round": 1}),
    )
    messages = [
        Message(RecordDict({"arrays": arrays, "config": config, LABEL: label[ue]}), NODE + ue, "train")
        for ue in range(3)
    ]
    replies = DeadlineGrid(grid, 0.5, 0.01).send_and_receive(messages)
    assert {reply.metadata.src_node_id for reply in replies} == {NODE, NODE + 2}
    found, _ = FedAvg().aggregate_train(1, replies)
    assert found is not None
    with pytest.raises(InputError, match="deadline"):
        DeadlineGrid(grid, 0.0)


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
    strategy = make(wanted, keyed=keyed)
    strategy.start(grid, to_arrays(strategy.model, strategy.model.initial))
    assert int(strategy.roster.nodes[1]) == (NODE + 1 if keyed else 77)
    absent = [fault.round for fault in strategy.faults.all if fault.reason == "absent" and fault.ue == 1]
    assert absent
    assert max(absent) == 5 if keyed else max(absent) <= 4  # asked in round 3, heard by the end of the next
    taken = [(fault.ue, fault.node) for fault in strategy.faults.all if fault.reason == "taken"]
    assert taken == ([(1, 77)] if keyed else [])
    assert torch.isfinite(strategy.now.model).all()


def test_nobody_takes_the_place_of_a_device_that_is_there(tmp_path: Path) -> None:
    wanted = scenario()
    grid = Changing(wanted, tmp_path)
    grid.changes = {1: grid.nodes | {50: 1, 51: 99, 52: -1, 53: "1", 54: True}}
    strategy = make(wanted)
    strategy.start(grid, to_arrays(strategy.model, strategy.model.initial), 5)
    assert strategy.roster.nodes.tolist() == [NODE + ue for ue in range(8)]
    assert {(fault.node, fault.reason) for fault in strategy.faults.all} == {
        (50, "taken"),
        (51, "claim"),
        (52, "claim"),
        (53, "claim"),
        (54, "claim"),
    }
    assert len(strategy.faults.all) == 5  # once each, not in every round
    trained = {m.metadata.dst_node_id for m in grid.sent if "round" in m.content[LABEL]}
    assert trained <= set(range(NODE, NODE + 8))


def test_nobody_comes(tmp_path: Path) -> None:
    grid = LoopGrid(scenario(), tmp_path)
    grid.nodes = {}
    strategy = make(scenario(), wait=0.1)
    with pytest.raises(RefusedError, match=r"no UE came within 0\.1 s"):
        strategy.start(grid, to_arrays(strategy.model, strategy.model.initial))


# The documentation --------------------------------------------------------------------------------


def test_the_example_of_the_documentation_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = (Path(__file__).parent.parent.parent / "docs" / "deployment.md").read_text("utf-8")
    (code,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    names: dict[str, Any] = {"__name__": "page"}
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


# Refused at once ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"strategy__name": "centralized"}, "strategy.name"),
        ({"fleet__computing": {"slot": 0.1}}, "fleet.computing"),
        ({"push__channel": "fedslot.access.channels:Collision"}, "push.channel"),
        ({"push__channel_options": {"nonsense": 1}}, "push.channel_options"),
    ],
)
def test_what_only_a_simulator_can_do_is_refused(changes: dict[str, object], field: str) -> None:
    good = scenario()
    simulation = Simulation(good)
    with pytest.raises(InputError, match=field):
        SlotAccess(scenario=scenario(**changes), model=simulation.model, held_out=simulation.held_out, deadline=1.0)


def test_limits_and_arrays_are_checked(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"limits\.norm"):
        Limits(norm=0.5)
    strategy = make(scenario())
    with pytest.raises(InputError, match="initial_arrays"):
        strategy.start(LoopGrid(scenario(), tmp_path), ArrayRecord({"x": Array(np.zeros(3, np.float32))}))


# Devices that conspire, or are alone ----------------------------------------------------------------


def _layer(end: str, factor: float) -> Tamper:
    """The honest reply with the arrays of one layer multiplied."""

    def tamper(message: Message, reply: Message) -> Message:
        arrays = {
            name: Array(factor * array.numpy() if name.startswith(end) else array.numpy())
            for name, array in reply.content["arrays"].items()
        }
        return _with(arrays=ArrayRecord(arrays))(message, reply)

    return tamper


def _reasons(strategy: SlotAccess) -> set[str]:
    return {fault.reason for fault in strategy.faults.all}


@pytest.mark.parametrize("liars", [1, 3, 4])
def test_claims_of_any_size_end_nothing(liars: int, tmp_path: Path) -> None:
    alone = {"frame__slots": 1, "frame__pull": 1, "push__contenders": 0} if liars == 1 else {}
    for number, claim in enumerate((2**63 - 1, 2**40)):
        tamper = dict.fromkeys(range(liars), _examples(claim))
        folder = tmp_path / str(number)
        folder.mkdir()
        strategy = deploy(scenario(**alone), folder, tamper, rounds=2)
        assert strategy.now.round == 2
        assert torch.isfinite(strategy.now.model).all()
        assert ("examples" in _reasons(strategy)) == (claim > 2**40)


def test_updates_that_overflow_only_together_end_nothing(tmp_path: Path) -> None:
    names = list(make(scenario()).model.shapes)
    first, last = (name.partition(".")[0] for name in (names[0], names[-1]))
    tamper = {0: _layer(f"{first}.", 1e34), 1: _layer(f"{last}.", 1e34)}
    strategy = deploy(scenario(), tmp_path, tamper, rounds=2, limits=Limits(norm=1e38))
    assert _reasons(strategy) & {"values", "aggregate"}
    assert strategy.now.round == 2
    assert torch.isfinite(strategy.now.model).all()
    assert np.isfinite(strategy.now.state.value[strategy.now.state.seen > 0]).all()


@pytest.mark.parametrize("kind", [Momentum, Adam])
def test_a_round_that_comes_to_nothing_leaves_no_trace_in_the_moments(kind: type[SlotAccess], tmp_path: Path) -> None:
    """Poison in one round only: the rounds after it go on as if it had not been."""
    names = list(make(scenario()).model.shapes)
    first, last = (name.partition(".")[0] for name in (names[0], names[-1]))

    def only_at_first(bad: Tamper) -> Tamper:
        def tamper(message: Message, reply: Message) -> Any:
            turn = Turn.from_record(message.content.config_records[LABEL])
            return bad(message, reply) if turn.round == 0 else reply

        return tamper

    tamper = {0: only_at_first(_layer(f"{first}.", 1e34)), 1: only_at_first(_layer(f"{last}.", 1e34))}
    options = {"server_learning_rate": 1.0, "server_momentum": 0.9} if kind is Momentum else {"eta": 0.01}
    strategy = make(scenario(), kind, limits=Limits(norm=1e38), **options)
    strategy.start(LoopGrid(scenario(), tmp_path, tamper), to_arrays(strategy.model, strategy.model.initial), 3)
    assert [fault for fault in strategy.faults.all if fault.round > 0] == []
    assert "aggregate" in _reasons(strategy)
    assert not torch.equal(strategy.now.model, strategy.model.initial)
    assert torch.isfinite(strategy.now.model).all()


def test_nobody_raises_the_limit_for_the_norm(tmp_path: Path) -> None:
    """One that moves as far as it may, round after round, is refused; the honest ones are not."""
    wanted = scenario(rounds=8, strategy__name="greedy-shap")
    strategy = deploy(wanted, tmp_path, {1: _every(lambda numbers: 9 * numbers)})
    assert {fault.ue for fault in strategy.faults.all} <= {1}
    first = float(strategy.model.initial.norm())
    assert float(strategy.now.model.norm()) < 8 * 10 * first


def test_a_metric_that_one_device_leaves_out_costs_only_itself(without_ue_1: torch.Tensor, tmp_path: Path) -> None:
    def more(message: Message, reply: Message) -> Message:
        metrics = MetricRecord({**reply.content["metrics"], "train_loss": 0.5})
        return _with(metrics=metrics)(message, reply)

    strategy = deploy(scenario(), tmp_path, {ue: more for ue in range(8) if ue != 1}, rounds=1)
    torch.testing.assert_close(strategy.now.model, without_ue_1, rtol=1e-5, atol=1e-6)
    assert [(fault.ue, fault.reason) for fault in strategy.faults.all] == [(1, "metrics")]


def test_a_torn_line_of_faults_is_dropped(tmp_path: Path) -> None:
    FaultLog(tmp_path).add([Fault(0, 1, NODE, "norm")])
    file = tmp_path / "faults.csv"
    for torn in ("1,1,10", "1,", '2,3,4,"no'):
        file.write_text(file.read_text("utf-8") + torn, "utf-8")
        assert FaultLog(tmp_path, until=9).all == [Fault(0, 1, NODE, "norm")]


def test_a_grid_with_a_deadline_forgets_what_nobody_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Silent(LoopGrid):
        def pull_messages(self, message_ids: Iterable[str]) -> list[Message]:
            return []

    monkeypatch.setattr("fedslot.deployment.flower.grid.FORGET", 0.0)
    grid = DeadlineGrid(Silent(scenario(), tmp_path), seconds=0.05, poll=0.005)
    record = RecordDict({LABEL: ConfigRecord({"who": True})})
    for _ in range(4):
        assert grid.send_and_receive([Message(record, NODE, "train")]) == []
        time.sleep(0.06)
    assert len(grid.open) < 4
