"""The parameter server of a deployment: everything between announcing a frame and saving the next global model."""

from __future__ import annotations

import math
import secrets
import time
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from functools import partial
from logging import INFO, WARNING, getLogger
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedslot.access.clock import radio_of
from fedslot.access.reach import pull_only
from fedslot.aggregation import Aggregation
from fedslot.compression import Key
from fedslot.deployment.changes import (
    REQUEST,
    Change,
    apply,
    changed,
    difference,
    from_json,
    read_request,
    to_json,
    write_record,
)
from fedslot.deployment.encoding import Encoding, read_message
from fedslot.deployment.faults import ABSENT, NO_NODE, Fault, FaultLog
from fedslot.deployment.frame import Frame, write_channel
from fedslot.deployment.pace import Pace
from fedslot.deployment.presence import PRESENCE, Presence, say_ues
from fedslot.deployment.reception import Reply, screen
from fedslot.deployment.roster import Roster
from fedslot.deployment.screening import (
    SECONDS,
    WEIGHT,
    Limits,
    Refusal,
    Update,
    check_metrics,
    check_move,
    check_size,
    most_bytes,
    read_model,
    read_update,
    read_version,
)
from fedslot.deployment.timing import Timing
from fedslot.learning.models import Model
from fedslot.messages import Receipt, Time, UEs
from fedslot.rounds.held_out import HeldOut
from fedslot.rounds.local_training import Trained
from fedslot.rounds.ps import MOST_REPORT, PS
from fedslot.rounds.round import Round, backlogged, cell
from fedslot.rounds.states import carry
from fedslot.runs.callbacks import Callback, Callbacks
from fedslot.runs.folders import write_atomically
from fedslot.runs.provenance import FORMAT, Fingerprints, part_fingerprints
from fedslot.runs.records import RunFolder, checksum, round_table
from fedslot.runs.results import Result
from fedslot.scenario import RatesPart, Scenario
from fedslot.strategies import Asking, Strategy
from fedslot.support.errors import InputError, RefusedError
from fedslot.support.limits import longest_step
from fedslot.updates import BITS

logger = getLogger(__name__)


class ParameterServer:
    """Runs the rounds of a scenario on devices; a transport carries the messages.

        server.start()
        while frame := server.announce():
            # the transport sends server.broadcast and frame.turns to the UEs, and collects their replies
            server.close(frame, reached, replies)
        server.finish()

    scenario: the cell, the strategy and the valuation, as studied in the simulator.
    aggregate: replaces the scenario's own aggregation.
    out: folder for the files of a run and `faults.csv`; None writes no files.
    resume: continue the run in the folder. force: start over in the folder of a run, which is deleted.
    seeded: UEs draw their slots from the scenario's seed, as in the simulator; otherwise from their own entropy.
    unasked: devices speak of their own accord. One that does not send says nothing, and unless `seeded`, a device
        knows by itself whether it has an update to push.
    keyed: a UE belongs to its node for good, because nodes have keys or certificates.
    weight: the metric that counts training samples. metrics: names of others that every update must have.
    frames: whether to write `frames.csv`.
    callbacks: once one of them stops the training, `announce` returns None.

    Of a frame that is announced: broadcast: the model as bytes, written as `encoding` says. heard: (P,) the model that
    UEs read in them. last_received: (K,) the round of the last received update of each UE, -1 if there is none.
    versions: in asynchronous mode, the models from which updates may have been trained, by the rounds that broadcast
    them. timing: lengths of the slots, of a transport with such; it sets them before `start`.
    """

    def __init__(
        self,
        scenario: Scenario,
        model: Model,
        held_out: HeldOut,
        aggregate: Aggregation[Any] | None = None,
        *,
        out: str | Path | None = None,
        resume: bool = False,
        force: bool = False,
        seeded: bool = True,
        unasked: bool = False,
        keyed: bool = False,
        limits: Limits = Limits(),  # noqa: B008
        weight: str = WEIGHT,
        metrics: Sequence[str] = (),
        callbacks: Sequence[Callback] = (),
        frames: bool = True,
    ) -> None:
        self.first, self.model, self.held_out, self.limits = scenario, model, held_out, limits
        self.own_aggregation = aggregate is not None
        self._aggregation = aggregate or scenario.aggregation.make()
        self.roster = Roster(scenario.data.ues, keyed)
        self.changes = list[Change]()
        self.seeded, self.unasked, self.weight, self.metrics = seeded, unasked, weight, tuple(metrics)
        self._follow(self._make_ps(scenario))
        self.folder = None if out is None else RunFolder(Path(out))
        self._opening = {"resume": resume, "force": force, "frames": frames}
        self._callbacks, self._running, self.stopped = Callbacks(callbacks), False, False
        self._rows: list[Round] = []
        self.claims = np.zeros(scenario.data.ues, dtype=np.int64)  # training samples that each UE claims
        self.faults = FaultLog()
        self.last_received = np.full(scenario.data.ues, -1)
        self.last_version = np.full(scenario.data.ues, -1)  # from which that update was trained
        self.versions: dict[int, Tensor] = {}
        self.timing: Timing | None = None
        self.training = secrets.token_hex(8)  # a name, under which versions are numbered
        self._elapsed, self._running_since = 0.0, time.monotonic()  # seconds of the training before this time
        self._start: Time | None = None  # slots when the present broadcast has been heard, by the clock of free frames
        self._ordered = dict[int, str]()  # the nodes of the UEs that were here when the last frame was announced
        self._due, self._missing = 0, 0  # updates that were expected, and those of them that did not come
        self._unfilled = 0  # pull slots of the frame for which no UE was here
        self._owed = set[int]()  # UEs that would have been pulled, but were away
        self.presence = Presence()
        self._here: frozenset[int] | None = None  # the UEs that could be reached in the last frame
        self._taken: str | None = None  # the request for a change that the next checkpoint will hold

    @property
    def scenario(self) -> Scenario:
        """The scenario as it is now, after all changes; `first` is that of the beginning."""
        return self.ps.scenario

    def _make_ps(self, scenario: Scenario) -> PS:
        Encoding.of(scenario, self.model.tensor_shapes)  # refuses schemes that devices do not have, before any is used
        strategy = scenario.strategy.make(cell(scenario, radio=radio_of(scenario, self.model.tensor_shapes)))
        _check(scenario, strategy)
        if scenario.is_asynchronous and not self.unasked:
            raise InputError("mode", scenario.mode, "synchronous where devices only answer, as over Flower")
        if scenario.fleet.computing is not None and not (scenario.is_asynchronous and self.seeded):
            allowed = (
                "null in a deployment, where UEs take the time that they take, but for mode=asynchronous and seeded"
            )
            raise InputError("fleet.computing", "set", allowed)
        takes_time = scenario.is_asynchronous and not self.seeded
        return PS(scenario, self.model, self.held_out, strategy, self._aggregation, takes_time=takes_time)

    def _follow(self, ps: PS) -> None:
        """Take the PS of a scenario, that of the beginning or one after a change."""
        self.ps, self.encoding = ps, Encoding.of(ps.scenario, self.model.tensor_shapes)
        self.roster.ues = ps.scenario.data.ues

    def start(self, initial: Tensor | None = None, origin: str = "") -> None:
        """Begin with a model (P,), by default the network's own, or with the folder's checkpoint.

        origin: the hash of that model, if a training shall be continued with the same one only.
        """
        self._origin = {"the model to begin with": origin} if origin else {}
        model = self._initial = self.model.initial if initial is None else initial
        self.now = self.ps.start(model)
        self._longest = longest_step(model, self.limits.norm)
        if self.ps.takes_time and self.timing is None:
            raise InputError("mode", self.scenario.mode, "synchronous or seeded, over a transport without timed slots")
        try:
            if self.folder:
                self._open(self.folder)
            self._callbacks.start(self.scenario, self.now.round, self._path)
        except BaseException as error:
            self._leave_folder()
            self._callbacks.end(None, error)
            raise
        self._running, self._running_since = True, time.monotonic()

    def note_presence(self, here: AbstractSet[int], connected: bool = True) -> None:
        """Note which UEs are here, and whether devices can be reached at all, for whoever looks on."""
        now = Presence(self.scenario.data.ues, frozenset(here), connected)
        if now != self.presence:
            self.presence = now
            if self.folder:
                write_atomically(self.folder.path / PRESENCE, now.to_json())

    def _say_presence(self, here: frozenset[int]) -> None:
        """Log which UEs came and went since the last frame, once, instead of a line on each absence."""
        self.faults.quiet = frozenset({ABSENT})
        before = frozenset(range(self.scenario.data.ues)) if self._here is None else self._here
        self._here = here
        for level, what, ues in ((WARNING, "offline", before - here), (INFO, "here", here - before)):
            if ues:
                fields = {"round": self.now.round, what: sorted(ues)}
                logger.log(level, "round %d: %s: UE %s", self.now.round, what, say_ues(ues), extra={"fields": fields})

    def announce(self, here: AbstractSet[int] | None = None) -> Frame | None:
        """Return the next frame, or None if the training is over.

        here: the UEs that can be reached now; the others are not pulled. None: any may be.
        """
        self._take_request()
        if here is not None:
            self._forget_orders(here)
        self._began, self._start = time.perf_counter(), self._broadcast_time()
        grant = self.ps.grant(self.now, self._start)
        if grant is None or self.stopped:
            return None
        self._unfilled = 0
        if here is not None:
            self._say_presence(frozenset(here))
        if here:  # without any, the frame is announced as it is, and takes its time
            if grant.order is not None:
                grant = replace(grant, order=grant.order[np.isin(grant.order, list(here))])
            wanted, slots = set(grant.pull.tolist()), self.scenario.frame.slots
            grant = pull_only(grant, here, self._owed, slots, self.now.round)
            self._owed = (self._owed | wanted - here) - set(grant.pull.tolist())
            self._unfilled = len(wanted) - len(grant.pull)
        self.broadcast, self.heard = self.ps.say(self.now)
        self.versions = self.ps.versions(self.now)
        is_open = self.unasked and not self.seeded
        self._grant = grant
        waiting = None if is_open else backlogged(self.scenario, grant, self.now.waiting, self.now.round)
        return Frame(self.scenario, grant, waiting, self.now.round, self.seeded, self.unasked)

    def close(self, frame: Frame, reached: Mapping[int, str], replies: Iterable[tuple[int, Reply]]) -> Round:
        """Make the next global model from the replies to a frame, and record and save the round.

        reached: the nodes of the UEs that must answer, by UE; the frame's other UEs count as absent.
        replies: each with the UE that it comes from, one of the frame.
        """
        receipt, updates, faults = screen(frame, reached, replies, partial(self._read, frame.round))
        self.faults.add(*faults)
        self._due += len(frame.expected) + self._unfilled
        self._missing += self._unfilled
        self._missing += len({fault.ue for fault in faults}.intersection(frame.expected) - updates.keys())
        trained = self._trained(receipt.received, updates, frame.round)
        if self.scenario.is_asynchronous:
            receipt = self._aged(receipt, [updates[ue] for ue in receipt.received.tolist()])
        excuse = partial(self._excuse, frame.round)
        row, self.now, events = self.ps.close(self.now, receipt, trained, self._began, excuse=excuse, start=self._start)
        self.last_received[receipt.received] = frame.round
        if not self.folder:
            self._rows.append(row)
        else:
            self.folder.append(row, events, self.now)
            came, owed = np.array([self._due, self._missing]), np.array(sorted(self._owed), dtype=np.int64)
            more = {"nodes": self.roster.to_array(), "claims": self.claims, "last_received": self.last_received}
            if self.scenario.is_asynchronous:
                elapsed, training = np.array(self._seconds()), np.array(self.training)
                more |= {"last_version": self.last_version, "elapsed": elapsed, "training": training}
            self.folder.save({**more, "came": came, "owed": owed, "changes": np.array(to_json(self.changes))})
            self._record_changes(self.folder.path)
        self.stopped = self._callbacks.round(row, events)
        return row

    def finish(self) -> None:
        """Close the files and leave the folder to others; write the summary if the training is over."""
        if not self._running:
            return
        self._running, result = False, None
        if self.shortfall:
            logger.warning("fedslot: %s", self.shortfall)
        try:
            is_over = self.now.round > 0 and self.ps.grant(self.now) is None
            if is_over or self.stopped:
                result = Result(
                    self.first,
                    self.folder.rounds() if self.folder else round_table(self._rows),
                    self.now.report.cpu().numpy(),
                    self.now.state,
                    folder=self._path,
                    stopped=not is_over,
                    finished=is_over,
                )
            if self.folder and result and is_over:
                self.folder.finish(result.summary())
            if self.folder:
                (self.folder.path / PRESENCE).unlink(missing_ok=True)
        finally:
            self._leave_folder()
        self._callbacks.end(result)

    @property
    def pace(self) -> Pace | None:
        """What devices need to know of the frame that is announced, if no frame waits for training."""
        if not self.scenario.is_asynchronous:
            return None
        pace = Pace(self.training, self.scenario.staleness.most)
        if not self.seeded:
            return pace
        grant, uplink = self._grant, self.ps.clock.radio.uplink_length
        order = [] if grant.order is None else grant.order.tolist()
        return replace(pace, start=self.ps.begins(self.now, 0), wait=grant.wait, uplink=uplink, order=order)

    @property
    def received(self) -> UEs:
        """The UEs that were received in the last frame that was closed."""
        return np.flatnonzero((self.last_received >= 0) & (self.last_received == self.now.round - 1))

    @property
    def update_bytes(self) -> int:
        """The most bytes of an update, without its header."""
        return 4 * self.model.size if self.ps.compression is None else self.ps.compression.most_bytes

    @property
    def shortfall(self) -> str:
        """Why the training is no success: most updates that were expected did not come; "" if most of them did."""
        if 2 * self._missing <= self._due:
            return ""
        return (
            f"most updates are missing: {self._missing} of {self._due} that were expected did not come or were refused"
        )

    def _leave_folder(self) -> None:
        if self.folder and self.now.round:
            self.folder.close()
        elif self.folder:  # there is nothing to continue, and the next try shall find no folder in its way
            self.folder.withdraw()

    @property
    def _path(self) -> Path | None:
        return None if self.folder is None else self.folder.path

    def _read(self, round: int, ue: int, reply: Reply) -> Update:
        """Return the update of a UE's reply; raise `Refusal` if it is not sound."""
        shapes, compression = {name: tuple(shape) for name, shape in self.model.shapes.items()}, self.ps.compression
        check_size(reply.size(), most_bytes(shapes) if compression is None else self.update_bytes)
        arrays, metrics = reply.content()
        version, start = round, self.heard
        if self.scenario.is_asynchronous:
            version = read_version(metrics, self.versions, int(self.last_version[ue]))
            start = self.versions[version]
        heard = start.cpu().numpy()
        if compression is None:
            model, bits = read_model(arrays, shapes), BITS * self.model.size
        else:
            if not isinstance(arrays, bytes):
                raise Refusal("encoding", f"not encoded by {compression.name}")
            model = heard + read_message(compression, arrays, Key(self.scenario.seed, version, ue))
            bits = 8 * len(arrays)
        update = read_update(model, metrics, self.weight, bits)
        check_metrics(update, self.metrics)
        check_move(update, heard, self._longest)
        loss, _ = self.held_out.validation.evaluate(torch.from_numpy(update.model).to(self.heard))
        if not math.isfinite(loss):
            raise Refusal("loss", "is not finite")
        return replace(update, version=version)

    def _aged(self, receipt: Receipt, updates: Sequence[Update]) -> Receipt:
        """Return a receipt with the versions and the computing times of the received updates, and note the former."""
        versions = np.array([update.version for update in updates], dtype=np.int64)
        self.last_version[receipt.received] = versions
        if (slot := self._slot_seconds) is None:  # training takes no time
            return replace(receipt, versions=versions)
        seconds = np.array([update.metrics.get(SECONDS, math.nan) for update in updates], dtype=np.float64)
        return replace(receipt, versions=versions, computing=np.round(seconds.clip(0, MOST_REPORT) / slot, 9))

    @property
    def _slot_seconds(self) -> float | None:
        """Length of a slot in which computing times are counted; None if training takes no time."""
        if not self.ps.takes_time:
            computing = self.scenario.fleet.computing
            return None if computing is None else computing.slot
        assert self.timing is not None
        return self.timing.slot / self.ps.clock.radio.uplink_length

    def _seconds(self) -> float:
        """Return for how long the training has been running, the time without a server left out."""
        return self._elapsed + time.monotonic() - self._running_since

    def _broadcast_time(self) -> Time | None:
        """Return when a broadcast of now will have been heard, in slots by the clock; None: by slots spent."""
        if not self.ps.takes_time or self._slot_seconds is None or self.timing is None:
            return None
        return (self._seconds() + self.timing.downlink) / self._slot_seconds

    def _forget_orders(self, here: AbstractSet[int]) -> None:
        """Order nothing any more from UEs that left, or were started again: they lost their training."""
        present = {ue: node for ue, node in self.roster.nodes.items() if ue in here}
        lost = [ue for ue in self.now.forecast.away.tolist() if present.get(ue) != self._ordered.get(ue)]
        self._ordered = present
        if lost:
            self.now = replace(self.now, forecast=self.now.forecast.without(np.array(lost)))

    def _trained(self, ues: UEs, updates: Mapping[int, Update], round: int) -> Trained:
        """Return the models of the received UEs (Y,), in the order of their slots."""
        mine = [updates[ue] for ue in ues.tolist()]
        models = np.array([update.model for update in mine], dtype=np.float32).reshape(len(mine), self.model.size)
        sizes = self._sizes(ues, np.array([update.examples for update in mine], dtype=np.int64), round)
        bits = np.array([update.bits for update in mine], dtype=np.int64)
        metrics = [update.metrics for update in mine]
        return Trained(torch.from_numpy(models).to(self.now.model), ues, sizes, bits, metrics=metrics)

    def _sizes(self, ues: UEs, claimed: NDArray[np.int64], round: int) -> NDArray[np.int64]:
        """Return the training samples that count for each UE: claims are limited by the median of all UEs' claims."""
        self.claims[ues] = claimed
        all_claims = np.sort(self.claims[self.claims > 0])
        most = int(self.limits.examples * all_claims[(len(all_claims) - 1) // 2]) if len(all_claims) else 0
        for ue, claim in zip(ues.tolist(), claimed.tolist(), strict=True):
            if claim > most:
                node = self.roster.nodes.get(ue, NO_NODE)
                self.faults.add(Fault(round, ue, node, "weight", f"{claim}, counted as {most}"))
        return np.minimum(claimed, most)

    def _excuse(self, round: int, step: str, error: Exception) -> None:
        """Log a failed step of a round: updates are to blame, and must not end a training."""
        detail = f"{type(error).__name__}: {error}; the present model stays" if step == "aggregate" else str(error)
        self.faults.add(Fault(round, -1, NO_NODE, step, detail))

    def _take_request(self) -> None:
        """Change the scenario as the folder's `change.yaml` asks; what cannot be changed is refused with a line."""
        file = None if self.folder is None else self.folder.path / REQUEST
        if file is None or not file.exists():
            return
        text = file.read_text("utf-8")
        try:
            fields = read_request(text)
            new = self._make_ps(changed(self.scenario, fields))
        except (InputError, RefusedError) as error:
            logger.warning("the change is refused: %s", error)
            file.unlink()
            return
        if fields := difference(self.scenario, new.scenario):
            self.changes.append(Change(self.now.round, fields))
            self._use(new)
            logger.info("from round %d on: %s", self.now.round, ", ".join(f"{k}={v}" for k, v in fields.items()))
        self._taken = text

    def _use(self, ps: PS) -> None:
        """Go on with another PS, whose scenario has changed; what is known of the UEs is kept."""
        now, fresh = self.now, ps.start(self.now.model)
        names = ("waiting", "failures", "heard", "silent", "owed", "state", "aggregation", "forecast")
        self.now = replace(now, **{name: carry(getattr(now, name), getattr(fresh, name)) for name in names})
        self._follow(ps)
        self.claims = carry(self.claims, np.zeros(self.roster.ues, dtype=np.int64))
        self.last_received = carry(self.last_received, np.full(self.roster.ues, -1))
        self.last_version = carry(self.last_version, np.full(self.roster.ues, -1))

    def _record_changes(self, folder: Path) -> None:
        """Write `changes.csv` and remove the request, once a checkpoint holds what it asked for."""
        if self._taken is None:
            return
        write_record(folder, self.changes)
        if (folder / REQUEST).exists() and (folder / REQUEST).read_text("utf-8") == self._taken:  # no later one
            (folder / REQUEST).unlink()
        self._taken = None

    def _open(self, folder: RunFolder) -> None:
        if self._opening["resume"] and "changes" in (saved := folder.more()):
            self.changes = from_json(str(saved["changes"]))
            self._follow(self._make_ps(apply(self.first, self.changes)))
            self.now = self.ps.start(self._initial)
        self.now = folder.open(self.first, self.now, self._made_of(), **self._opening)
        if saved := folder.more():
            self.roster.restore(saved["nodes"])
            self.claims, self.last_received = saved["claims"], saved.get("last_received", self.last_received)
            self._due, self._missing = saved.get("came", np.zeros(2, dtype=np.int64)).tolist()
            self._owed = set(saved.get("owed", self.claims[:0]).tolist())
            if self.scenario.is_asynchronous:
                self.last_version, self._elapsed = saved["last_version"], float(saved["elapsed"])
                self.training, self._ordered = str(saved["training"]), dict(self.roster.nodes)
        self.faults = FaultLog(folder.path, self.now.round)

    def _made_of(self) -> Fingerprints:
        """Return the hashes of what determines the rounds at the PS, apart from the scenario: parts and samples."""
        parts = [self.first.strategy, self.first.valuation, self.first.cost_rule]
        parts += [] if self.own_aggregation else [self.first.aggregation]
        samples = {
            f"{name}.{field}": getattr(part, field).cpu().numpy()
            for name, part in (("test", self.held_out.test), ("validation", self.held_out.labels))
            for field in ("x", "y")
        }
        return {
            "made by": "deployment",
            **FORMAT,
            **self._origin,
            "held-out samples": checksum(samples),
            **part_fingerprints(parts),
        }


def _check(scenario: Scenario, strategy: Strategy[Any]) -> None:
    """Refuse a scenario that only the simulator can run; there is no message that asks UEs for their losses."""
    if isinstance(strategy, Asking):
        raise InputError("strategy.name", scenario.strategy.name, "a strategy that asks UEs nothing, in a deployment")
    if scenario.trains_alone:
        raise InputError("strategy.name", scenario.strategy.name, "one that hears UEs, in a deployment")
    if scenario.pools_data:
        raise InputError("strategy.name", scenario.strategy.name, "one whose UEs send updates; no data leaves a device")
    if scenario.fleet.attack is not None:
        raise InputError("fleet.attack", scenario.fleet.attack.name, "null in a deployment: only simulated UEs lie")
    if scenario.fleet.availability is not None:
        part = scenario.fleet.availability
        raise InputError("fleet.availability", part.name, "null in a deployment, where UEs come and go by themselves")
    for name in ("outage", "duty_cycle", "joules_per_ue"):
        if value := getattr(scenario.radio, name):
            raise InputError(f"radio.{name}", value, "left out in a deployment: links do what they do")
    if scenario.radio.rates != RatesPart():
        raise InputError("radio.rates", scenario.radio.rates.name, "left out in a deployment: links do what they do")
    write_channel(scenario.push.channel.name, scenario.push.channel.options)
