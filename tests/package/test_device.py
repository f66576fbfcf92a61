"""A device's environment, the wheel with `mqtt` and nothing else: its size, and a training over MQTT with it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("paho.mqtt")

from mqtt_cell import WAIT, Mosquitto, needs_mosquitto
from wheel import clean_environment, install

MOST_MEGABYTES = 140  # of the device's set; the tools that every new environment has are counted apart
TOOLS = ("pip", "setuptools", "pkg_resources", "_distutils_hack", "distutils-precedence")
UES = 4
EIGHT_BITS = "{name: eden, options: {bits: 8}}"

# A perceptron of 64, 50, 25 and 10 units, trained by NumPy on the digits that a device has for itself.
DEVICES = """
import sys
import numpy as np
from fedslot.data import load
from fedslot.mqtt import Device, Update, Workers, run_devices

digits, widths = load("digits"), [64, 50, 25, 10]

def layers(model):
    position = 0
    for inputs, outputs in zip(widths, widths[1:]):
        weights = model[position : position + outputs * inputs].reshape(outputs, inputs)
        position += outputs * (inputs + 1)
        yield weights, model[position - outputs : position]

def device(ue, ues, workers):
    x, y = digits.x_train[ue::ues].reshape(-1, 64), digits.y_train[ue::ues]
    def train(model, round):
        local, rng = model.copy(), np.random.default_rng(round)
        for batch in np.concatenate([rng.permutation(len(y))[: len(y) // 10 * 10].reshape(-1, 10) for _ in range(5)]):
            activations = [x[batch]]
            for weights, biases in layers(local):
                activations.append(np.maximum(activations[-1] @ weights.T + biases, 0))
            weights, biases = list(layers(local))[-1]
            scores = activations[-2] @ weights.T + biases
            odds = np.exp(scores - scores.max(axis=1, keepdims=True))
            delta = (odds / odds.sum(axis=1, keepdims=True) - np.eye(10)[y[batch]]) / len(batch)
            for (weights, biases), inputs in zip(reversed(list(layers(local))), activations[-2::-1]):
                before = (delta @ weights) * (inputs > 0)
                weights -= 0.05 * delta.T @ inputs
                biases -= 0.05 * delta.sum(axis=0)
                delta = before
        return Update(local, len(y))
    return Device(ue, sys.argv[1], train, workers=workers)

ues, workers = int(sys.argv[2]), Workers()
run_devices([device(ue, ues, workers) for ue in range(ues)], 60)
heavy = {"torch", "scipy", "pandas", "matplotlib", "numba"} & set(sys.modules)
print("loaded:", sorted(heavy))
"""


@pytest.fixture(scope="module")
def device_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An empty environment into which the device's set was installed."""
    return install(tmp_path_factory.mktemp("device") / "venv", "mqtt").parent


def test_the_size_of_a_device(device_folder: Path) -> None:
    [packages] = device_folder.glob("lib/python*/site-packages")
    sizes = {
        entry.name: sum(file.stat().st_size for file in [entry, *entry.rglob("*")] if file.is_file()) / 1e6
        for entry in packages.iterdir()
    }
    device = {name: size for name, size in sizes.items() if not name.startswith(TOOLS)}
    largest = sorted(device.items(), key=lambda item: -item[1])[:5]
    total, everything = sum(device.values()), sum(sizes.values())
    print(f"{total:.0f} MB:", ", ".join(f"{name} {size:.0f}" for name, size in largest), f"({everything:.0f} with pip)")
    assert {"numpy", "paho", "fedslot"} <= set(device)
    assert total < MOST_MEGABYTES


def test_a_command_of_the_laboratory_says_what_to_install(device_folder: Path, tmp_path: Path) -> None:
    words = [device_folder / "bin" / "fedslot", "run", "quickstart"]
    done = subprocess.run(words, env=clean_environment(), cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert done.stderr.endswith("pip install 'fedslot[sim]'\n")
    assert list(tmp_path.iterdir()) == []


@needs_mosquitto
def test_devices_without_the_laboratory_take_part_in_a_training(
    device_folder: Path, start: Callable[..., subprocess.Popen[Any]], tmp_path: Path
) -> None:
    broker, out = Mosquitto(start, tmp_path / "broker"), tmp_path / "out"
    fields = {"data.ues": UES, "frame.slots": UES, "frame.pull": UES, "push.contenders": 0, "rounds": 6}
    compressed = {"compression": "{name: quantise, feedback: true}", "broadcast_compression": EIGHT_BITS}
    serve = [sys.executable, "-m", "fedslot", "serve", "quickstart", "--broker", broker.url, "--out", str(out)]
    serve += [word for key, value in (fields | compressed).items() for word in ("-o", f"{key}={value}")]
    serve += ["--slot-seconds=0.05", "--downlink-seconds=3", "--tolerance=5"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    server = start(*serve, **pipes)
    python = str(device_folder / "bin" / "python")
    devices = start(python, "-c", DEVICES, broker.url, str(UES), cwd=tmp_path, env=clean_environment(), **pipes)
    told, _ = devices.communicate(timeout=WAIT)
    assert devices.returncode == 0, told
    assert told.splitlines()[-1] == "loaded: []"
    told, _ = server.communicate(timeout=WAIT)
    assert server.returncode == 0, told
    summary = json.loads((out / "summary.json").read_text("utf-8"))
    assert summary["rounds"] == fields["rounds"]
    assert summary["final_accuracy"] > 0.8, "by chance it would be 0.1"
