"""What stock strategies remember from round to round, such as FedAdam's moments, so that it survives a restart."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from typing import Any

from flwr.serverapp.strategy import FedAvg
from numpy.typing import NDArray

NAMED = ("m_t", "v_t")  # of FedAdagrad, FedAdam and FedYogi: arrays by name
LISTED = ("momentum_vector",)  # of FedAvgM: arrays in order
MODELS = ("current_arrays",)  # the last model, which a new strategy is given anyway


def moments(strategy: FedAvg) -> dict[str, NDArray[Any]]:
    """The arrays that a strategy holds between rounds; none for those that remember nothing."""
    found: dict[str, NDArray[Any]] = {}
    for name in NAMED:
        found |= {f"{name}/{key}": array for key, array in (getattr(strategy, name, None) or {}).items()}
    for name in LISTED:
        found |= {f"{name}/{index}": array for index, array in enumerate(getattr(strategy, name, None) or [])}
    return found


def restore_moments(strategy: FedAvg, saved: Mapping[str, NDArray[Any]]) -> None:
    """Give a new strategy what an old one held."""
    for name in NAMED + LISTED:
        parts = {key.partition("/")[2]: array for key, array in saved.items() if key.startswith(f"{name}/")}
        if parts:
            setattr(strategy, name, parts if name in NAMED else [parts[str(index)] for index in range(len(parts))])


def hold(strategy: FedAvg) -> dict[str, Any]:
    """What a strategy remembers now, to put it back if a round comes to nothing."""
    return {name: deepcopy(getattr(strategy, name)) for name in NAMED + LISTED + MODELS if hasattr(strategy, name)}


def put_back(strategy: FedAvg, held: Mapping[str, Any]) -> None:
    """Undo what was remembered since `hold`."""
    for name, value in held.items():
        setattr(strategy, name, value)
