"""Plain values: numbers, words, true, false, null, and lists and mappings of these, as YAML has them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from pathlib import PurePath
from typing import Any

from pydantic import BaseModel

from fedslot.support.errors import InputError

LARGEST_INT = 2**63 - 1  # whole numbers fit into 64 bits, as arrays and tables need it
MOST_NESTED = 20  # levels of lists and mappings inside one another
LONGEST_RANGE = 10**6


def plain(value: Any, depth: int = 0) -> Any:
    """Convert NumPy numbers, arrays, ranges, tuples, paths and sections of a scenario; return others as they are.

    >>> plain({"frame.pull": range(2, 9, 3)})
    {'frame.pull': [2, 5, 8]}
    """
    if depth > MOST_NESTED or isinstance(value, type):
        return value
    if isinstance(value, BaseModel):
        return value.model_dump()
    if isinstance(value, Mapping):
        # a tuple, as YAML reads a list that is a key, stays one, since a list cannot be a key
        keys = [key.tolist() if hasattr(key, "tolist") else key for key in value]
        return {key: plain(inner, depth + 1) for key, inner in zip(keys, value.values(), strict=True)}
    if isinstance(value, list | tuple) or (isinstance(value, range) and len(value) <= LONGEST_RANGE):
        return [plain(inner, depth + 1) for inner in value]
    if isinstance(value, PurePath):
        return str(value)
    return value.tolist() if hasattr(value, "tolist") else value  # of NumPy, PyTorch or pandas


def check_plain(field: str, value: object, depth: int = 0) -> None:
    """Refuse values that do not survive being written as YAML and read again."""
    if isinstance(value, int) and not -LARGEST_INT <= value <= LARGEST_INT:
        raise InputError(field, value, "made of whole numbers within 64 bits")
    inside: Iterable[object] = ()
    allowed = value is None or isinstance(value, int | str) or (isinstance(value, float) and math.isfinite(value))
    if isinstance(value, list):
        inside, allowed = value, depth < MOST_NESTED
    elif isinstance(value, dict):
        one_kind = all(isinstance(key, str) for key in value) or all(type(key) is int for key in value)
        inside, allowed = [*value, *value.values()], one_kind and depth < MOST_NESTED
    if not allowed:
        raise InputError(field, value, "plain: numbers, words, true, false, null, and lists and mappings of these")
    for inner in inside:
        check_plain(field, inner, depth + 1)
