"""A whole training: packets against all patterns of loss, duty cycle and energy against runs of the simulator."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import numpy as np
import pytest

from fedslot import InputError, Scenario, run
from fedslot.access import Radio
from fedslot.cli import main
from fedslot.planning.cell import PushCell
from fedslot.planning.sizing import Sizing
from fedslot.planning.training import PacketLoss, TrainingPlan


@pytest.mark.parametrize(
    "link",
    [
        PacketLoss(0.2),
        PacketLoss(0.3, tries=3),
        PacketLoss(0.4, coded=2),
        PacketLoss(0.3, 2, 1),
        PacketLoss(0.2, 2, 1, 0.1),
    ],
)
def test_an_update_arrives_as_often_as_by_all_patterns_of_loss(link: PacketLoss) -> None:
    packets, arrives, sent = 3, 0.0, 0.0
    fates = [(n, link.loss ** (n - 1) * (1 - link.loss), True) for n in range(1, link.tries + 1)]
    fates.append((link.tries, link.loss**link.tries, False))  # tries, probability, whether it came through
    for pattern in itertools.product(fates, repeat=packets + link.coded):
        chance = float(np.prod([p for _, p, _ in pattern]))
        arrives += chance * (sum(came for *_, came in pattern) >= packets)
        sent += chance * sum(tries for tries, *_ in pattern)
    assert link.arrives(packets) == pytest.approx((1 - link.outage) * arrives)
    assert link.sent(packets) == pytest.approx(sent)


@pytest.mark.parametrize(("loss", "packets"), [(0.1, 87), (0.01, 1000), (0.5, 1), (0.3, 6)])
def test_the_advice_suffices_and_less_does_not(loss: float, packets: int) -> None:
    tries, coded = PacketLoss(loss).least_tries(packets), PacketLoss(loss).least_coded(packets)
    assert coded is not None
    assert PacketLoss(loss, tries).arrives(packets) >= 0.99 > PacketLoss(loss, tries - 1).arrives(packets)
    assert PacketLoss(loss, coded=coded).arrives(packets) >= 0.99 > PacketLoss(loss, coded=coded - 1).arrives(packets)


def test_slots_have_room_for_what_is_sent() -> None:
    radio = Radio(bits=87_000, bits_per_slot=1000, slot_ms=10)
    more = PacketLoss(0.1, coded=18).on(radio)
    assert (more.update_slots, more.downlink_slots, PacketLoss(0.1, tries=4).on(radio).update_slots) == (105, 87, 97)
    assert PacketLoss(0.1).on(radio) == radio


def test_a_cell_whose_ues_must_be_silent_and_lose_updates() -> None:
    """Twenty UEs, ten slots; frames of a run are as many as the duty cycle lets UEs fill."""
    fields = {
        "rounds": 400,
        "data.ues": 20,
        "frame": {"slots": 10, "pull": 10},
        "push.contenders": 0,
        "strategy.name": "round-robin",
        "training.epochs": 1,
        "training.batches": 1,
        "radio": {"outage": 0.2, "duty_cycle": 0.02, "slot_seconds": 0.1, "send_joules": 0.5, "listen_joules": 0.0},
    }
    rounds = run(Scenario.load("quickstart", fields)).rounds
    received, seconds = (rounds["pulled"] + rounds["push_received"]).sum(), rounds["air_seconds"].sum()
    radio = Radio(slot_ms=100, send_mj=500)
    sizing = Sizing(
        10,
        PushCell(0, ues=20),
        pull=10,
        radio=radio,
        link=PacketLoss(outage=0.2),
        training=TrainingPlan(400, duty_cycle=0.02),
    )
    numbers = sizing.numbers(sizing.plan.best)
    assert numbers["silence_seconds"] == pytest.approx(5.0)
    assert numbers["period_seconds"] == pytest.approx(10 * 5 / 20)
    assert numbers["updates_per_second"] == pytest.approx(0.8 * 10 / 2.5)
    assert 0.75 < received / seconds / numbers["updates_per_second"] < 1  # UEs wait for a frame after their silence
    assert rounds["joules"].sum() / received * 1000 == pytest.approx(numbers["energy_mj_per_update"], rel=0.05)


def test_time_and_battery_by_hand() -> None:
    """Ten pulled UEs of ten: frames of 1.1 s, 1 mJ to listen, 2 mJ to send, 7 mJ to train, and 1 mW asleep."""
    sizing = Sizing(
        10,
        PushCell(0, ues=10),
        pull=10,
        radio=Radio(slot_ms=100, send_mj=2, listen_mj=1),
        training=TrainingPlan(rounds=1000, train_mj=7, sleep_mw=1, battery_wh=1),
    )
    numbers = sizing.numbers(sizing.plan.best)
    assert numbers["training_hours"] == pytest.approx(1100 / 3600)
    assert numbers["ue_joules"] == pytest.approx(10 + 1.1)
    assert numbers["battery_percent"] == pytest.approx(100 * 11.1 / 3600)
    assert numbers["battery_days"] == pytest.approx(3.6e6 / (10 / 1.1 + 1) / 86_400)


def test_the_command(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    lossy = ["plan", "--slots", "4", "--contenders", "0", "--slot-ms", "369", "--bits-per-slot", "1776"]
    lossy += ["--parameters", "4785", "--packet-loss", "0.1"]
    assert main([*lossy, "--send-mj", "35", "--battery-wh", "19", "--rounds", "60", "--ues", "9"]) == 0
    printed = capsys.readouterr().out
    assert "Sent once, 87 packets of which 0.1 are lost bring 0.000104 of the updates;" in printed
    assert "99% take 4 tries of each (96.66 sent on average), or 18 coded packets." in printed
    assert main(["plan", "lora", "--json"]) == 0
    shown = capsys.readouterr()
    assert json.loads(shown.out)["best"]["silence_seconds"] == pytest.approx(6 * 0.36890 / 0.01, rel=0.01)
    assert "radio.rates is not in it" in shown.err


@pytest.mark.parametrize(
    ("options", "line"),
    [
        (["--packet-loss", "0.1"], "--packet-loss: 0.1 is not allowed; it must be given with --bits-per-slot"),
        (["--tries", "2"], "--tries: 2 is not allowed; it must be given with --packet-loss"),
        (["--battery-wh", "2"], "--battery-wh: 2.0 is not allowed; it must be given with --send-mj and --slot-ms"),
        (["--train-mj", "2"], "--train-mj: 2.0 is not allowed; it must be given with --battery-wh or --rounds"),
        (["--duty-cycle", "0", "--ues", "20"], "--duty-cycle: 0.0 is not allowed"),
        (["--duty-cycle", "0.1"], "--duty-cycle: 0.1 is not allowed; it must be given with --ues"),
        (["--outage", "1"], "--outage: 1.0 is not allowed"),
        (["--rounds", "nan"], "--rounds: nan is not allowed"),
    ],
)
def test_what_does_not_go_together_is_refused(
    options: list[str], line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["plan", *options]) == 2
    assert line in capsys.readouterr().err


def test_links_and_trainings_are_checked() -> None:
    for make in (lambda: PacketLoss(1.0), lambda: PacketLoss(0.1, tries=0), lambda: TrainingPlan(duty_cycle=2.0)):
        with pytest.raises(InputError):
            make()
