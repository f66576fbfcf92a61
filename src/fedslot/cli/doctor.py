"""`fedslot doctor`: print what is installed, what the machine has, and what is missing."""

from __future__ import annotations

import os
import platform
import re
import shutil
from importlib import metadata
from pathlib import Path
from typing import Annotated

import typer

from fedslot.support.extras import EXTRAS, how_to_install, is_installed

CORE = ("torch", "numpy", "scipy", "pandas", "numba")


def doctor(
    warm: Annotated[
        bool, typer.Option("--warm", help="First compile the training of perceptrons, which the first run would do.")
    ] = False,
) -> None:
    """Print versions, processor, cache, engines, data sets and extras, and how to install those that are missing.

    Example: fedslot doctor
    """
    from fedslot.cli.options import warm_up
    from fedslot.support.errors import reason

    if warm:
        warm_up()
    for title, describe in {
        "Versions": _versions,
        "Machine": _machine,
        "Engines of local training": _engines,
        "Data sets": _data_sets,
        "Extras, all optional": _extras,
        "Parts of installed packages": _parts,
    }.items():
        typer.echo(title)
        try:
            rows = describe()
        except (ImportError, OSError) as error:  # a broken installation is what a doctor is called for
            rows = {"unknown": reason(error)}
        width = max(map(len, rows))
        for name, text in rows.items():
            typer.echo(f"  {name:<{width}}  {text}")


def _versions() -> dict[str, str]:
    versions = {name: _version(name) for name in CORE}
    return {"fedslot": _version("fedslot"), "Python": platform.python_version(), **versions}


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "not installed"


def _machine() -> dict[str, str]:
    processor = platform.processor() or "unknown"
    if Path("/proc/cpuinfo").is_file():  # Python itself does not know the name of the processor on Linux
        named = re.search(r"^model name\s*: (.+)", Path("/proc/cpuinfo").read_text("utf-8", "replace"), re.MULTILINE)
        processor = named[1].strip() if named else processor
    machine = {
        "system": f"{platform.system()} {platform.release()}, {platform.machine()}",
        "processor": processor,
    }
    if not is_installed("torch"):
        return machine
    import torch

    from fedslot.experiments.pool import cores

    return machine | {
        "cores": f"{cores()} for this process, {torch.backends.cpu.get_cpu_capability()} instructions",
        "CUDA": torch.cuda.get_device_name() if torch.cuda.is_available() else "none; training.device must be cpu",
    }


def _engines() -> dict[str, str]:
    return {
        "torch": f"every network ({_state('sim')})",
        "compiled": f"perceptrons, by Numba ({_state('fast')}); {_warmth()}",
    }


def _warmth() -> str:
    if not (is_installed("numba") and is_installed("torch")):
        return "the first run on a machine compiles"
    from fedslot.learning.compiled_training import is_warm

    return "compiled" if is_warm() else "the first run compiles, or type: fedslot doctor --warm"


def _data_sets() -> dict[str, str]:
    from fedslot.data import cache
    from fedslot.data.catalogue import CATALOGUE

    folder = cache.folder()
    nearest = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    rows = {"cache": f"{folder}, {shutil.disk_usage(nearest).free / 1e9:.0f} GB free", "digits": "embedded"}
    texts = {"cached": "in the cache", "absent": "missing: {}", "damaged": "damaged: {}"}
    return rows | {name: texts[cache.state(name)].format(f"fedslot data fetch {name}") for name in CATALOGUE}


def _extras() -> dict[str, str]:
    broker = shutil.which("mosquitto", path=f"{os.environ.get('PATH', os.defpath)}:/usr/sbin")
    rows = {name: f"{_state(name)} ({extra.purpose})" for name, extra in EXTRAS.items()}
    return rows | {"mosquitto": f"{broker or 'missing: on Debian, apt-get install mosquitto'} (broker for MQTT)"}


def _parts() -> dict[str, str]:
    from fedslot.parts.kind import origin
    from fedslot.parts.kinds import KINDS
    from fedslot.support.errors import reason, refusing_exit

    rows = {}
    for point in [point for kind in KINDS for point in kind.entry_points()]:
        try:
            with refusing_exit():
                point.load()
            state = "loads"
        except Exception as error:  # the code of others may raise anything
            state = f"does not load: {reason(error)}"
        rows[f"{point.name} ({point.group})"] = f"{origin(point)}, {state}"
    return rows or {"none": f"packages add them by entry points, e.g. {KINDS[0].group}"}


def _state(extra: str) -> str:
    """Return the version of an extra's first package, or how to install it."""
    module = EXTRAS[extra].module
    return _version(EXTRAS[extra].packages[module]) if is_installed(module) else f"missing: {how_to_install(extra)}"
