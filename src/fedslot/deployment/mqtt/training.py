"""The devices of a scenario: UEs that train on their share of its data, as in the simulator."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable
from functools import partial
from logging import getLogger
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from fedslot.data.sources import NAMES
from fedslot.deployment.announcement import scenario_key
from fedslot.deployment.encoding import Carried, own_schemes
from fedslot.deployment.mqtt import messages
from fedslot.deployment.mqtt.broker import Broker, Connection
from fedslot.deployment.mqtt.device import Device, Train, Workers
from fedslot.deployment.mqtt.signing import Verifier
from fedslot.deployment.screening import SECONDS, Refusal, Update
from fedslot.deployment.timing import MOST_SECONDS
from fedslot.fleet import Computing
from fedslot.parts.kinds import STRATEGIES
from fedslot.rounds.local_training import LocalTraining
from fedslot.scenario import Scenario
from fedslot.support.errors import InputError, RefusedError
from fedslot.support.yaml_text import YAMLError, parse_yaml
from fedslot.updates import Memory

MOST_DEVICES = 300  # in one process: each has three open files, and paho-mqtt cannot wait for the 1024th
MOST_SCENARIO_BYTES = 1 << 20
LOOK_AGAIN = 0.1  # seconds
logger = getLogger(__name__)


def scenario_devices(
    scenario: Scenario, ues: Iterable[int], broker: Broker, cell: str = "cell", ps_key: str | Path | None = None
) -> list[Device]:
    """Return the devices of some UEs of a scenario, which share its data and their threads, and are ready to train."""
    wanted = list(ues)
    if len(wanted) > MOST_DEVICES:
        raise InputError("ues", f"{len(wanted)} of them", f"at most {MOST_DEVICES} in one process; start several")
    for ue in wanted:
        if not 0 <= ue < scenario.data.ues:
            raise InputError("ue", ue, f"one of the scenario's UEs, 0 to {scenario.data.ues - 1}")
    torch.set_num_threads(1)  # of each operation; devices train one at a time
    local, workers, key = LocalTraining.of(scenario), Workers(), scenario_key(scenario)
    fleet, model = local.fleet, local.trainer.model
    local.trainer.prepare()  # to compile takes longer than a frame
    local(model.initial, np.array(wanted[:1]), 0)  # and so does what libraries do at first
    links: dict[int, Carried[Memory]] = {ue: Carried({}) for ue in wanted}
    return [
        Device(
            ue,
            broker.of(ue),
            _training(local, ue, links[ue]),
            cell=cell,
            own={"noise": float(fleet.noise[ue]), "samples": float(fleet.sizes[ue])},
            scenario=key,
            parameters=model.size,
            ps_key=ps_key,
            carried=links[ue],
            computing=None if fleet.computing is None else partial(_slots, fleet.computing, ue),
            workers=workers,
        )
        for ue in wanted
    ]


def _slots(computing: Computing, ue: int, version: int) -> float:
    return float(computing.times(version)[ue])


def _training(local: LocalTraining, ue: int, links: Carried[Memory]) -> Train:
    def train(model: NDArray[np.float32], round: int) -> Update:
        start = torch.from_numpy(model).to(local.trainer.model.initial)
        me = np.array([ue])
        trained, loss = local.train(start, me, round), float(local.losses(start, me)[0])
        metrics = {"loss": loss, "norm": float((trained.models[0] - start).double().norm())}
        if (computing := local.fleet.computing) is not None:  # the time that the scenario says
            metrics[SECONDS] = _slots(computing, ue, round) * computing.section.slot
        trained = local.send(start, trained, round, links.value)
        links.advance(round, trained.links)
        return Update(trained.models[0].cpu().numpy(), int(trained.sizes[0]), metrics)

    return train


def fetch_scenario(
    broker: Broker, cell: str, wait: float, ps_key: str | Path | None = None, *, forever: bool = False
) -> Scenario:
    """Return the scenario that the PS of a cell trains, once there is one. forever: wait for a PS as long as it takes.

    One with parts of one's own is refused: a message must not import anything, nor name a file. ps_key: file of the
    PS's public key, with which it must be signed; None for any.
    """
    topics, running, texts = messages.Topics(cell), threading.Event(), list[bytes]()
    verifier, refusals = Verifier(cell, ps_key), list[str]()

    def hear(topic: str, content: bytes, retained: bool) -> None:
        _, what = topics.parse(topic)
        try:
            content, _ = verifier.open(what, content)
            state = ""
            if what == messages.STATUS:
                status = messages.read_status(content)
                status.check("the PS", "device")
                state = status.state
        except Refusal as refusal:
            if str(refusal) not in refusals:
                logger.warning("%s is refused (%s)", topic, refusal)
            refusals[:] = [str(refusal)]
            return
        if what == messages.SCENARIO and len(content) <= MOST_SCENARIO_BYTES:
            texts[:] = [content]
        elif state == messages.RUNNING:
            running.set()

    link = Connection(
        broker, [(topics.of(messages.PS, what), True) for what in (messages.SCENARIO, messages.STATUS)], hear
    )
    link.open(wait)
    try:
        came = running.wait(wait)
        while forever and not (came and texts):
            came = running.wait(MOST_SECONDS)
            time.sleep(LOOK_AGAIN)
    finally:
        link.close()
    if (not came or not texts) and refusals:
        raise RefusedError(f"the messages of the PS at {broker.url} were refused ({refusals[0]})")
    if not came or not texts:
        raise RefusedError(f"no PS came to {broker.url} within {wait:g} s; start one with: fedslot serve SCENARIO")
    return read_scenario(texts[0])


def read_scenario(text: bytes) -> Scenario:
    """Return a scenario that came over the network; one that names code or files is refused."""
    try:
        fields = parse_yaml(text.decode())
        if not isinstance(fields, dict):
            raise ValueError("no fields")
        scenario = Scenario.load(fields)
    except (YAMLError, ValueError) as error:
        raise RefusedError(f"the PS's scenario cannot be read ({' '.join(str(error).split())})") from None
    strategies = [name for name in scenario.training.epochs_by_strategy if name not in STRATEGIES]
    rates = scenario.radio.rates
    files = [scenario.data.dataset] if scenario.data.dataset not in NAMES else []
    files += [str(rates.options.get("path"))] if rates.name == "csv" else []
    computing = scenario.fleet.computing
    files += [] if computing is None or computing.times is None else [str(computing.times)]
    foreign = scenario.own_parts + strategies + files
    foreign += [*own_schemes(scenario.compression), *own_schemes(scenario.broadcast_compression)]
    if foreign:
        raise RefusedError(f"the PS's scenario has parts of its own ({foreign[0]}); give the device its own SCENARIO")
    return scenario
