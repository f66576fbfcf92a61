"""Checks of arguments that the whole package shares."""

from __future__ import annotations

import numpy as np

from fedslot.errors import InputError, whole_number


def check_whole(field: str, value: object, least: int = 0, most: int | None = None) -> None:
    """Refuse a value that is not a whole number in the range."""
    whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
    if not whole or value < least or (most is not None and value > most):  # type: ignore[operator]
        limit = f"at least {least}" if most is None else f"from {least} to {most}"
        raise InputError(field, value, limit if whole else f"{whole_number(value)}, {limit}")


def check_probability(field: str, value: object) -> None:
    """Refuse a value that is not a number from 0 to 1."""
    if not isinstance(value, int | float | np.floating) or not 0 <= value <= 1:
        raise InputError(field, value, "a probability, from 0 to 1")
