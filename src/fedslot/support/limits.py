"""How far an update may lie from the model that was broadcast."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor  # a device needs no PyTorch

MOST_NORM = 10.0


def longest_step(initial: Tensor, norm: float = MOST_NORM) -> float:
    """Return the longest step that the PS of a deployment accepts.

    initial: (P,) the model before training; a device could raise the norm of the present one round by round.
    norm: the limit, in multiples of the initial model's norm (at least 1).
    """
    return norm * max(float(initial.double().norm()), 1.0)
