"""Find a strategy, channel, model etc. by name: a built-in one, or the user's own as `package.module:Name`."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import TypeVar

from fedslot.errors import InputError

T = TypeVar("T")


def find(field: str, name: str, known: Mapping[str, T]) -> T:
    """Return the part with a name in `known`, or import it; `field` is the scenario's key in error messages.

    >>> find("training.model", "cnm", {"mlp": print, "cnn": print})
    Traceback (most recent call last):
    fedslot.errors.InputError: training.model: 'cnm' is not allowed; it must be one of mlp, cnn, or package.module:Name
    """
    if name in known:
        return known[name]
    allowed = f"one of {', '.join(known)}, or package.module:Name"
    package, colon, attribute = name.partition(":")
    if not colon:
        raise InputError(field, name, allowed)
    try:
        found: T = getattr(importlib.import_module(package), attribute)
    except (ImportError, AttributeError, ValueError, TypeError) as error:
        raise InputError(field, name, f"{allowed} that can be imported ({error})") from None
    if not callable(found):
        raise InputError(field, name, f"{allowed} that can be called, not a {type(found).__name__}")
    return found
