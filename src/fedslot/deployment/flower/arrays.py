"""Flat models to and from Flower's records of arrays."""

from __future__ import annotations

import numpy as np
import torch
from flwr.app import Array, ArrayRecord
from torch import Tensor

from fedslot.learning.models import Model
from fedslot.support.errors import InputError


def to_arrays(model: Model, flat: Tensor) -> ArrayRecord:
    """Return a flat model (P,) as Flower sends it: an array per parameter, named as in the module's `state_dict`."""
    parts = model.unflatten(flat.detach().cpu())
    return ArrayRecord({name: Array(np.ascontiguousarray(part.numpy())) for name, part in parts.items()})


def to_flat(model: Model, arrays: ArrayRecord) -> Tensor:
    """Return the flat model (P,) of arrays that can be trusted; those of devices are screened instead."""
    shapes = {name: tuple(array.shape) for name, array in arrays.items()}
    wanted = {name: tuple(shape) for name, shape in model.shapes.items()}
    if shapes != wanted:
        raise InputError("initial_arrays", shapes, f"arrays of the model's own parameters, {wanted}")
    flat = np.concatenate([arrays[name].numpy().ravel() for name in wanted])
    return torch.from_numpy(flat.astype(np.float32)).to(model.initial.device)
