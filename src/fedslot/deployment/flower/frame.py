"""A frame that was announced over Flower: the turns of its UEs, and what came of it."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import replace
from functools import cached_property

import numpy as np

from fedslot.access.frame import COLLIDED, contend, resolve, tally
from fedslot.deployment.flower.turn import Turn, read_channel, write_channel
from fedslot.messages import Grant, Receipt, UEs
from fedslot.rng import CHANNEL, stream
from fedslot.scenario import Scenario


class Announced:
    """A frame as the PS announced it.

    seeded: whether UEs draw from the scenario's seed, so that PS and simulator can repeat the draw.
    """

    def __init__(self, scenario: Scenario, grant: Grant, backlogged: UEs, round: int, seeded: bool) -> None:
        self.grant, self.round, self.seed = grant, round, scenario.seed
        self.push_slots = scenario.frame.slots - len(grant.pull)
        self.backlogged = backlogged if grant.push and self.push_slots else backlogged[:0]
        self._channel = write_channel(scenario.push.channel, scenario.push.channel_options)
        self._seeded = seeded

    @cached_property
    def turns(self) -> dict[int, Turn]:
        """The turn of each UE that is pulled or may push."""
        pull, push = self.grant.pull.tolist(), self.backlogged.tolist()
        pulls = {ue: Turn(self.round, ue, slot) for slot, ue in enumerate(pull, 1)}
        window = Turn(
            self.round,
            ue=-1,
            slot=0,
            first=len(pull) + 1,
            slots=self.push_slots,
            probability=float(self.grant.probability),
            channel=self._channel,
            backlogged=len(push),
            seed=str(self.seed) if self._seeded else "",
        )
        return pulls | {ue: replace(window, ue=ue, rank=rank) for rank, ue in enumerate(push)}

    @cached_property
    def copies(self) -> int:
        """Slots that a UE may use at most."""
        return self._draw(np.random.default_rng(0)).shape[1] if len(self.backlogged) else 1

    def receipt(self, used: Mapping[int, list[int]], sound: AbstractSet[int]) -> Receipt:
        """What came of it.

        used: the slots in which each UE was on the air.
        sound: the UEs whose message is an update that can be used. The others' messages take their slots all the
            same, as good ones would: they collide with others, or waste the slot.
        """
        pull = self.grant.pull
        in_time = np.array([ue in sound for ue in pull.tolist()], dtype=bool)
        return tally(pull, in_time, self.backlogged, self._pushed(used, sound))

    def _pushed(self, used: Mapping[int, list[int]], sound: AbstractSet[int]) -> UEs:
        if not len(self.backlogged):
            return np.empty(0, dtype=np.int64)
        sent, first = np.zeros((len(self.backlogged), self.copies), dtype=np.int64), len(self.grant.pull) + 1
        for rank, ue in enumerate(self.backlogged.tolist()):
            own = used.get(ue, [])
            sent[rank, : len(own)] = [slot - first + 1 for slot in own]
        fading = stream(self.seed, CHANNEL, self.round)
        outcome = resolve(sent, self.push_slots, read_channel(self._channel), fading)
        usable = np.array([ue in sound for ue in self.backlogged.tolist()])
        return np.where(usable, outcome, np.minimum(outcome, COLLIDED))

    def _draw(self, rng: np.random.Generator) -> UEs:
        channel = read_channel(self._channel)
        return contend(np.zeros(len(self.backlogged)), self.push_slots, self.grant.probability, channel, rng)
