"""Named random streams without state.

Every draw comes from a generator that is keyed by (seed, purpose, numbers...), the numbers being a round,
a UE, or both. So two strategies with one seed see the same fleet, noise and contention, a run gives the
same answer in whatever order or process its parts are computed, and resuming has no generator to restore.
"""

from __future__ import annotations

import zlib

import numpy as np


def stream(seed: int, purpose: str, *numbers: int) -> np.random.Generator:
    """A fresh generator for one purpose, e.g. `stream(seed, "slots", round)`.

    >>> stream(7, "noise", 3, 12).random() == stream(7, "noise", 3, 12).random()
    True
    """
    return np.random.Generator(np.random.SFC64(_sequence(seed, purpose, numbers)))


def torch_seed(seed: int, purpose: str, *numbers: int) -> int:
    """A 63-bit seed of the same kind, for libraries that bring their own generators."""
    return int(_sequence(seed, purpose, numbers).generate_state(1, np.uint64)[0] >> np.uint64(1))


def _sequence(seed: int, purpose: str, numbers: tuple[int, ...]) -> np.random.SeedSequence:
    # spawn_key keeps numbers apart from the seed's own words: (1, 23) and (12, 3) are different streams.
    return np.random.SeedSequence(seed, spawn_key=(zlib.crc32(purpose.encode()), *numbers))
