"""Read the fields of presets and YAML files, without validating them."""

from __future__ import annotations

import re
from importlib import resources
from pathlib import Path
from typing import Any

from fedslot.support.errors import InputError, did_you_mean
from fedslot.support.yaml_text import YAMLError, parse_yaml

OWN_FILES = {
    "data.dataset": ".npz",
    **dict.fromkeys(["radio.rates.options.path", "fleet.computing.times", "fleet.availability.options.path"], ".csv"),
}
"""Fields that may name a file of the user's own, with the ending of its name."""
STUDY = re.compile(r"^\.(scenario|overrides|grid)(?=\.)")  # parts of a study that have fields of a scenario


def presets() -> dict[str, str]:
    """Return the presets of the package by name, each with the first comment line of its file."""
    files = sorted(resources.files("fedslot.scenario").joinpath("presets").iterdir(), key=lambda file: file.name[:-5])
    texts = {file.name.removesuffix(".yaml"): file.read_text("utf-8") for file in files if file.name.endswith(".yaml")}
    return {name: text.splitlines()[0].lstrip("# ") for name, text in texts.items()}


def preset_text(name: str) -> str:
    """Return the YAML of a preset, with its comments."""
    return resources.files("fedslot.scenario").joinpath("presets", f"{name}.yaml").read_text("utf-8")


def read_fields(source: str | Path) -> dict[str, Any]:
    """Read the fields of a preset or a YAML file, without validating them."""
    names = list(presets())
    if str(source) in names:
        text = preset_text(str(source))
    else:
        path = Path(source)
        if path.suffix not in {".yaml", ".yml"} or not _is_file(path):
            allowed = f"a preset ({', '.join(names)}) or a YAML file that exists{did_you_mean(str(source), names)}"
            raise InputError("scenario", str(source), allowed)
        try:
            text = path.read_text("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise InputError("scenario", str(source), f"a readable UTF-8 file ({error})") from None
    try:
        fields = parse_yaml(text)
    except YAMLError as error:
        raise InputError("scenario", str(source), f"valid YAML ({error})") from None
    if not isinstance(fields, dict) or not fields:
        raise InputError("scenario", str(source), "a YAML mapping of sections, e.g. `frame: {slots: 20}`")
    return fields if str(source) in names else beside(fields, Path(source).parent)


def beside(fields: Any, folder: Path, key: str = "") -> Any:
    """Return the fields of a YAML file with the paths of own files relative to its folder; also those of a study.

    key: that of the fields, after a dot.
    """
    if isinstance(fields, dict):
        return {name: beside(value, folder, f"{key}.{name}") for name, value in fields.items()}
    if isinstance(fields, list):
        return [beside(value, folder, key) for value in fields]
    ending = OWN_FILES.get(STUDY.sub("", key).removeprefix("."))
    return _own_file(fields, folder) if ending and isinstance(fields, str) and fields.endswith(ending) else fields


def _own_file(file: str, folder: Path) -> str:
    """Return the absolute path of a file, relative to a folder."""
    try:
        return str((folder / Path(file).expanduser()).absolute())
    except (OSError, RuntimeError):  # the current folder is gone, or there is no such user
        return file


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:  # e.g. a name that is too long
        return False
