"""`fedslot doctor`: print what is installed, what the machine has, and what is missing."""

from __future__ import annotations

import os
import platform
import shutil
from importlib import metadata
from pathlib import Path

import typer

from fedslot.support.extras import EXTRAS, how_to_install, is_installed

CORE = ("torch", "numpy", "scipy", "pandas", "numba")


def doctor() -> None:
    """Print versions, processor, cache, engines, data sets and extras, and how to install those that are missing.

    Example: fedslot doctor
    """
    from fedslot.support.errors import reason

    for title, describe in (
        ("Versions", _versions),
        ("Machine", _machine),
        ("Engines of local training", _engines),
        ("Data sets", _data_sets),
        ("Extras, all optional", _extras),
    ):
        typer.echo(title)
        try:
            rows = describe()
        except (ImportError, OSError) as error:  # a broken installation is what a doctor is called for
            rows = {"unknown": reason(error)}
        width = max(map(len, rows))
        for name, text in rows.items():
            typer.echo(f"  {name:<{width}}  {text}")


def _versions() -> dict[str, str]:
    found = {"fedslot": _version("fedslot"), "Python": platform.python_version()}
    return found | {name: _version(name) for name in CORE}


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "not installed"


def _machine() -> dict[str, str]:
    machine = {
        "system": f"{platform.system()} {platform.release()}, {platform.machine()}",
        "processor": _processor(),
    }
    if not is_installed("torch"):
        return machine
    import torch

    from fedslot.experiments.pool import cores

    return machine | {
        "cores": f"{cores()} for this process, {torch.backends.cpu.get_cpu_capability()} instructions",
        "CUDA": torch.cuda.get_device_name() if torch.cuda.is_available() else "none; training.device must be cpu",
    }


def _processor() -> str:
    """Return the name of the processor; Python itself does not know it on Linux."""
    if Path("/proc/cpuinfo").is_file():
        for line in Path("/proc/cpuinfo").read_text("utf-8", "replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or "unknown"


def _engines() -> dict[str, str]:
    return {
        "torch": f"every network ({_state('sim')})",
        "compiled": f"perceptrons, by Numba ({_state('fast')}); the first run on a machine compiles",
    }


def _data_sets() -> dict[str, str]:
    from fedslot.data import cache
    from fedslot.data.catalogue import CATALOGUE

    told = {"cached": "in the cache", "absent": "missing", "damaged": "damaged"}
    states = {name: cache.state(name) for name in CATALOGUE}
    found = {
        name: told[state] + ("" if state == "cached" else f": fedslot data fetch {name}")
        for name, state in states.items()
    }
    return {"cache": f"{cache.folder()}{_space(cache.folder())}", "digits": "embedded", **found}


def _space(folder: Path) -> str:
    """Return the free space of a folder, or of the nearest one above that exists, as text."""
    there = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    return f", {shutil.disk_usage(there).free / 1e9:.0f} GB free"


def _extras() -> dict[str, str]:
    found = {name: f"{_state(name)} ({extra.purpose})" for name, extra in EXTRAS.items()}
    broker = shutil.which("mosquitto", path=f"{os.environ.get('PATH', os.defpath)}:/usr/sbin")
    found["mosquitto"] = f"{broker or 'missing: on Debian, apt-get install mosquitto'} (broker for MQTT)"
    return found


def _state(extra: str) -> str:
    """Return the version of an extra's first package, or how to install it."""
    module = EXTRAS[extra].module
    return _version(EXTRAS[extra].packages[module]) if is_installed(module) else f"missing: {how_to_install(extra)}"
