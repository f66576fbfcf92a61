"""Gaussian noise on every parameter of an update (Sec. II-A)."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from fedslot.support.rng import NOISE, stream
from fedslot.updates.chain import Link, Outgoing, Sender


class Noise(Link):
    """Adds the UE's Gaussian noise, whose standard deviation `fleet.noise` and `fleet.noise_law` give."""

    def apply(self, update: Outgoing, sender: Sender, state: Tensor) -> tuple[Outgoing, Tensor]:
        if sender.noise > 0:
            model, rng = update.model, stream(sender.seed, NOISE, sender.round, sender.ue)
            noise = rng.standard_normal(len(model), dtype=np.float32)
            model.add_(torch.from_numpy(noise).to(model), alpha=sender.noise)
        return update, state
