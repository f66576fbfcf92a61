"""Checks of numbers that are given as arguments."""

from __future__ import annotations

import numpy as np

from fedslot.support.errors import InputError, say_number, whole_number


def is_whole(value: object) -> bool:
    """Return whether a value is a whole number, also one of NumPy."""
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def is_number(value: object) -> bool:
    """Return whether a value is a real number, also one of NumPy."""
    return is_whole(value) or isinstance(value, float | np.floating)


def check_whole(field: str, value: object, least: int = 0, most: int | None = None) -> None:
    """Refuse a value that is not a whole number in the range."""
    whole = is_whole(value)
    if not whole or value < least or (most is not None and value > most):  # type: ignore[operator]
        limit = f"at least {least}" if most is None else f"from {least} to {most}"
        raise InputError(field, value, limit if whole else f"{whole_number(value)}, {limit}")


def check_number(field: str, value: object, least: float, most: float) -> None:
    """Refuse a value that is not a number in the range."""
    if not is_number(value) or not least <= value <= most:  # type: ignore[operator]
        raise InputError(field, value, f"a number from {say_number(least)} to {say_number(most)}")


def check_probability(field: str, value: object) -> None:
    """Refuse a value that is not a number from 0 to 1."""
    if not is_number(value) or not 0 <= value <= 1:  # type: ignore[operator]
        raise InputError(field, value, "a probability, from 0 to 1")
