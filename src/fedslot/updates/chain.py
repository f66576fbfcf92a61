"""The links of a chain: train -> clip -> noise -> ... -> compress -> send.

A link is a part that maps the update of one UE to what goes on, and says how many bits it then has. It runs where the
UE trains: in the simulator, on a device over MQTT and in a Flower client alike. A link may carry a state from one
update of a UE to the next, such as the error that a compression left; states belong to UEs, and are saved with a run.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from fedslot.compression import Compression, Key
from fedslot.support.errors import RefusedError
from fedslot.support.rng import LINKS, stream

BITS = 32  # of a parameter in full precision

Memory = Mapping[int, Tensor]
"""The states of UEs' chains, (S,) each; UEs without an update so far have none."""


@dataclass(frozen=True)
class Sender:
    """What a link may know of the UE that sends: its number, the round, its noise level and its number of samples.

    position: of the link in the chain, from 0.
    """

    ue: int
    round: int
    seed: int
    noise: float
    samples: int
    position: int = 0

    def rng(self) -> np.random.Generator:
        """Return a generator for this link, UE and round."""
        return stream(self.seed, LINKS, self.round, self.ue, self.position)


@dataclass(frozen=True, eq=False)
class Outgoing:
    """An update on its way to the PS.

    start: (P,) the model that was broadcast. model: (P,) the local model as the PS will read it; a link may change it
    in place. bits: its size on the air.
    """

    start: Tensor
    model: Tensor
    bits: int


class Link(ABC):
    """A link of the chain; one of your own is a subclass. Its options are the keyword arguments of its constructor."""

    def init(self, model: Tensor) -> Tensor:
        """Return the state (S,) of a UE before its first update; without elements if the link has no state."""
        return model.new_empty(0)

    @abstractmethod
    def apply(self, update: Outgoing, sender: Sender, state: Tensor) -> tuple[Outgoing, Tensor]:
        """Return what goes on, and the UE's new state."""


@dataclass(frozen=True)
class Chain:
    """The links of a scenario, in the order in which they are applied.

    names: of the links, for messages. compression: how what the last link returns is written as bytes; None: it is sent
    in full precision.
    """

    links: Sequence[Link]
    names: Sequence[str]
    compression: Compression | None = None

    def compression_alone(self) -> Chain:
        """Return the chain without its links: what is sent is compressed all the same."""
        return replace(self, links=(), names=())

    def send(self, start: Tensor, model: Tensor, sender: Sender, state: Tensor | None) -> tuple[Outgoing, Tensor]:
        """Pass a local model (P,) trained from `start` (P,) through all links; return it and the UE's new state (S,).

        state: (S,) the state after the UE's last update; None: there was none.
        """
        update, after = Outgoing(start, model, BITS * len(model)), [start.new_empty(0)]
        before = [link.init(start) for link in self.links]
        if self.compression:
            before.append(torch.from_numpy(self.compression.first_error()).to(start))
        if state is not None:
            before = list(torch.split(state, [len(part) for part in before]))
        for position, (name, link, own) in enumerate(zip(self.names, self.links, before, strict=False)):
            update, new = link.apply(update, replace(sender, position=position), own)
            part = f"link {name} must return from apply()"
            if not isinstance(update, Outgoing) or not _alike(update.model, start):
                raise RefusedError(f"{part} an Outgoing with a model ({len(start)},) of {start.dtype}")
            if not isinstance(update.bits, int) or update.bits < 0:
                raise RefusedError(f"{part} an update with a whole number of bits, not {update.bits!r}")
            if not _alike(new, own):
                raise RefusedError(f"{part} a state ({len(own)},) of {own.dtype}, as before")
            after.append(new)
        if self.compression:
            update, error = _compress(self.compression, update, sender, before[-1])
            after.append(error)
        return update, torch.cat(after)


def _compress(compression: Compression, update: Outgoing, sender: Sender, error: Tensor) -> tuple[Outgoing, Tensor]:
    """Return an update as the PS decodes it, and the UE's new error memory."""
    change, key = (update.model - update.start).cpu().numpy(), Key(sender.seed, sender.round, sender.ue)
    message, arrived, left = compression.send(change, key, error.cpu().numpy())
    model = update.start + torch.from_numpy(arrived).to(update.start)
    return replace(update, model=model, bits=8 * len(message)), torch.from_numpy(left).to(error)


def _alike(given: object, pattern: Tensor) -> bool:
    return isinstance(given, Tensor) and given.shape == pattern.shape and given.dtype == pattern.dtype
