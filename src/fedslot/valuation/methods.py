"""Valuation methods by name, or your own as `package.module:Name`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any, Protocol

import numpy as np

from fedslot.parts.registry import find
from fedslot.support.errors import InputError
from fedslot.valuation.cyclic import Cyclic
from fedslot.valuation.exact import Exact, LeaveOneOut
from fedslot.valuation.game import Game, Valuation
from fedslot.valuation.gtg import GTG
from fedslot.valuation.kriging import Banzhaf, Kriging


class ValuationMethod(Protocol):
    """Values the players of a game, drawing random numbers from the given generator only."""

    def __call__(self, game: Game, rng: np.random.Generator) -> Valuation:
        """Return the values of the players, their standard errors, and the number of utilities that were evaluated."""
        ...


METHODS: dict[str, Callable[..., ValuationMethod]] = {
    "kriging": Kriging,
    "cyclic": Cyclic,
    "gtg": GTG,
    "exact": Exact,
    "leave-one-out": LeaveOneOut,
    "banzhaf": Banzhaf,
}


def make_method(name: str, settings: Mapping[str, Any], options: Mapping[str, Any]) -> ValuationMethod:
    """Make the method of that name; your own is called with the options as keyword arguments.

    settings: values for the fields of the built-in methods; each takes those that it has.
    options: further keyword arguments.
    """
    maker: Any = find("valuation.method", name, METHODS)
    own = {field.name for field in fields(maker)} if name in METHODS else set()
    try:
        method: ValuationMethod = maker(**{key: settings[key] for key in own & settings.keys()}, **options)
    except InputError as error:
        raise InputError(f"valuation.options.{error.field}", error.value, error.allowed) from error
    except Exception as error:  # the user's own code may raise anything
        raise InputError("valuation.options", dict(options), f"options that {name} takes ({error})") from error
    if not callable(method):
        raise InputError("valuation.method", name, "a factory of methods, which are called with (game, rng)")
    return method
