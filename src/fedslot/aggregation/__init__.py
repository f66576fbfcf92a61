"""Aggregation: how the PS combines received updates into the next model, found by name or by `package.module:Name`.

base.py             the interface: `Updates` in, `Aggregate` out, state carried along
average.py          data-weighted average, ModelAverage of Algorithm 1
fedavgm.py          server momentum
fedadam.py          server Adam
fedyogi.py          server Yogi
median.py           coordinate-wise median
trimmed_mean.py     coordinate-wise trimmed mean
krum.py             Krum and Multi-Krum
filtered.py         weights by noise, a filter by the layers' inputs, larger steps
"""

from __future__ import annotations

from collections.abc import Mapping
from inspect import signature
from typing import Any

from pydantic import ValidationError

from fedslot.aggregation.average import Average, average
from fedslot.aggregation.base import Aggregate, Aggregation, Updates, noise_estimates
from fedslot.aggregation.fedadam import FedAdam
from fedslot.aggregation.fedavgm import FedAvgM
from fedslot.aggregation.fedyogi import FedYogi
from fedslot.aggregation.filtered import Filtered
from fedslot.aggregation.krum import Krum
from fedslot.aggregation.median import Median
from fedslot.aggregation.trimmed_mean import TrimmedMean
from fedslot.messages import NoState
from fedslot.parts.registry import find
from fedslot.support.errors import InputError, did_you_mean, whole_number

__all__ = [
    "AGGREGATIONS",
    "Aggregate",
    "Aggregation",
    "NoState",
    "Updates",
    "average",
    "make_aggregation",
    "noise_estimates",
]

AGGREGATIONS: dict[str, type[Aggregation[Any]]] = {
    "average": Average,
    "fedavgm": FedAvgM,
    "fedadam": FedAdam,
    "fedyogi": FedYogi,
    "median": Median,
    "trimmed-mean": TrimmedMean,
    "krum": Krum,
    "filtered": Filtered,
}
OPTIONS_FIELD = "aggregation.options"


def make_aggregation(name: str, options: Mapping[str, Any]) -> Aggregation[Any]:
    """Return the aggregation of that name with its options, or your own as `package.module:Name`.

    >>> make_aggregation("fedadam", {"lr": 0.05}).lr
    0.05
    >>> make_aggregation("fedadam", {"lr": 0})
    Traceback (most recent call last):
    fedslot.support.errors.InputError: aggregation.options.lr: 0 is not allowed; it must be greater than 0
    """
    maker = find("aggregation.name", name, AGGREGATIONS)
    try:
        aggregation = maker(**options)
    except ValidationError as error:
        raise _refusal(name, list(signature(maker).parameters), error) from None
    except InputError as error:
        raise InputError(f"{OPTIONS_FIELD}.{error.field}", error.value, error.allowed) from error
    except Exception as error:  # the user's own code may raise anything
        raise InputError(OPTIONS_FIELD, dict(options), f"options that {name} takes ({error})") from error
    parts = ("init", "apply")
    missing = [part for part in parts if not callable(getattr(aggregation, part, None))]
    if missing:
        raise InputError("aggregation.name", name, f"an aggregation with {', '.join(parts)}; it has no {missing[0]}")
    return aggregation


def _refusal(name: str, options: list[str], error: ValidationError) -> InputError:
    """Convert the first error of pydantic about the options of an aggregation into an `InputError`."""
    first = error.errors()[0]
    field = ".".join([OPTIONS_FIELD, *map(str, first["loc"])])
    if first["type"] == "unexpected_keyword_argument":
        known = f"takes {', '.join(options)}" if options else "takes no options"
        hint = did_you_mean(str(first["loc"][-1]), options)
        return InputError(field, first["input"], f"left out, since {name} {known}{hint}")
    allowed = first["msg"].removeprefix("Input should be ")
    return InputError(
        field, first["input"], allowed.replace("a valid integer", whole_number(first["input"])).replace("valid ", "")
    )
