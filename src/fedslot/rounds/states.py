"""States of strategies and aggregations as arrays, for checkpoints."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray


def as_array(value: Any) -> NDArray[Any]:
    """Convert a tensor, an array or a number into an array."""
    return value.cpu().numpy() if isinstance(value, torch.Tensor) else np.asarray(value)


def state_arrays(state: Any) -> dict[str, NDArray[Any]]:
    """Return copies of the fields of a state, a dataclass of tensors, arrays and numbers, as arrays by name."""
    return {field.name: as_array(getattr(state, field.name)).copy() for field in fields(state)}


def restore_state(pattern: Any, saved: Mapping[str, NDArray[Any]], prefix: str = "") -> Any:
    """Rebuild a state from its `state_arrays`; each must have the dtype and shape of that field of `pattern`."""
    restored = {
        field.name: restore_like(getattr(pattern, field.name), saved[prefix + field.name]) for field in fields(pattern)
    }
    return type(pattern)(**restored)


def restore_like(pattern: Any, array: NDArray[Any]) -> Any:
    """Convert a saved array into a tensor, an array or a number, as `pattern` is; refuse another dtype or shape."""
    expected = as_array(pattern)
    if array.dtype != expected.dtype or array.shape != expected.shape:
        raise ValueError(f"{array.dtype}{array.shape} instead of {expected.dtype}{expected.shape}")
    if isinstance(pattern, torch.Tensor):
        return torch.from_numpy(array).to(pattern.device)
    if isinstance(pattern, np.ndarray):
        return array
    return array[()] if isinstance(pattern, np.generic) else array.item()
