"""What this machine has: the memory that a process may use."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

CGROUPS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")  # versions 2 and 1


def memory() -> int | None:
    """Return the bytes of memory that this process may use: those of the machine, or fewer if it is limited.

    None if they are not known, as on Windows.
    """
    limits = []
    with suppress(AttributeError, OSError, ValueError):
        limits.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    for file in CGROUPS:  # of a container
        with suppress(OSError, ValueError):  # there is no such file, or it says "max"
            limits.append(int(Path(file).read_text("utf-8")))
    with suppress(ImportError):
        import resource

        limit = resource.getrlimit(resource.RLIMIT_AS)[0]
        limits += [limit] if limit != resource.RLIM_INFINITY else []
    return min((limit for limit in limits if limit > 0), default=None)
