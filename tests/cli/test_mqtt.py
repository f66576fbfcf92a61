"""`fedslot serve` and `fedslot device`: bad input is one line, before anything is connected or written."""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("paho.mqtt")

from fedslot import RefusedError, Scenario
from fedslot.data import cache, download
from fedslot.deployment.mqtt import Broker, scenario_devices
from fedslot.deployment.mqtt.training import read_scenario
from fedslot.support.yaml_text import write_yaml

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
        "radio: {rates: {name: csv, options: {path: /etc/secrets.csv}}}",
        "fleet: {computing: {times: /etc/secrets.csv}}",
        "radio: {rates: os.path:exists}",
        "data: {dataset: https://example.org/mnist}",
        "training: {epochs_by_strategy: {'os:system': 3}}",
        "seed: -1",
        "- a list",
        "{",
        "",
    ],
)
def test_a_scenario_from_the_network_imports_nothing(text: str) -> None:
    with pytest.raises(RefusedError, match="the PS's scenario"):
        read_scenario(text.encode())


def _places(fields: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the place of every text and of every free key in the fields of a scenario."""
    if isinstance(fields, dict):
        if not fields:
            yield (*path, "any")
        for key, value in fields.items():
            yield from _places(value, (*path, key))
    elif isinstance(fields, list):
        for index, value in enumerate(fields):
            yield from _places(value, (*path, index))
    elif isinstance(fields, str) or fields is None:
        yield path


FIELDS = Scenario().model_dump()
PLACES = list(_places(FIELDS))


def test_no_field_of_a_scenario_from_the_network_imports_anything(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every text, null and free key of a scenario in turn names code; whatever is not refused has not imported it."""
    (tmp_path / "probe_of_mine.py").write_text("def Part(*_, **__): ...\n")
    monkeypatch.syspath_prepend(tmp_path)
    accepted = []
    for place in PLACES:
        fields = copy.deepcopy(FIELDS)
        at = fields
        for key in place[:-1]:
            at = at[key]
        at[place[-1]] = "probe_of_mine:Part"
        for changed in (fields, _with_key(place)):
            try:
                read_scenario(write_yaml(changed).encode())
                accepted.append(".".join(map(str, place)))
            except RefusedError:
                pass
    assert "probe_of_mine" not in sys.modules
    assert len(PLACES) > 40
    # options of built-in parts, which are checked where the part is built, and the name of a device of PyTorch
    assert {name for name in accepted if not name.endswith("options.any")} == {"training.device"}


def _with_key(place: tuple[Any, ...]) -> dict[str, Any]:
    """Return a scenario that has a name of code as a key in a free mapping, or is refused anyway."""
    fields: Any = copy.deepcopy(FIELDS)
    at = fields
    for key in place[:-1]:
        at = at[key]
    if isinstance(at, dict):
        at["probe_of_mine:Part"] = 1
    return fields


def test_a_scenario_from_the_network_downloads_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A data set that the device does not have is for its operator to fetch."""
    monkeypatch.setenv("FEDSLOT_DATA", str(tmp_path))
    for module in (cache, download):
        monkeypatch.setattr(module, "download", pytest.fail)
    announced = read_scenario(b"data: {dataset: mnist, ues: 4}\nframe: {slots: 2, pull: 1}\npush: {contenders: 1}")
    with pytest.raises(RefusedError, match=r"mnist is not in the cache .*; type: fedslot data fetch mnist"):
        scenario_devices(announced, [0], Broker(NOWHERE))
    assert list(tmp_path.iterdir()) == []
