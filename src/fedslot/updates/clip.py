"""Clipping: the norm of an update is limited, as in differentially private training."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor

from fedslot.updates.chain import Link, Outgoing, Sender


class Clip(Link):
    """Scales an update down to a Euclidean norm of at most `norm`; shorter ones stay as they are.

    >>> from fedslot.updates import Outgoing, Sender
    >>> update = Outgoing(torch.zeros(2), torch.tensor([3.0, 4.0]), 64)
    >>> Clip(norm=1.0).apply(update, Sender(0, 0, 0, 0.0, 1), torch.empty(0))[0].model
    tensor([0.6000, 0.8000])
    """

    def __init__(self, *, norm: Annotated[float, Field(gt=0, le=1e9)] = 1.0) -> None:
        self.norm = norm

    def apply(self, update: Outgoing, sender: Sender, state: Tensor) -> tuple[Outgoing, Tensor]:
        step = update.model - update.start
        length = float(torch.linalg.vector_norm(step.double()))
        if length <= self.norm:
            return update, state
        return replace(update, model=update.start + step * (self.norm / length)), state
