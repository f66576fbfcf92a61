"""Checks of what strategies and aggregations return, since they may be the user's own.

`part` says whose result it is, and in which round: error messages begin with it.
"""

from __future__ import annotations

import math
from dataclasses import fields, is_dataclass, replace
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from fedslot.aggregation import Aggregate
from fedslot.messages import OWN, Attribute, Grant, Merit, UEs
from fedslot.rounds.trace import TRACED
from fedslot.scenario import Scenario
from fedslot.support.checks import is_number, is_whole
from fedslot.support.errors import RefusedError, shorten


def check_grant(part: str, grant: object, scenario: Scenario) -> Grant:
    """Return a grant with its fields as arrays and plain numbers; refuse one that no frame can hold."""
    most, ues = scenario.frame.slots, scenario.data.ues
    if not isinstance(grant, Grant):
        raise RefusedError(f"{part} must return a Grant from schedule(), not {describe(grant)}")
    slots = grant.slots
    if slots is not None and not (is_whole(slots) and 0 <= slots <= most):
        raise RefusedError(f"{part} must grant 0 to {most} uplink slots, or None for all, not {describe(slots)}")
    slots = most if slots is None else int(slots)
    pull = distinct_ues(grant.pull, ues)
    if pull is None or len(pull) > slots:
        wanted = f"at most {slots} different UEs, from 0 to {ues - 1}"
        raise RefusedError(f"{part} must grant pull slots to {wanted}, not {describe(grant.pull)}")
    if not isinstance(grant.push, bool | np.bool_):
        raise RefusedError(f"{part} must grant push as True or False, not {describe(grant.push)}")
    probability = grant.probability
    if not isinstance(probability, str | None):
        if not is_number(probability) or not 0 <= probability <= 1:
            raise RefusedError(f"{part} must grant a probability from 0 to 1, not {describe(probability)}")
        probability = float(probability)
    elif probability not in ("auto", None):
        raise RefusedError(f"{part} must grant a probability from 0 to 1, auto or None, not {describe(probability)}")
    return replace(
        grant,
        pull=pull,
        push=bool(grant.push),
        probability=probability,
        slots=None if grant.slots is None else slots,
        merit=_check_merit(part, grant.merit, ues),
    )


def _check_merit(part: str, merit: object, ues: int) -> Merit | None:
    if merit is None:
        return None
    if not isinstance(merit, Merit):
        raise RefusedError(f"{part} must announce a Merit or None, not {describe(merit)}")
    attributes = get_args(Attribute)
    if merit.attribute not in attributes:
        raise RefusedError(f"{part} must announce a merit by {', '.join(attributes)}, not {describe(merit.attribute)}")
    if (merit.told is None) != (merit.attribute in OWN):
        needs = "needs `told`, an array (K,)" if merit.told is None else "takes no `told`: UEs know it themselves"
        raise RefusedError(f"{part} announced a merit by {merit.attribute}, which {needs}")
    for end in (merit.least, merit.most):
        if not is_number(end) or math.isnan(end):
            raise RefusedError(f"{part} must announce a merit from one number to another, not {describe(end)}")
    if merit.told is None:
        return merit
    numbers = np.asarray(merit.told)
    if numbers.shape != (ues,) or numbers.dtype.kind not in "iuf":
        raise RefusedError(f"{part} must announce a merit with one number told to each UE, not {describe(numbers)}")
    return replace(merit, told=numbers.astype(np.float64, copy=False))


def check_aggregate(part: str, new: object, start: Tensor, state: object) -> Aggregate[Any]:
    """Return what an aggregation made of a round's updates; refuse models unlike `start` (P,), the one broadcast.

    state: the aggregation's state before the round.
    """
    if not isinstance(new, Aggregate):
        raise RefusedError(f"{part} must return an Aggregate from apply(), not {describe(new)}")
    for model in (new.broadcast, new.report):
        right = isinstance(model, Tensor) and model.shape == start.shape and model.dtype == start.dtype
        if not right or model.requires_grad:
            wanted = f"tensors ({len(start)},) of {start.dtype}, without gradients"
            raise RefusedError(f"{part} must return models as {wanted}")
        if not model.isfinite().all():  # the updates are
            raise RefusedError(f"{part} returned a model that is not finite")
    if new.val_loss is not None and not isinstance(new.val_loss, float):
        raise RefusedError(f"{part} must return val_loss as a float or None, not {describe(new.val_loss)}")
    check_state(part, "apply", new.state, state)
    return new


def check_state(part: str, function: str, state: object, before: object = None) -> None:
    """Refuse a state that a checkpoint cannot save, or that has another form than the state before.

    function: the name of the one that returned it.
    """
    must = f"{part} must return from {function}()"
    if not is_dataclass(state) or isinstance(state, type):
        raise RefusedError(f"{must} a dataclass of arrays and numbers, not {describe(state)}")
    if before is not None and type(state) is not type(before):
        raise RefusedError(f"{must} a {type(before).__name__}, as before, not {describe(state)}")
    for field in fields(state):
        if not field.init:
            raise RefusedError(f"{must} a dataclass whose constructor takes all fields, unlike {field.name}")
        value = getattr(state, field.name)
        form = _form(value)
        if form is None:
            wanted = "as an array of numbers or a number, which a checkpoint can save"
            raise RefusedError(f"{must} a state with {field.name} {wanted}, not {describe(value)}")
        if before is not None and form != (form_before := _form(getattr(before, field.name))):
            wanted = f"{_say(form_before)}, as before, so that a checkpoint can be restored"
            raise RefusedError(f"{must} a state with {field.name} as {wanted}, not {_say(form)}")


def check_traced(part: str, traced: object, ues: int) -> dict[str, NDArray[np.float64]]:
    """Return what a state says of the UEs for `frames.csv`; refuse anything but arrays (K,) under known names."""
    must = f"{part} must return from traced() numbers of {ues} UEs as `value` or `noise`"
    if not isinstance(traced, dict) or not traced.keys() <= TRACED:
        raise RefusedError(f"{must}, not {describe(traced)}")
    for array in traced.values():
        if not isinstance(array, np.ndarray) or array.shape != (ues,) or array.dtype.kind not in "iuf":
            raise RefusedError(f"{must}, not {describe(array)}")
    return traced


def distinct_ues(chosen: object, ues: int) -> UEs | None:
    """Return chosen UEs as an array (n,) if they are different whole numbers from 0 to `ues` - 1, else None."""
    try:
        array = np.asarray(chosen)
    except ValueError:  # lists of different lengths
        return None
    if array.ndim != 1 or (len(array) and array.dtype.kind not in "iu"):
        return None
    listed = array.tolist()
    if len(set(listed)) < len(listed) or not all(0 <= ue < ues for ue in listed):
        return None
    return array.astype(np.int64, copy=False)


def describe(value: object) -> str:
    """Return a short description of a value that is not what it should be."""
    if isinstance(value, np.ndarray | Tensor):
        return f"{value.dtype} of shape {tuple(value.shape)}: {shorten(value.tolist())}"
    return "None" if value is None else f"the {type(value).__name__} {shorten(value)}"


_Form = tuple[object, tuple[int, ...]]
"""Dtype and shape of a state's field; tensors and arrays have different dtypes."""


def _form(value: object) -> _Form | None:
    """Return the form of a state's field; None if a checkpoint cannot save it."""
    if isinstance(value, Tensor):
        return value.dtype, tuple(value.shape)
    if isinstance(value, np.ndarray | np.generic | bool | int | float):
        array = np.asarray(value)
        return (array.dtype, array.shape) if array.dtype.kind in "biuf" else None
    return None


def _say(form: _Form | None) -> str:
    return "what it was" if form is None else f"{form[0]} of shape {form[1]}"
