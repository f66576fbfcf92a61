"""The loss of accuracy by a compression, from runs of a study that differ in their compression alone."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from fedslot.experiments.comparison import Comparison
from fedslot.experiments.estimates import ACCURACY_DIFFERENCE, Estimate
from fedslot.experiments.sweeps import Sweep
from fedslot.parts.kinds import CODECS
from fedslot.planning.inputs import scheme_label
from fedslot.runs.results import Result
from fedslot.scenario import CompressionPart, Scenario
from fedslot.support.errors import RefusedError

FIELDS = ("compression", "broadcast_compression")


@dataclass(frozen=True)
class CompressionLoss:
    """How much lower the test accuracy is with compression than without it, after the same number of rounds.

    loss: of each pair of runs. rounds: after which it is measured, those of the shortest run.
    """

    loss: Estimate
    rounds: int

    def as_dict(self) -> dict[str, Any]:
        """Return plain numbers, for JSON; there is no interval of fewer than three pairs."""
        low, high = (None if math.isnan(end) else end for end in (self.loss.low, self.loss.high))
        return {"mean": self.loss.mean, "low": low, "high": high, "pairs": self.loss.total, "rounds": self.rounds}


def estimate_compression_loss(
    scenario: Scenario, study: Result | Comparison | Sweep, source: object
) -> CompressionLoss:
    """Estimate the loss by a scenario's compression from pairs of runs of a study; one without any is refused.

    source: name of the study in messages.
    """
    results = [] if isinstance(study, Result) else [run for _, runs in study.cases for run in runs.values() if run]
    wanted, without = _compressions(scenario), dict[str, Result]()
    for result in results:
        if _compressions(result.scenario) == (None, None):
            without[result.scenario.digest] = result
    pairs = [
        (result, plain)
        for result in results
        if _compressions(result.scenario) == wanted
        and (plain := without.get(result.scenario.replace(dict.fromkeys(FIELDS)).digest)) is not None
    ]
    if not pairs:
        seen = dict.fromkeys(scheme_label(result.scenario.compression) for result in results) or ["a single run"]
        wants = f"a comparison or a sweep with {scheme_label(scenario.compression)} and without any"
        raise RefusedError(f"{source} does not tell the loss by compression: it holds {', '.join(seen)}; give {wants}")
    rounds = min(len(result.rounds) for pair in pairs for result in pair)
    losses = [_accuracy(plain, rounds) - _accuracy(compressed, rounds) for compressed, plain in pairs]
    return CompressionLoss(Estimate.of(losses, ACCURACY_DIFFERENCE), rounds)


def _compressions(scenario: Scenario) -> tuple[dict[str, Any] | None, dict[str, Any] | None]:
    """Return the compressions of updates and of models with all options, given or not, by which two are the same."""
    updates, models = (_complete(getattr(scenario, field)) for field in FIELDS)
    return updates, models


def _complete(part: CompressionPart | None) -> dict[str, Any] | None:
    if part is None:
        return None
    defaults = {name: option.default for name, option in CODECS.options(part.name).items()}
    return {**part.model_dump(), "options": {**defaults, **part.options}}


def _accuracy(result: Result, rounds: int) -> float:
    return float(result.rounds["test_accuracy"].iloc[rounds - 1])
