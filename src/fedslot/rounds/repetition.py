"""Rounds that are computed twice, to find parts of the user's own with which a resumed run would go on differently.

A part that draws from other generators than those it is given, or that remembers more than its state holds, gives
another result after a resumption. So some rounds are repeated as a resumed run would compute them: by parts that are
built anew, from the snapshot before the round. Built-in parts are tested for this, and need no repetition.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict

import numpy as np
from numpy.typing import NDArray

from fedslot.rounds.ps import Step
from fedslot.rounds.states import as_array, state_arrays
from fedslot.scenario import Scenario
from fedslot.support.errors import RefusedError, first_names


def is_repeated(round: int) -> bool:
    """Return whether a round is computed twice: those of numbers 0, 1, 2, 4, 8, ..., so that long runs cost little.

    >>> [round for round in range(40) if is_repeated(round)]
    [0, 1, 2, 4, 8, 16, 32]
    """
    return round & (round - 1) == 0


def refuse_difference(scenario: Scenario, done: Step, again: Step | None) -> None:
    """Refuse the user's own parts if a round had another result when it was repeated."""
    first, second = (dict(_results(step)) if step else {} for step in (done, again))
    differs = next((name for name, array in first.items() if not _equal(array, second.get(name))), None)
    if differs is not None:
        parts = f"{first_names(scenario.own_parts)} gave another result when the round was repeated"
        rule = "parts of your own may draw from the given `rng` only, and remember only what their state holds"
        raise RefusedError(f"round {done.round.round}: {parts} (another {differs}); {rule}")


def _results(step: Step) -> Iterator[tuple[str, NDArray[np.generic]]]:
    """Yield what a round results in, by name: its frame, its record but for the time that it took, and its snapshot."""
    yield "frame", np.array([(event.slot, event.event, event.ue or 0) for event in step.frame], dtype=str)
    yield "model", as_array(step.now.model)
    for name, value in asdict(step.round).items():
        if name != "seconds":
            yield name, np.array(np.nan if value is None else value)
    now = step.now
    yield "report", as_array(now.report)
    yield "waiting", now.waiting
    for part, state in (("state", now.state), ("aggregation", now.aggregation), ("own", now.own)):
        for name, array in state_arrays(state).items():
            yield f"{part}.{name}", array
    for ue, state in now.links.items():
        yield f"chain of UE {ue}", as_array(state)


def _equal(one: NDArray[np.generic], other: NDArray[np.generic] | None) -> bool:
    return other is not None and np.array_equal(one, other, equal_nan=one.dtype.kind == "f")
