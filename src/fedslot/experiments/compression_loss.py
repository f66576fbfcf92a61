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

    loss: of each pair of runs. rounds: after which it is measured, those of the shortest run. reference: what the
    compression is compared with: none, or the most precise one of a study that has no runs without any.
    """

    loss: Estimate
    rounds: int
    reference: str

    def as_dict(self) -> dict[str, Any]:
        """Return plain numbers, for JSON; there is no interval of fewer than three pairs."""
        low, high = (None if math.isnan(end) else end for end in (self.loss.low, self.loss.high))
        counts = {"pairs": self.loss.total, "rounds": self.rounds, "reference": self.reference}
        return {"mean": self.loss.mean, "low": low, "high": high, **counts}


def estimate_compression_loss(
    scenario: Scenario, study: Result | Comparison | Sweep, source: object
) -> CompressionLoss:
    """Estimate the loss by a scenario's compression from pairs of runs of a study; one without any is refused.

    source: name of the study in messages.
    """
    results = [] if isinstance(study, Result) else [run for _, runs in study.cases for run in runs.values() if run]
    results = [result for result in results if len(result.rounds)]
    with_it = [result for result in results if _same(result.scenario, scenario)]
    most = max(map(_precision, with_it), default=(True, 0.0))
    reference = max((result for result in results if _precision(result) > most), key=_precision, default=None)
    precise = {_rest(result): result for result in results if reference and _same(result.scenario, reference.scenario)}
    pairs = [(result, precise[rest]) for result in with_it if (rest := _rest(result)) in precise]
    if not pairs or reference is None:
        seen = dict.fromkeys(scheme_label(result.scenario.compression) for result in results) or ["a single run"]
        wants = f"a comparison or a sweep with {scheme_label(scenario.compression)} and without any"
        raise RefusedError(f"{source} does not tell the loss by compression: it holds {', '.join(seen)}; give {wants}")
    rounds = min(len(result.rounds) for pair in pairs for result in pair)
    losses = [_accuracy(other, rounds) - _accuracy(compressed, rounds) for compressed, other in pairs]
    against = scheme_label(reference.scenario.compression)
    return CompressionLoss(Estimate.of(losses, ACCURACY_DIFFERENCE), rounds, against)


def _rest(result: Result) -> str:
    """Return what tells runs apart that may be compressed in the same way."""
    return result.scenario.replace(dict.fromkeys(FIELDS)).digest


def _same(one: Scenario, other: Scenario) -> bool:
    return _compressions(one) == _compressions(other)


def _precision(result: Result) -> tuple[bool, float]:
    """Return whether a run has no compression, and the bits of an update in it."""
    received = result.rounds[["pulled", "push_received"]].to_numpy().sum()
    return _compressions(result.scenario) == (None, None), float(result.rounds["bits"].sum() / max(received, 1))


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
    return float(result.scores[rounds - 1])
