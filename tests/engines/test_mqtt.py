"""The parameter server and its devices over a real broker: the simulator's answer, free devices, bad messages."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

pytest.importorskip("paho.mqtt")

from mqtt_cell import TIMING, Mosquitto, devices_of, make_server, needs_mosquitto, small

import fedslot

pytestmark = needs_mosquitto

EXACT = ["slots", "pulled", "wasted", "contenders", "push_received", "collided", "cost_max", "cost_sum", "slots_spent"]


@pytest.fixture(scope="module")
def broker(
    start_shared: Callable[..., subprocess.Popen[Any]], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Mosquitto]:
    made = Mosquitto(start_shared, tmp_path_factory.mktemp("broker"))
    yield made
    made.kill()


@pytest.mark.parametrize(
    ("changes", "tolerance"),
    [
        ({"push__probability": 0.8}, 5.0),
        ({"push__channel": "crdsa", "frame__slots": 6}, 5.0),
        # UEs choose themselves whether they push, so that every frame is kept open to its end
        ({"strategy__name": "merit-push", "aggregation__name": "filtered", "fleet__noise": 0.5}, 1.0),
    ],
    ids=str,
)
def test_seeded_devices_give_what_the_simulator_gives(
    changes: dict[str, object], tolerance: float, broker: Mosquitto, tmp_path: Path
) -> None:
    scenario, timing = small(**changes), replace(TIMING, tolerance=tolerance)
    with devices_of(scenario, broker.url):
        made = make_server(scenario, broker.url, timing, out=tmp_path / "out")
        made.run()
    simulated, deployed = fedslot.run(scenario), fedslot.load(tmp_path / "out")
    assert made.server.faults.all == []
    pd.testing.assert_frame_equal(deployed.rounds[EXACT], simulated.rounds[EXACT])
    losses = ["test_loss", "val_loss"]
    np.testing.assert_allclose(deployed.rounds[losses], simulated.rounds[losses], rtol=1e-3)
    np.testing.assert_allclose(deployed.model, simulated.model, rtol=1e-3, atol=1e-4)
    assert (tmp_path / "out" / "summary.json").is_file()
