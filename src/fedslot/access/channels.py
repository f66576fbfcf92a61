"""Random-access channels: who gets through when several UEs contend for the push slots.

A channel plays many frames at once, because planning and analysis need thousands; the simulator plays one.
A channel of your own is a class with the method `play` of `Channel`, named in a scenario as
`push.channel: package.module:Name`.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Slots = NDArray[np.int64]


class Channel(Protocol):
    """Decides which contenders are received, and in which slot."""

    def play(self, earliest: Slots, slots: int, rng: np.random.Generator) -> Slots:
        """Play a batch of frames.

        earliest: (F, N), the first push slot, from 1, that each contender of each frame may use; anything
            above `slots` stands for a UE that stays silent in that frame.
        slots: the number of push slots, L.
        returns: (F, N), the slot from 1 to L in which each UE was received, 0 if it was not.
        """
        ...


class Collision:
    """Framed ALOHA on the collision channel: one slot each, received if alone in it, no retransmission.

    >>> channel = Collision()
    >>> channel.play(np.ones((1, 1), dtype=np.int64), 1, np.random.default_rng(0))
    array([[1]])
    """

    def play(self, earliest: Slots, slots: int, rng: np.random.Generator) -> Slots:
        frames, contenders = earliest.shape
        if slots == 0 or contenders == 0:
            return np.zeros_like(earliest)
        choices = slots + 1 - earliest
        pick = earliest + (rng.random((frames, contenders)) * choices).astype(np.int64)
        pick[choices <= 0] = 0  # silent UEs all "use" slot 0, which no one receives
        cell = pick + (slots + 1) * np.arange(frames)[:, None]
        load = np.bincount(cell.ravel(), minlength=frames * (slots + 1))
        return np.where(load[cell] == 1, pick, 0)
