"""Deployment over MQTT: `MqttServer` for the parameter server, `Device` for a device with a training of its own.

    from fedslot.deployment.mqtt import Device, Update

    def train(model, round):                    # model: (P,) float32
        ...
        return Update(local_model, examples=600)

    Device(7, "mqtt://192.0.2.10", train).run()

    serving.py   MqttServer, which announces frames and closes them on time
    attendance.py  who is here, by status messages
    inbox.py     attributes updates to UEs, frames and slots by what they name and when they come
    device.py    Device, which draws its slot, trains and sends in it
    training.py  devices that train as the simulator's UEs do
    setup.py     certificates, keys, access rules and mosquitto.conf of a cell
    signing.py   messages that the PS signs, and the devices' check
    chunks.py    messages that are larger than the broker takes
    broker.py    a connection to a broker, with TLS, that comes back by itself
    messages.py  topics and messages

The commands are `fedslot serve` and `fedslot device`. Only `broker.py` knows paho-mqtt. Public names are imported on
first use, and a `Device` loads no PyTorch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedslot.support.extras import import_name

if TYPE_CHECKING:
    from fedslot.deployment.encoding import Carried
    from fedslot.deployment.mqtt.broker import Broker
    from fedslot.deployment.mqtt.device import Device, Workers, run_devices
    from fedslot.deployment.mqtt.serving import MqttServer
    from fedslot.deployment.mqtt.training import fetch_scenario, scenario_devices
    from fedslot.deployment.screening import Update
    from fedslot.deployment.timing import Timing

_HOMES = {
    "Broker": "mqtt.broker",
    "Carried": "encoding",
    "Device": "mqtt.device",
    "MqttServer": "mqtt.serving",
    "Timing": "timing",
    "Update": "screening",
    "Workers": "mqtt.device",
    "fetch_scenario": "mqtt.training",
    "run_devices": "mqtt.device",
    "scenario_devices": "mqtt.training",
}

__all__ = [
    "Broker",
    "Carried",
    "Device",
    "MqttServer",
    "Timing",
    "Update",
    "Workers",
    "fetch_scenario",
    "run_devices",
    "scenario_devices",
]


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'fedslot.deployment.mqtt' has no attribute {name!r}")
    return import_name("fedslot.deployment.mqtt", name, f"fedslot.deployment.{_HOMES[name]}")


def __dir__() -> list[str]:
    return __all__
