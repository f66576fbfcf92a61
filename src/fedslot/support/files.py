"""Files of the user's own that a scenario names: has one changed since it was last read?"""

from __future__ import annotations

import hashlib
from functools import lru_cache
from pathlib import Path


def file_version(file: Path) -> tuple[int, int]:
    """Return the time of the last change and the size of a file; zeros if it is not there: reading it tells more."""
    try:
        return file.stat().st_mtime_ns, file.stat().st_size
    except OSError:
        return 0, 0


def file_digest(file: Path) -> str:
    """Return the SHA-256 of a file; raise `OSError` if it cannot be read."""
    return _digest(file, *file_version(file))


@lru_cache(maxsize=64)  # many runs share a file
def _digest(file: Path, changed: int, size: int) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
