"""A short soak test: processes of a cell with TLS are killed at random, and nothing that was recorded is lost."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

pytest.importorskip("paho.mqtt")

from mqtt_cell import needs_mosquitto

FILE = Path(__file__).parents[2] / "benchmarks" / "mqtt_soak.py"
linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
KILLS = 8


@needs_mosquitto
@linux
def test_a_cell_survives_kills(folder: Path) -> None:
    """The long version is `python benchmarks/mqtt_soak.py`, with 200 devices for 30 minutes."""
    spec = importlib.util.spec_from_file_location("mqtt_soak", FILE)
    assert spec is not None
    assert spec.loader is not None
    soaking = importlib.util.module_from_spec(spec)
    sys.modules["mqtt_soak"] = soaking  # which dataclasses look for
    spec.loader.exec_module(soaking)
    cell = soaking.Cell(folder, ues=12, hosts=2, slot=0.02, downlink=0.5)
    try:
        report = soaking.soak(cell, seconds=20.0, kills=KILLS, seed=0)
    finally:
        cell.end()
    assert report["faulty"] == [], report
    assert sum(report["kills"].values()) == KILLS
    assert all(report["kills"].values()), "each kind of process is among them"
    assert report["rounds"] > report["rounds when the kills ended"]
    assert report["updates received"] > 0
    assert report["rows that kills took back"] <= report["kills"]["ps"]  # a round at most, which is repeated
