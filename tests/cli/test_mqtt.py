"""`fedslot serve` and `fedslot device`: bad input is one line, before anything is connected or written."""

from __future__ import annotations

from collections.abc import Callable

import pytest

pytest.importorskip("paho.mqtt")

from fedslot import RefusedError
from fedslot.deployment.mqtt.training import read_scenario

NOWHERE = "mqtt://127.0.0.1:9"  # where nothing listens


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (
            ["device", "--ue", "1", "--broker", "http://host"],
            "broker: 'http://host' is not allowed; it must be mqtt://",
        ),
        (["device", "--ue", "1", "--broker", "mqtt://host:port"], "broker: 'mqtt://host:port' is not allowed"),
        (["device", "--ue", "1", "--broker", "mqtt://me:secret@host"], "is not allowed; it must be mqtt://HOST:PORT"),
        (["device", "--broker", NOWHERE], "ue: None is not allowed; it must be given, or else --ues"),
        (["device", "--ue", "1", "--ues", "1-2", "--broker", NOWHERE], "it must be given, or else --ues, and not both"),
        (["device", "--ues", "5-1", "--broker", NOWHERE], "ues: '5-1' is not allowed; it must be numbers and ranges"),
        (["device", "--ues", "0-99999999", "--broker", NOWHERE], "ues: '0-99999999' is not allowed"),
        (["device", "-o", "seed=1", "--ue", "1", "--broker", NOWHERE], "used together with a SCENARIO"),
        (["device", "quickstart", "--ue", "100", "--broker", NOWHERE], "one of the scenario's UEs, 0 to 99"),
        (
            ["device", "quickstart", "-o", "data.ues=900", "--ues", "0-500", "--broker", NOWHERE],
            "at most 300 in one process",
        ),
        (["device", "--ue", "1", "--broker", NOWHERE, "--wait", "0"], "cannot be reached (Connection refused)"),
        (["device", "--ue", "1", "--broker", NOWHERE, "--cert", "a"], "given together with its key"),
        (
            ["device", "--ue", "1", "--broker", NOWHERE, "--tls-ca", "a"],
            "mqtts://HOST:PORT where certificates are given",
        ),
        (["device", "--ue", "1", "--broker", NOWHERE, "--wait", "inf"], "--wait: inf is not allowed"),
        (["serve", "quickstart"], "fedslot serve needs --broker"),
        (["serve", "quickstart", "--broker", NOWHERE, "--wait", "nan"], "--wait: nan is not allowed"),
        (["serve", "quickstart", "--broker", NOWHERE, "--slot-seconds", "0"], "slot seconds: 0.0 is not allowed"),
        (["serve", "quickstart", "--broker", NOWHERE, "--cell", "a/b"], "cell: 'a/b' is not allowed"),
        (["serve", "quickstart", "--broker", NOWHERE, "--wait", "0"], "cannot be reached (Connection refused)"),
        (["serve", "quickstart", "-o", "strategy.name=centralized", "--broker", NOWHERE], "no data leaves a device"),
        (["serve", "quickstart", "--broker", "mqtts://127.0.0.1:9", "--tls-ca", "none.pem"], "a file in PEM format"),
    ],
    ids=lambda value: " ".join(value)[-40:] if isinstance(value, list) else "",
)
def test_bad_input_is_one_line(words: list[str], line: str, refusal: Callable[[list[str]], str]) -> None:
    assert line in refusal(words)


@pytest.mark.parametrize(
    "text",
    [
        "training: {model: 'os:system'}",
        "push: {channel: 'mine:Channel'}",
        "data: {dataset: /etc/secrets.npz}",
        "seed: -1",
        "- a list",
        "{",
        "",
    ],
)
def test_a_scenario_from_the_network_imports_nothing(text: str) -> None:
    with pytest.raises(RefusedError, match="the PS's scenario"):
        read_scenario(text.encode())
