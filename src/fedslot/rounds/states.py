"""States of strategies and aggregations as arrays, for checkpoints.

Of a large cell most UEs are never heard, and arrays (K,) have long runs of equal numbers, which checkpoints shorten.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
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


def carry(old: Any, new: Any) -> Any:
    """Return a number, an array or a state in the shape of `new`, with what `old` has of it.

    Arrays of UEs keep the numbers of those UEs that were there before. Whatever has no place stays as in `new`.
    """
    if is_dataclass(new):
        if type(old) is not type(new):
            return new
        return replace(
            new, **{field.name: carry(getattr(old, field.name), getattr(new, field.name)) for field in fields(new)}
        )  # type: ignore[type-var]
    before, after = as_array(old), as_array(new).copy()
    fits = before.ndim == after.ndim and all(few <= many for few, many in zip(before.shape, after.shape, strict=True))
    if not fits or before.dtype != after.dtype:
        return new
    after[tuple(slice(size) for size in before.shape)] = before
    return restore_like(new, after)


RUNS, LONG = " runs", 10_000
"""Suffix of an array's name where it holds runs, and the least length of an array that is shortened."""


def shorten_runs(arrays: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """Replace long arrays (K,) with few runs of equal numbers by the ends of the runs and one number of each.

    >>> shorten_runs({"value": np.repeat([0.0, 2.5], [9000, 9000])})
    {'value runs': array([ 9000, 18000]), 'value': array([0. , 2.5])}
    """
    short: dict[str, NDArray[Any]] = {}
    for name, array in arrays.items():
        if array.ndim == 1 and len(array) >= LONG and array.itemsize <= 8:
            bits = array.view(f"u{array.itemsize}")  # compares NaN and signs of zeros as well
            ends = np.append(np.flatnonzero(bits[1:] != bits[:-1]), len(array) - 1)
            if 4 * len(ends) < len(array):
                short[name + RUNS], array = ends + 1, array[ends]
        short[name] = array
    return short


def restore_runs(short: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """Undo `shorten_runs`."""
    arrays = {name: array for name, array in short.items() if not name.endswith(RUNS)}
    for name in arrays.keys() & {name.removesuffix(RUNS) for name in short if name.endswith(RUNS)}:
        arrays[name] = np.repeat(arrays[name], np.diff(short[name + RUNS], prepend=0))
    return arrays
