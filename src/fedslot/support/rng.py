"""Named random streams without state, and the names of all of them.

Every draw comes from a generator that is keyed by (seed, purpose, numbers...), where the numbers are a round, a UE, or
both. So two strategies with the same seed see the same fleet, noise and contention, a run gives the same result in
whatever order or process its parts are computed, and resuming has no generator to restore.
"""

from __future__ import annotations

import zlib

import numpy as np

# the fleet, drawn once
PARTITION, SIZES, SHARE = "partition", "sizes", "share"
STRAGGLERS, NOISE_LEVELS, COMPUTING = "stragglers", "noise-order", "computing"
LIARS, RATES = "liars", "rates"
# the PS, drawn once
INITIAL_MODEL, HELD_OUT, ALONE = "initial-model", "held-out", "alone"
# each round; names are part of the key, so that renaming one changes every result
ASK, SCHEDULE, BACKLOGGED, CONTENTION, CHANNEL = "ask", "schedule", "hopefuls", "push", "channel"
ARRIVALS = "arrivals"  # each slot
SHUFFLE, DROPOUT, NOISE, LINKS, VALUATION = "shuffle", "dropout", "noise", "links", "valuation"
LYING, ATTACK = "lying", "attack"
COMPRESSION, OUTAGE = "compression", "outage"
AVAILABILITY = "availability"  # each window of time
# simulated plans, and the best load of a channel
PLAN, PLAN_BARRING, BEST_LOAD = "plan", "plan-barring", "best-load"


def stream(seed: int, purpose: str, *numbers: int) -> np.random.Generator:
    """Return a fresh generator for one purpose, e.g. `stream(seed, NOISE, round, ue)`.

    >>> stream(7, NOISE, 3, 12).random() == stream(7, NOISE, 3, 12).random()
    True
    """
    return np.random.Generator(np.random.SFC64(_sequence(seed, purpose, numbers)))


def torch_seed(seed: int, purpose: str, *numbers: int) -> int:
    """Return a 63-bit seed with the same key, for libraries that bring their own generators."""
    return int(_sequence(seed, purpose, numbers).generate_state(1, np.uint64)[0] >> np.uint64(1))


def _sequence(seed: int, purpose: str, numbers: tuple[int, ...]) -> np.random.SeedSequence:
    # spawn_key keeps numbers apart from the seed's own words: (1, 23) and (12, 3) are different streams.
    return np.random.SeedSequence(seed, spawn_key=(zlib.crc32(purpose.encode()), *numbers))
