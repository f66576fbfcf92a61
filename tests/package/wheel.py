"""The wheel that `make package` builds, and environments with it."""

from __future__ import annotations

import os
import subprocess
import tomllib
import venv
from pathlib import Path

REPOSITORY = Path(__file__).parent.parent.parent
VERSION = tomllib.loads((REPOSITORY / "pyproject.toml").read_text("utf-8"))["project"]["version"]
WHEEL = f"fedslot-{VERSION}-py3-none-any.whl"


def built(name: str) -> Path:
    """Return a file that `make package` built."""
    file = REPOSITORY / "dist" / name
    assert file.is_file(), "`make package` builds it"
    return file


def clean_environment() -> dict[str, str]:
    """Return the environment without what would lead back to the repository or to the Python of these tests."""
    return {
        name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV", "FEDSLOT"))
    }


def install(folder: Path, extra: str, *options: str) -> Path:
    """Return the scripts of a new environment with nothing but the wheel and one of its extras."""
    venv.create(folder, with_pip=True)
    words = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", *options]
    words += ["-c", str(REPOSITORY / "constraints.txt"), f"{built(WHEEL)}[{extra}]"]
    subprocess.run([folder / "bin" / "python", *words], env=clean_environment(), check=True)
    return folder / "bin"
