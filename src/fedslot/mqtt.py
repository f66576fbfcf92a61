"""The public names of `fedslot.deployment.mqtt`, under a shorter one: `fedslot.mqtt.Device`."""

from fedslot.deployment import mqtt as _home

__all__ = _home.__all__


def __getattr__(name: str) -> object:
    return getattr(_home, name)


def __dir__() -> list[str]:
    return __all__
