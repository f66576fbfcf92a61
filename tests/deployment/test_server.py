"""The parameter server without a transport: the simulator's answer, restarts, and bad updates."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from hostile_bytes import COMPRESSION, HOSTILE
from numpy.typing import NDArray
from small_cell import model_without_ue_1, scenario

import fedslot
from fedslot import InputError, RefusedError, Scenario
from fedslot.aggregation import AGGREGATIONS, average
from fedslot.deployment.encoding import Carried
from fedslot.deployment.frame import Turn
from fedslot.deployment.screening import Limits, Refusal
from fedslot.deployment.server import ParameterServer
from fedslot.rounds.local_training import LocalTraining
from fedslot.rounds.simulation import Simulation
from fedslot.rounds.states import state_arrays
from fedslot.rounds.trace import EVENTS
from fedslot.runs.records import frame_table, round_table
from fedslot.updates import Link, Memory, Outgoing, Sender


@dataclass(frozen=True)
class Message:
    """A reply in this process. encoded: the update as bytes, if it is compressed."""

    round: object
    used: object
    model: NDArray[np.float32]
    shapes: Mapping[str, tuple[int, ...]]
    metrics: dict[str, object]
    encoded: bytes | None = None

    def slots(self) -> tuple[object, object]:
        return self.round, self.used

    def size(self) -> int:
        return self.model.nbytes if self.encoded is None else len(self.encoded)

    def content(self) -> tuple[dict[str, bytes] | bytes, dict[str, object]]:
        if self.encoded is not None:
            return self.encoded, self.metrics
        parts = np.split(self.model, np.cumsum([int(np.prod(shape)) for shape in self.shapes.values()])[:-1])
        named = zip(self.shapes.items(), parts, strict=True)
        return {name: _npy(part.reshape(shape)) for (name, shape), part in named}, self.metrics


def _npy(array: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array)
    return buffer.getvalue()


Tamper = Callable[[Message], Any]


class Cell:
    """A parameter server and its devices in one process.

    tamper: what becomes of a UE's reply, by UE: another reply, a list of replies, or None for silence.
    """

    def __init__(self, scenario: Scenario, tamper: dict[int, Tamper] | None = None, **options: Any) -> None:
        simulation = Simulation(scenario)
        self.server = ParameterServer(scenario, simulation.model, simulation.held_out, **options)
        self.train, self.tamper, self.absent = LocalTraining.of(scenario), tamper or {}, set[int]()
        self.here: set[int] | None = None  # as the PS knows when it announces a frame
        self.errors = {ue: Carried(np.empty(0, np.float32)) for ue in range(scenario.data.ues)}
        self.links: dict[int, Carried[Memory]] = {ue: Carried({}) for ue in range(scenario.data.ues)}

    def run(self, rounds: int = 10**6) -> ParameterServer:
        self.server.start()
        names = {ue: f"node{ue}" for ue in range(self.server.scenario.data.ues)}
        self.server.roster.bind([(name, ue) for ue, name in names.items()], set(names.values()), 0)
        while rounds and (frame := self.server.announce(self.here)):
            here = {ue: names[ue] for ue in frame.turns if ue not in self.absent}
            replies = [(ue, reply) for ue in here for reply in self._answer(frame.turns[ue])]
            self.server.close(frame, here, replies[::-1])  # the order of arrival is of no importance
            rounds -= 1
        self.server.finish()
        return self.server

    def _answer(self, turn: Turn) -> list[Message]:
        encoding, error, links = self.server.encoding, self.errors[turn.ue], self.links[turn.ue]
        for state in (error, links):
            state.settle(turn.round, int(self.server.last_received[turn.ue]))
        heard = encoding.read_model(self.server.broadcast, turn.round, self.server.model.size)
        trained = self.train(torch.from_numpy(heard), np.array([turn.ue]), turn.round, links.value)
        links.advance(turn.round, trained.links)
        encoded, left = encoding.write_update(trained.models[0].numpy(), heard, turn.round, turn.ue, error.value)
        error.advance(turn.round, left)
        shapes = {name: tuple(shape) for name, shape in self.server.model.shapes.items()}
        metrics: dict[str, object] = {"num-examples": int(trained.sizes[0])}
        own = {"noise": float(self.train.fleet.noise[turn.ue]), "samples": float(trained.sizes[0])}
        reply = Message(turn.round, turn.draw(own), trained.models[0].numpy(), shapes, metrics)
        reply = reply if encoding.updates is None else replace(reply, encoded=encoded)
        reply = self.tamper.get(turn.ue, lambda reply: reply)(reply)
        return reply if isinstance(reply, list) else [] if reply is None else [reply]


def with_loss(reply: Message) -> Message:
    return replace(reply, metrics={**reply.metrics, "train_loss": 0.5})


def faults(server: ParameterServer) -> list[tuple[int, int, str]]:
    return [(fault.round, fault.ue, fault.reason) for fault in server.faults.all]


# The simulator's answer ---------------------------------------------------------------------------


class Halved(Link):
    """Sends half of what is due, and keeps the other half for the next update."""

    def init(self, model: torch.Tensor) -> torch.Tensor:
        return torch.zeros_like(model)

    def apply(self, update: Outgoing, sender: Sender, state: torch.Tensor) -> tuple[Outgoing, torch.Tensor]:
        due = (update.model - update.start + state) / 2
        return replace(update, model=update.start + due), due


TWO_BITS = {"name": "quantise", "options": {"bits": 2}}
FOLLOWED = {**TWO_BITS, "feedback": True}
SPARSE = {"name": "top-k", "options": {"share": 0.1, "values": "eden"}, "feedback": True}


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
        {"valuation__name": "kriging", "strategy__memory": "mean"},
        {"time_budget": 18, "seed": 5},
        {"training__batches": None, "training__batch_size": 8, "data__partition": "label-quantity"},
        {"training__task": {"name": "classification", "options": {"score": "macro-f1"}}},
        {"push__arrivals": 0.5, "cost_rule": "frame"},
        {"strategy__name": "scout", "aggregation__name": "filtered", "rounds": 15},
        {"strategy__name": "merit-push", "aggregation__name": "filtered", "rounds": 15, "fleet__noise": 0.5},
        {"training__ps": "alone", "data__validation_samples": 60, "rounds": 15},
        {"training__ps": "start", "data__validation_samples": 60, "rounds": 15},
        {"training__ps": "join", "data__validation_samples": 60, "rounds": 15, "aggregation__name": "filtered"},
        {"compression": TWO_BITS},
        {"compression": FOLLOWED, "broadcast_compression": {"name": "eden", "options": {"bits": 6}}},
        {"compression": SPARSE, "chain": [Halved, "noise"]},
        {"broadcast_compression": {"name": "quantise", "options": {"bits": 8}}, "push__channel": "irsa"},
        {"compression": "drive", "strategy__name": "scout", "aggregation__name": "filtered", "rounds": 15},
    ],
    ids=str,
)
def test_same_answer_as_the_simulator(changes: dict[str, object], tmp_path: Path) -> None:
    wanted = scenario(**{"rounds": 10, "push__contenders": 3, **changes})
    rows, snapshots, frames = zip(*Simulation(wanted).rounds(), strict=True)
    server = Cell(wanted, out=tmp_path / "out").run()

    torch.testing.assert_close(server.now.model, snapshots[-1].model, rtol=1e-4, atol=1e-5)
    ours, theirs = state_arrays(server.now.state), state_arrays(snapshots[-1].state)
    for name, array in theirs.items():
        np.testing.assert_allclose(ours[name], array, rtol=1e-3, atol=1e-5, err_msg=name)
    assert server.faults.all == []

    measured, expected = fedslot.load(tmp_path / "out").rounds, round_table(rows)
    pd.testing.assert_frame_equal(
        measured.drop(columns="seconds"), expected.drop(columns="seconds"), rtol=1e-3, atol=1e-4
    )
    traced, expected = fedslot.load(tmp_path / "out").frames, frame_table(event for frame in frames for event in frame)
    pd.testing.assert_frame_equal(traced, expected, rtol=1e-3, atol=1e-4)
    assert (tmp_path / "out" / "summary.json").is_file()
    if changes.get("strategy__name") == "merit-push":  # devices chose themselves whether they push
        assert 0 < measured["push_received"].sum() < measured["push_received"].size * 3
        assert measured["slots"].nunique() > 1
    if not changes:  # the comparison saw everything that can happen in a frame
        assert (measured[["pulled", "push_received", "collided"]].sum() > 0).all()
        assert (measured["contenders"].iloc[2:] < 3).any()  # barred
        assert set(traced["event"]) == set(EVENTS) - {"wasted", "lost"}


class Stopper(fedslot.Callback):
    """Stops a training after a round, and notes what it is told."""

    def __init__(self, last: int) -> None:
        self.last, self.told = last, list[object]()

    def on_start(self, scenario: Scenario, done: int, folder: Path | None) -> None:
        self.told.append(("start", done, folder and folder.name))

    def on_round(self, round: fedslot.Round, frame: Sequence[fedslot.Event]) -> bool:
        self.told.append((round.round, {event.round for event in frame}))
        return round.round == self.last

    def on_end(self, result: fedslot.Result | None) -> None:
        self.told.append(("end", result and len(result.rounds), result and result.stopped))


def test_callbacks_are_told_and_may_stop_a_training(tmp_path: Path) -> None:
    wanted, out = scenario(rounds=4), tmp_path / "out"
    for folder in (None, out):
        stopper = Stopper(1)
        Cell(wanted, out=folder, callbacks=[stopper]).run()
        assert stopper.told == [("start", 0, folder and "out"), (0, {0}), (1, {1}), ("end", 2, True)]
    assert not (out / "summary.json").exists()
    stopper = Stopper(3)
    Cell(wanted, out=out, resume=True, callbacks=[stopper]).run()
    assert stopper.told == [("start", 2, "out"), (2, {2}), (3, {3}), ("end", 4, False)]
    assert (out / "summary.json").exists()
    Cell(wanted, out=tmp_path / "whole").run()
    assert (out / "frames.csv").read_text() == (tmp_path / "whole" / "frames.csv").read_text()


def test_a_training_that_is_interrupted_has_no_result(tmp_path: Path) -> None:
    stopper = Stopper(9)
    Cell(scenario(rounds=4), out=tmp_path / "out", callbacks=[stopper], frames=False).run(rounds=2)
    assert stopper.told[-1] == ("end", None, None)
    assert not (tmp_path / "out" / "frames.csv").exists()


def test_a_training_that_never_began_leaves_no_folder(tmp_path: Path) -> None:
    class Broken(fedslot.Callback):
        def on_start(self, *told: object) -> None:
            raise RefusedError("not today")

    with pytest.raises(RefusedError, match="not today"):
        Cell(scenario(rounds=1), out=tmp_path / "out", callbacks=[Broken()]).run()
    assert not (tmp_path / "out").exists()


# Restarts -----------------------------------------------------------------------------------------


def test_which_folders_are_refused(tmp_path: Path) -> None:
    wanted = scenario()
    Cell(wanted, out=tmp_path).run(1)
    with pytest.raises(RefusedError, match="holds a run already"):
        Cell(wanted, out=tmp_path).run()
    with pytest.raises(RefusedError, match="seed is 0, not 1"):
        Cell(scenario(seed=1), out=tmp_path, resume=True).run()
    holder = Cell(wanted, out=tmp_path, resume=True).server
    holder.start()
    with pytest.raises(RefusedError, match="in use by another process"):
        Cell(wanted, out=tmp_path, resume=True).run()
    holder.finish()
    with pytest.raises(RefusedError, match="cannot be continued: it was made by a deployment"):
        fedslot.run(wanted, tmp_path, resume=True)
    (tmp_path / "faults.csv").write_bytes(bytes(range(128, 256)))
    with pytest.raises(RefusedError, match=r"faults.csv cannot be read"):
        Cell(wanted, out=tmp_path, resume=True).run()
    Cell(wanted, out=tmp_path, force=True).run(1)


@pytest.mark.parametrize(
    ("name", "aggregate"),
    [("average", None), ("fedadam", None), ("average", AGGREGATIONS.make("fedavgm", {}))],
    ids=["average", "fedadam", "a transport's own"],
)
def test_a_restarted_server_continues_as_if_unbroken(name: str, aggregate: Any, tmp_path: Path) -> None:
    wanted = scenario(aggregation__name=name)
    unbroken = Cell(wanted, aggregate=aggregate, out=tmp_path / "unbroken").run()
    first = Cell(wanted, aggregate=aggregate, out=tmp_path / "broken").run(rounds=3)
    assert first.now.round == 3
    assert not (tmp_path / "broken" / "summary.json").is_file()
    for _ in range(2):  # the second time, there is nothing left to do
        again = Cell(wanted, aggregate=aggregate, out=tmp_path / "broken", resume=True).run()
        assert torch.equal(again.now.model, unbroken.now.model)
        np.testing.assert_array_equal(again.now.state.value, unbroken.now.state.value)
        assert again.roster.nodes == unbroken.roster.nodes
        assert again.claims.tolist() == unbroken.claims.tolist()
        assert again.received.tolist() == unbroken.received.tolist()
    rows = [fedslot.load(tmp_path / name).rounds.drop(columns="seconds") for name in ("unbroken", "broken")]
    pd.testing.assert_frame_equal(*rows)


@pytest.mark.parametrize("name", ["scout", "merit-push"])
def test_devices_that_return_the_model_as_it_came(name: str) -> None:
    """Most of them, from the first frame on: the training goes on."""
    wanted = scenario(strategy__name=name, rounds=4)
    cell = Cell(wanted)
    first = cell.server.model.initial.numpy()
    cell.tamper = {ue: lambda reply: replace(reply, model=first.copy()) for ue in range(7)}
    assert cell.run().now.round == 4


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"strategy__name": "centralized"}, "strategy.name"),
        ({"strategy__name": "power-of-choice"}, "strategy.name.*asks UEs nothing"),
        ({"fleet__computing": {"slot": 0.1}}, "fleet.computing"),
        ({"push__channel": "fedslot.access.channels:Collision"}, "push.channel"),
        ({"compression": "fedslot.compression.sign:Sign"}, "compression: .*one of quantise"),
        ({"broadcast_compression": "fedslot.compression.sign:Sign"}, "broadcast_compression: .*one of quantise"),
        ({"compression": {"name": "top-k", "options": {"values": "os:system"}}}, "compression: .*one of quantise"),
    ],
)
def test_what_only_the_simulator_can_run_is_refused(changes: dict[str, object], field: str) -> None:
    simulation = Simulation(scenario())
    with pytest.raises(InputError, match=field):
        ParameterServer(scenario(**changes), simulation.model, simulation.held_out)


# Bad updates --------------------------------------------------------------------------------------


class Broken(Message):
    """A reply that cannot be read."""

    def content(self) -> Any:
        raise KeyError("no such class")


class Failed(Message):
    """A device that reports an error in place of its slots."""

    def slots(self) -> Any:
        raise Refusal("error", "out of memory")


def scaled(factor: float) -> Tamper:
    return lambda reply: replace(reply, model=factor * reply.model)


def claiming(examples: object) -> Tamper:
    return lambda reply: replace(reply, metrics={"num-examples": examples})


BAD: dict[str, tuple[Tamper, str]] = {
    "nan": (scaled(np.nan), "finite"),
    "far away": (scaled(1e6), "norm"),
    "huge": (lambda reply: replace(reply, model=np.zeros(10**6, np.float32)), "size"),
    "other shapes": (lambda reply: replace(reply, shapes={"x": reply.model.shape}), "keys"),
    "no examples": (claiming(0), "examples"),
    "another round": (lambda reply: replace(reply, round=7), "round"),
    "another's slot": (lambda reply: replace(reply, used=[1]), "slot"),
    "unreadable": (lambda reply: Broken(**vars(reply)), "malformed"),
    "error": (lambda reply: Failed(**vars(reply)), "error"),
    "silence": (lambda reply: None, "silent"),
    "infinite loss": (scaled(1e25), "loss"),
}


@pytest.fixture(scope="module")
def without_ue_1() -> torch.Tensor:
    return model_without_ue_1()


@pytest.mark.parametrize("case", BAD)
def test_a_bad_reply_costs_only_its_own_update(case: str, without_ue_1: torch.Tensor, tmp_path: Path) -> None:
    tamper, reason = BAD[case]
    limits = Limits(norm=1e30 if reason == "loss" else 10.0)
    server = Cell(scenario(), {1: tamper}, out=tmp_path / "out", limits=limits).run(rounds=1)
    torch.testing.assert_close(server.now.model, without_ue_1, rtol=1e-5, atol=1e-6)
    written = pd.read_csv(tmp_path / "out" / "faults.csv")
    assert written[["round", "ue", "node", "reason"]].to_numpy().tolist() == [[0, 1, "node1", reason]]
    (row,) = fedslot.load(tmp_path / "out").rounds.to_dict("records")
    assert (row["pulled"], row["wasted"], row["cost_max"]) == (3, 1, 5)
    assert server.now.state.seen.tolist() == [1, 0, 1, 1, 0, 0, 0, 0]


@pytest.fixture(scope="module")
def compressed_without_ue_1() -> torch.Tensor:
    return Cell(scenario(compression=COMPRESSION), {1: lambda reply: None}).run(rounds=1).now.model


@pytest.mark.parametrize("case", HOSTILE)
def test_hostile_bytes_cost_only_their_own_update(case: str, compressed_without_ue_1: torch.Tensor) -> None:
    change, reason = HOSTILE[case]
    cell = Cell(scenario(compression=COMPRESSION))
    cell.tamper = {1: lambda reply: replace(reply, encoded=change(reply.encoded, cell.server.model.tensor_shapes))}
    server = cell.run(rounds=1)
    assert faults(server) == [(0, 1, reason)]
    assert torch.equal(server.now.model, compressed_without_ue_1)


def test_an_update_that_is_not_compressed_as_announced(compressed_without_ue_1: torch.Tensor) -> None:
    server = Cell(scenario(compression=COMPRESSION), {1: lambda reply: replace(reply, encoded=None)}).run(rounds=1)
    assert faults(server) == [(0, 1, "encoding")]
    assert torch.equal(server.now.model, compressed_without_ue_1)


def test_bad_replies_through_a_whole_run(tmp_path: Path) -> None:
    """Every kind of bad reply in turn from two of eight UEs: the model stays finite and still learns."""
    kinds = iter([tamper for tamper, _ in BAD.values()] * 10)
    wanted = scenario(rounds=15, fleet__noise=0.0, push__channel="crdsa")
    bad: Tamper = lambda reply: next(kinds)(reply) if reply.used else reply  # noqa: E731
    server = Cell(wanted, {2: bad, 5: bad}, out=tmp_path / "out").run()
    rounds = fedslot.load(tmp_path / "out").rounds
    assert len(rounds) == 15
    assert rounds["test_accuracy"].iloc[-1] > rounds["test_accuracy"].iloc[0] + 0.1
    assert {fault.ue for fault in server.faults.all} == {2, 5}
    assert server.now.state.seen[[2, 5]].tolist() == [0, 0]


def test_absent_ues_waste_their_slots(without_ue_1: torch.Tensor) -> None:
    cell = Cell(scenario())
    cell.absent = {1}
    torch.testing.assert_close(cell.run(rounds=1).now.model, without_ue_1, rtol=1e-5, atol=1e-6)
    assert [(fault.ue, fault.node, fault.reason) for fault in cell.server.faults.all] == [(1, "0", "absent")]


@pytest.mark.parametrize("strategy", ["push-pull", "greedy-shap", "only-pull", "round-robin", "ucb", "merit-push"])
def test_ues_that_are_known_to_be_absent_are_not_pulled(strategy: str, tmp_path: Path) -> None:
    """UE 1 is never asked while it is away, whichever strategy chooses, and is pulled again after its return."""
    cell = Cell(scenario(strategy__name=strategy, rounds=16), out=tmp_path / "out")
    cell.absent, cell.here = {1}, {0, *range(2, 8)}
    cell.run(rounds=4)
    again = Cell(scenario(strategy__name=strategy, rounds=16), out=tmp_path / "out", resume=True)
    again.here = set(range(8))
    again.run()
    pulled = fedslot.load(tmp_path / "out").frames.query("event == 'pulled' and ue == 1")["round"]
    assert fedslot.load(tmp_path / "out").rounds["wasted"].sum() == 0
    assert pulled.min() >= 4


def test_the_log_says_once_who_went_and_who_came(caplog: pytest.LogCaptureFixture) -> None:
    """A device that is away for months must not fill the log; `faults.csv` has a row for each update that it owes."""
    cell = Cell(scenario(push__contenders=6, strategy__warmup=0, rounds=9))
    cell.absent, cell.here = {1, 2}, set(range(8)) - {1, 2}
    with caplog.at_level("INFO"):
        cell.run(rounds=3)
        cell.absent, cell.here = {2}, set(range(8)) - {2}
        assert cell.server.announce(cell.here)
    assert faults(cell.server).count((2, 1, "absent")) == 1
    lines = [record.getMessage() for record in caplog.records]
    assert lines == ["round 0: offline: UE 1-2", "round 3: here: UE 1"]


def test_a_duplicate_counts_once() -> None:
    honest = Cell(scenario()).run(rounds=1)
    twice = Cell(scenario(), {1: lambda reply: [reply, reply]}).run(rounds=1)
    assert torch.equal(twice.now.model, honest.now.model)
    assert faults(twice) == [(0, 1, "duplicate")]


def test_a_metric_that_one_device_leaves_out_costs_only_itself(without_ue_1: torch.Tensor) -> None:
    server = Cell(scenario(), {ue: with_loss for ue in range(8) if ue != 1}, metrics=["train_loss"]).run(rounds=1)
    torch.testing.assert_close(server.now.model, without_ue_1, rtol=1e-5, atol=1e-6)
    assert faults(server) == [(0, 1, "metrics")]


def test_a_majority_cannot_exclude_others_by_a_metric() -> None:
    """What an update must have is the PS's to say."""
    plain, extra = (Cell(scenario(), dict.fromkeys(liars, with_loss)).run(rounds=1) for liars in ([], [0, 2, 3]))
    assert torch.equal(plain.now.model, extra.now.model)
    assert faults(extra) == []


@pytest.mark.parametrize(("silent", "missing"), [(4, 0), (5, 10)])
def test_a_training_that_lacks_most_updates_says_so(silent: int, missing: int, tmp_path: Path) -> None:
    """Two frames that pull all of eight UEs; also after a restart between them."""
    wanted = scenario(frame__slots=8, frame__pull=8, push__contenders=0, rounds=2)
    say_nothing: dict[int, Tamper] = dict.fromkeys(range(silent), lambda reply: None)
    first = Cell(wanted, say_nothing, out=tmp_path / "out").run(rounds=1)
    server = Cell(wanted, say_nothing, out=tmp_path / "out", resume=True).run() if missing else first
    says = f"most updates are missing: {missing} of 16 that were expected did not come or were refused"
    assert server.shortfall == (says if missing else "")


def test_an_update_that_came_twice_is_not_missing() -> None:
    twice: dict[int, Tamper] = dict.fromkeys(range(8), lambda reply: [reply, reply])
    assert Cell(scenario(), twice).run(rounds=2).shortfall == ""


def test_nobody_buys_weight() -> None:
    server = Cell(scenario(), {1: claiming(10**12)}).run(rounds=1)
    training = LocalTraining.of(scenario())
    trained = training(training.trainer.model.initial, np.arange(4), 0)
    sizes = trained.sizes.copy()
    sizes[1] = int(10 * sorted(sizes[[0, 2, 3]])[1])  # ten times the lower median of four, the lie among them
    torch.testing.assert_close(server.now.model, average(trained.models, sizes), rtol=1e-4, atol=1e-5)
    assert faults(server) == [(0, 1, "weight")]


@pytest.mark.parametrize("liars", [1, 3, 4])
@pytest.mark.parametrize(("claim", "refused"), [(2**63 - 1, True), (2**40, False)])
def test_claims_of_any_size_do_not_end_the_training(liars: int, claim: int, refused: bool) -> None:
    alone = {"frame__slots": 1, "frame__pull": 1, "push__contenders": 0} if liars == 1 else {}
    server = Cell(scenario(**alone), dict.fromkeys(range(liars), claiming(claim))).run(rounds=2)
    assert server.now.round == 2
    assert torch.isfinite(server.now.model).all()
    assert ("examples" in {reason for _, _, reason in faults(server)}) is refused


def scaling_a_layer(first: bool) -> Tamper:
    """One of two updates with finite losses whose average overflows."""

    def tamper(reply: Message) -> Message:
        sizes = [int(np.prod(shape)) for shape in reply.shapes.values()]
        model = reply.model.copy()
        layer = slice(0, sum(sizes[:2])) if first else slice(-sum(sizes[-2:]), None)
        model[layer] *= np.float32(1e34)
        return replace(reply, model=model)

    return tamper


OVERFLOWING = {0: scaling_a_layer(True), 1: scaling_a_layer(False)}


def test_updates_that_overflow_only_together_do_not_end_the_training() -> None:
    server = Cell(scenario(), OVERFLOWING, limits=Limits(norm=1e38)).run(rounds=2)
    assert {reason for _, _, reason in faults(server)} & {"values", "aggregate"}
    assert server.now.round == 2
    assert torch.isfinite(server.now.model).all()
    assert np.isfinite(server.now.state.value[server.now.state.seen > 0]).all()


def test_a_failed_aggregation_is_undone() -> None:
    """Neither the model nor the momentum keeps anything of it."""
    wanted = scenario(aggregation__name="fedavgm")
    server = Cell(wanted, OVERFLOWING, limits=Limits(norm=1e38)).run(rounds=1)
    assert "aggregate" in {reason for _, _, reason in faults(server)}
    assert torch.equal(server.now.model, server.model.initial)
    assert not server.now.aggregation.momentum.any()


def test_nobody_raises_the_limit_of_the_norm() -> None:
    """A device that moves as far as it may, round after round, is refused; the honest ones are not."""
    server = Cell(scenario(rounds=8, strategy__name="greedy-shap"), {1: scaled(9)}).run()
    assert {fault.ue for fault in server.faults.all} <= {1}
    assert float(server.now.model.norm()) < 8 * 10 * float(server.model.initial.norm())


def test_collided_updates_are_dropped_unread(tmp_path: Path) -> None:
    read: list[object] = []

    class Seen(Message):
        def content(self) -> Any:
            read.append(self.round)
            return super().content()

    wanted = scenario(push__probability=1.0, push__contenders=5)
    Cell(wanted, dict.fromkeys(range(8), lambda reply: Seen(**vars(reply))), out=tmp_path).run()
    rounds = fedslot.load(tmp_path).rounds
    assert rounds["collided"].sum() > 0
    assert len(read) == rounds["pulled"].sum() + rounds["push_received"].sum()
