"""The numbers of the presets of radios follow from the sources that they name."""

import math

import numpy as np
import pytest

import fedslot
from fedslot.access.clock import radio_of
from fedslot.data import load
from fedslot.fleet import link_rates
from fedslot.rounds.local_training import make_model
from fedslot.scenario import Scenario

NAMES = ("lora", "nb-iot", "wifi")
VOLTS = 3.3


def disc(name: str) -> dict[str, list[float]]:
    return Scenario.load(name).radio.rates.options


def noise_dbm(bandwidth: float, figure: float) -> float:
    return -174 + 10 * math.log10(bandwidth) + figure


def airtime(spreading: int, payload: int) -> float:
    """Seconds of a packet, SX1276 data sheet 4.1.1.7: 125 kHz, coding rate 4/5, explicit header, CRC, 8 of preamble."""
    symbol, slow = 2**spreading / 125e3, spreading >= 11
    blocks = math.ceil((8 * payload - 4 * spreading + 28 + 16) / (4 * (spreading - 2 * slow)))
    return (8 + 4.25 + 8 + max(0, 5 * blocks)) * symbol


LORA_BYTES = {12: 51, 11: 51, 10: 51, 9: 115, 8: 222, 7: 222}


def test_lora_has_the_airtimes_of_its_packets() -> None:
    """A packet of 51 bytes of payload and 13 of header at SF12 is well known to take 2.8 s."""
    assert airtime(12, 51 + 13) == pytest.approx(2.793, abs=1e-3)
    radio, bits_per_second = Scenario.load("lora").radio, [8 * n / airtime(sf, n + 13) for sf, n in LORA_BYTES.items()]
    assert radio.slot_seconds == pytest.approx(airtime(7, 222 + 13), abs=1e-4)
    assert radio.bits_per_slot == 8 * 222
    assert disc("lora")["rates"] == pytest.approx([each / bits_per_second[-1] for each in bits_per_second], abs=1e-4)
    assert disc("lora")["thresholds_db"] == [-2.5 * (sf - 4) for sf in LORA_BYTES]
    assert radio.downlink_bits == pytest.approx(bits_per_second[3] * radio.slot_seconds, abs=1)


def test_loras_edge_is_okumura_hatas() -> None:
    frequency, base, mobile, kilometres = 868, 30, 1.5, 2
    log = math.log10(frequency)
    correction = (1.1 * log - 0.7) * mobile - (1.56 * log - 0.8)
    slope = 44.9 - 6.55 * math.log10(base)
    loss = 69.55 + 26.16 * log - 13.82 * math.log10(base) - correction + slope * math.log10(kilometres)
    assert disc("lora")["exponent"] == pytest.approx(slope / 10, abs=0.01)
    assert disc("lora")["edge_snr_db"] == pytest.approx(13 + 2 * 2.15 - loss - noise_dbm(125e3, 6), abs=0.1)


# transport block, resource units of 1 ms, repetitions
NB_IOT = [(872, 10, 64), (872, 10, 16), (872, 10, 4), (872, 10, 1), (936, 6, 1), (1000, 4, 1)]


def test_nb_iot_has_the_rates_of_its_transport_blocks() -> None:
    """The fastest has the known peak rate of 62.5 kbit/s. Thresholds are Shannon's for bits and CRC, and 2 dB."""
    times = [units * times + 40 * (units * times // 256) + 12 for _, units, times in NB_IOT]
    bits_per_ms = [bits / time for (bits, _, _), time in zip(NB_IOT, times, strict=True)]
    assert bits_per_ms[-1] == 62.5
    assert disc("nb-iot")["rates"] == pytest.approx([each / 62.5 for each in bits_per_ms], abs=1e-4)
    needed = [
        10 * math.log10(2 ** ((bits + 24) / (144 * units)) - 1) + 2 - 10 * math.log10(times)
        for bits, units, times in NB_IOT
    ]
    assert disc("nb-iot")["thresholds_db"] == pytest.approx(needed, abs=0.1)
    radio = Scenario.load("nb-iot").radio
    assert (radio.bits_per_slot, radio.slot_seconds) == (1000, 0.016)
    assert radio.downlink_bits == pytest.approx(21_250 * radio.slot_seconds)
    assert disc("nb-iot")["edge_snr_db"] == pytest.approx(23 + 18 - 4 - 120.9 - 30 - noise_dbm(180e3, 3), abs=0.1)


WIFI_MBPS = [8.6, 17.2, 25.8, 34.4, 51.6, 68.8, 77.4, 86.0, 103.2, 114.7]
SENSITIVITY_DBM = [-82, -79, -77, -74, -70, -66, -65, -64, -59, -57]


def test_wifi_has_the_rates_and_sensitivities_of_the_standard() -> None:
    """234 subcarriers in 13.6 us; MCS 0 is BPSK and MCS 9 256-QAM at 5/6."""
    assert WIFI_MBPS[0] == pytest.approx(234 / 2 / 13.6, abs=0.05)
    assert WIFI_MBPS[-1] == pytest.approx(234 * 8 * 5 / 6 / 13.6, abs=0.05)
    assert disc("wifi")["rates"] == pytest.approx([each / WIFI_MBPS[-1] for each in WIFI_MBPS], abs=1e-3)
    noise = noise_dbm(20e6, 10)
    assert disc("wifi")["thresholds_db"] == pytest.approx([each - noise for each in SENSITIVITY_DBM], abs=0.1)
    free_space = 20 * math.log10(10) + 20 * math.log10(2437) - 27.55
    loss = free_space + 35 * math.log10(50 / 10)
    assert disc("wifi")["edge_snr_db"] == pytest.approx(16.5 - loss - noise, abs=0.1)
    radio = Scenario.load("wifi").radio
    data_seconds = radio.slot_seconds - 1e-4
    assert radio.bits_per_slot == pytest.approx(WIFI_MBPS[-1] * 1e6 * data_seconds)
    assert radio.downlink_bits == pytest.approx(WIFI_MBPS[0] * 1e6 * data_seconds)


@pytest.mark.parametrize(
    ("name", "sending", "listening"), [("lora", 0.029, 0.0115), ("nb-iot", 0.167, 0.054), ("wifi", 0.252, 0.078)]
)
def test_energies_are_those_of_the_currents(name: str, sending: float, listening: float) -> None:
    radio = Scenario.load(name).radio
    assert radio.send_joules == pytest.approx(sending * VOLTS * radio.slot_seconds, rel=0.01)
    assert radio.listen_joules == pytest.approx(listening * VOLTS * radio.slot_seconds, rel=0.02)


@pytest.mark.parametrize(("name", "slots"), [("lora", (6, 87)), ("nb-iot", (10, 154)), ("wifi", (1, 1))])
def test_updates_take_the_slots_that_the_preset_says(name: str, slots: tuple[int, int]) -> None:
    scenario = Scenario.load(name)
    shapes = make_model(scenario, load("digits")).tensor_shapes
    radio = radio_of(scenario, shapes)
    assert (radio.update_slots, radio.full_slots) == slots
    slowest = np.array([min(disc(name)["rates"])])
    assert int(radio.bursts(slowest)[0]) == {"lora": 31, "nb-iot": 52, "wifi": 13}[name]
    assert radio.bursts(slowest)[0] <= scenario.frame.slots


@pytest.mark.parametrize("name", NAMES)
def test_presets_of_radios_use_their_slow_and_lossy_links(name: str) -> None:
    scenario = Scenario.load(name, {"rounds": 4, "training.epochs": 1})
    rates, outage = link_rates(scenario)
    assert len(set(rates)) > 3
    assert 0.02 < outage.mean() < 0.2
    rounds = fedslot.run(scenario).rounds
    assert (rounds["air_seconds"] > 0).all()
    assert (rounds["joules"] > 0).all()
    assert rounds["pulled"].sum() + rounds["push_received"].sum() > 4


def test_silence_passes_though_no_ue_may_send() -> None:
    """Where all UEs that a strategy pulls are silent, their slots stay idle, so that they may send again in time."""
    few = {"data.ues": 4, "frame.slots": 32, "frame.pull": 4, "push.contenders": 0, "strategy.name": "fedavg"}
    rounds = fedslot.run(Scenario.load("lora", {**few, "rounds": 40, "training.epochs": 1})).rounds
    assert (rounds["cost_max"] > 0).all()
    assert (rounds["pulled"] == 0).any()
    assert rounds["pulled"].tail(20).sum() > 0
