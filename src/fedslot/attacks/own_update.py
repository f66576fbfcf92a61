"""Attacks with the liar's own update, or with none."""

from __future__ import annotations

from typing import Annotated

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from fedslot.attacks.base import Attack, Knowledge

Scale = Annotated[float, Field(gt=0, le=1e6)]


class SignFlip(Attack):
    """Sends the own update with its sign flipped, `scale` times as long."""

    def __init__(self, *, scale: Scale = 1.0) -> None:
        self.scale = scale

    def steps(self, knowledge: Knowledge) -> Tensor:
        return -self.scale * knowledge.own


class Scaled(Attack):
    """Sends the own update `scale` times as long."""

    def __init__(self, *, scale: Scale = 10.0) -> None:
        self.scale = scale

    def steps(self, knowledge: Knowledge) -> Tensor:
        return self.scale * knowledge.own


class Gaussian(Attack):
    """Sends Gaussian noise, `scale` times as long as the own update."""

    def __init__(self, *, scale: Scale = 1.0) -> None:
        self.scale = scale

    def steps(self, knowledge: Knowledge) -> Tensor:
        own = knowledge.own
        noise = np.stack([knowledge.rng(ue).standard_normal(own.shape[1], np.float32) for ue in knowledge.ues.tolist()])
        return _as_long(torch.from_numpy(noise).to(own), own, self.scale)


class Direction(Attack):
    """Sends a random direction, common to all liars and rounds, `scale` times as long as the own update."""

    def __init__(self, *, scale: Scale = 1.0) -> None:
        self.scale = scale

    def steps(self, knowledge: Knowledge) -> Tensor:
        own = knowledge.own
        common = knowledge.common_rng().standard_normal(own.shape[1], np.float32)
        return _as_long(torch.from_numpy(common).to(own).expand_as(own), own, self.scale)


class FreeRider(Attack):
    """Sends the model as it came, with Gaussian noise of standard deviation `noise` on each parameter."""

    def __init__(self, *, noise: Annotated[float, Field(ge=0, le=1e6)] = 0.0) -> None:
        self.noise = noise

    def steps(self, knowledge: Knowledge) -> Tensor:
        steps = torch.zeros_like(knowledge.own)
        for step, ue in zip(steps, knowledge.ues.tolist(), strict=True):
            noise = knowledge.rng(ue).standard_normal(len(step), np.float32)
            step.add_(torch.from_numpy(noise).to(step), alpha=self.noise)
        return steps


def _as_long(steps: Tensor, own: Tensor, scale: float) -> Tensor:
    """Return steps (n, P) with the lengths of others, times `scale`."""
    lengths = torch.linalg.vector_norm(own, dim=1) / torch.linalg.vector_norm(steps, dim=1)
    longer: Tensor = steps * (scale * lengths).unsqueeze(1)
    return longer
