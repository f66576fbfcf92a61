"""Random-access channels: which UEs are received when several contend for the push slots.

A channel plays many frames at once, because planning needs thousands.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from fedslot.parts import kinds
from fedslot.parts.kind import Kind
from fedslot.support.checks import check_number
from fedslot.support.errors import InputError, RefusedError, shorten

Slots = NDArray[np.int64]

BLOCK = 1 << 15  # number of UEs in a block, so that the counts of their slots fit into the processor's cache


class Channel(ABC):
    """Decides which contenders are received, and in which slot.

    In a deployment, `draw` runs on the UEs, which choose the slots in which they send, and `resolve` at the PS, which
    receives some of them. A channel of your own, in a scenario `push.channel: package.module:Name`, overrides
    `resolve`, and `draw` if UEs do not simply pick one slot uniformly.
    """

    def draw(self, earliest: Slots, slots: int, rng: np.random.Generator) -> Slots:
        """Draw the slots in which each UE sends.

        earliest: (F, N), the first push slot, from 1, that each UE of each frame may use; anything above `slots`
            stands for a UE that stays silent in that frame.
        slots: number of push slots, L.
        returns: (F, N, C), the slots of each UE's C copies, 0 where there is none.
        """
        choices = slots + 1 - earliest
        draws = rng.random(earliest.shape)
        draws *= choices
        pick = draws.astype(np.int64)
        pick += earliest
        pick[choices <= 0] = 0
        return pick[:, :, None]

    @abstractmethod
    def resolve(self, sent: Slots, slots: int, rng: np.random.Generator) -> Slots:
        """Return the slot in which each UE was received.

        sent: (F, N, C), as `draw` returned them.
        slots: number of push slots, L.
        rng: for random numbers of the channel's own, such as fading.
        returns: (F, N), the slot from 1 to L in which each UE was received, 0 if it was not.
        """

    def play(self, earliest: Slots, slots: int, rng: np.random.Generator) -> Slots:
        """Play a batch of frames: `draw`, then `resolve`."""
        if slots == 0 or earliest.size == 0:
            return np.zeros_like(earliest)
        return self.receive(self.send(earliest, slots, rng), slots, rng)

    def send(self, earliest: Slots, slots: int, rng: np.random.Generator) -> Slots:
        """Return what `draw` returns; refuse slots that do not exist, or that a UE may not use."""
        sent = self.draw(earliest, slots, rng)
        self._check("draw", sent, slots, (*earliest.shape, "copies"))
        if ((sent < earliest[:, :, None]) & (sent > 0)).any():
            raise RefusedError(f"channel {type(self).__name__} must draw no slot before a UE's earliest")
        return sent.astype(np.int64, copy=False)

    def receive(self, sent: Slots, slots: int, rng: np.random.Generator) -> Slots:
        """Return what `resolve` returns; refuse slots that do not exist, and the reception of silent UEs."""
        received = self.resolve(sent, slots, rng)
        self._check("resolve", received, slots, sent.shape[:2])
        if ((received > 0) & ~sent.any(axis=2)).any():
            raise RefusedError(f"channel {type(self).__name__} must resolve to 0 for UEs that sent nothing")
        return received.astype(np.int64, copy=False)

    def _check(self, method: str, result: Any, slots: int, shape: tuple[object, ...]) -> None:
        """Refuse anything but an array of slots from 0 to `slots` of the shape, any number of copies included."""
        whole = isinstance(result, np.ndarray) and result.dtype.kind in "iu"
        fits = np.ndim(result) == len(shape) and np.shape(result)[:2] == shape[:2]
        if whole and fits and (not result.size or 0 <= result.min() <= result.max() <= slots):
            return
        kind = shorten(result)
        if isinstance(result, np.ndarray):
            kind = f"{result.dtype} of shape {result.shape}: {shorten(result.tolist())}"
        wanted = f"an array ({', '.join(map(str, shape))}) of whole numbers from 0 to {slots}"
        raise RefusedError(f"channel {type(self).__name__} must return {wanted} from {method}(), not {kind}")


class Collision(Channel):
    """Framed ALOHA on the collision channel: one slot each, received if alone in it, no retransmission.

    >>> channel = Collision()
    >>> channel.play(np.ones((1, 1), dtype=np.int64), 1, np.random.default_rng(0))
    array([[1]])
    """

    def resolve(self, sent: Slots, slots: int, rng: np.random.Generator) -> Slots:
        frames, received = max(1, BLOCK // max(1, sent.shape[1])), []
        for first in range(0, len(sent), frames):
            pick, cell = _cells(sent[first : first + frames], slots)
            alone = np.bincount(cell.ravel()) == 1
            alone[:: slots + 1] = False  # slot 0 is no slot
            received.append(pick * alone[cell])
        return np.concatenate(received)


class Capture(Channel):
    """Framed ALOHA with Rayleigh fading: the strongest UE of a slot may be received despite the others.

    Received powers are independent and exponential with mean 1 (power control evens out the distances). A UE is
    received if its power is at least the threshold times that of all others in its slot and the noise: below 0 dB,
    these can be several. Without noise, one of n UEs is received with probability n / (1 + z)^(n-1), where z >= 1 is
    the threshold as a ratio.

    threshold_db: the least ratio of signal to interference and noise at which an update is decoded, in dB.
    noise: the power of the noise, as a fraction of the mean power of a UE.

    >>> Capture(threshold_db=3.0).play(np.ones((1, 1), dtype=np.int64), 1, np.random.default_rng(0))
    array([[1]])
    """

    def __init__(self, threshold_db: float = 6.0, noise: float = 0.0) -> None:
        check_number("threshold_db", threshold_db, -300, 300)
        check_number("noise", noise, 0, 1e100)
        self.threshold_db, self.noise = threshold_db, noise

    def resolve(self, sent: Slots, slots: int, rng: np.random.Generator) -> Slots:
        pick, cell = _cells(sent, slots)
        power = rng.exponential(size=pick.shape)
        others = np.bincount(cell.ravel(), weights=power.ravel())[cell] - power + self.noise
        return np.where(power >= 10 ** (self.threshold_db / 10) * others, pick, 0)


class Coded(Channel):
    """Coded random access: each UE sends copies in several slots, and decoded UEs are cancelled everywhere.

    A UE draws a number of copies and sends them in different slots from its earliest to L (in all of these if they
    are fewer). Each copy contains the positions of the others. A slot with one uncancelled UE decodes it, and its
    copies are cancelled in all slots, which may leave other UEs alone in theirs. Cancellation is perfect and a
    collision carries no information. A UE counts as received in the slot after which the PS can decode it from the
    slots heard so far, which may be later than those of its copies.

    degrees: probability of each number of copies.

    >>> channel = Coded({2: 1.0})
    >>> sorted(channel.play(np.ones((1, 2), dtype=np.int64), 2, np.random.default_rng(0))[0].tolist())
    [0, 0]
    """

    def __init__(self, degrees: Mapping[int, float]) -> None:
        chances = [float(p) for p in degrees.values()]
        whole = all(isinstance(d, int) and d >= 1 for d in degrees)
        if not whole or not all(0 <= p <= 1 for p in chances) or abs(sum(chances) - 1) > 1e-6:
            raise InputError("degrees", dict(degrees), "numbers of copies from 1 with probabilities that add up to 1")
        self.degrees = MappingProxyType({d: p / sum(chances) for d, p in degrees.items() if p > 0})

    @property
    def threshold(self) -> float:
        """Load (UEs per slot) up to which all UEs are received as frames grow without limit.

        Density evolution: a copy stays undecoded with probability p <- 1 - exp(-G D q), and all other copies of
        its UE do with probability q = sum of d Lambda_d p^(d-1) / D; D is the mean number of copies. All UEs are
        decoded if p decreases from every value: G < -log(1-p) / (D q(p)) for all p.

        >>> round(crdsa(2).threshold, 3), round(crdsa(3).threshold, 3), round(irsa().threshold, 3)
        (0.5, 0.818, 0.939)
        """
        p = np.linspace(0, 1, 100_001)[1:-1]
        unresolved = sum(d * chance * p ** (d - 1) for d, chance in self.degrees.items())
        return float(np.min(-np.log1p(-p) / unresolved))

    def draw(self, earliest: Slots, slots: int, rng: np.random.Generator) -> Slots:
        numbers, chances, first = list(self.degrees), list(self.degrees.values()), earliest.ravel()
        choices = np.maximum(slots + 1 - first, 0)
        wanted = np.asarray(numbers)[np.searchsorted(np.cumsum(chances)[:-1], rng.random(first.size), "right")]
        count = np.minimum(wanted, choices)
        most = min(max(numbers), slots)
        uniform = rng.random((first.size, most))
        offset = np.full((first.size, most), -1)
        for k in range(most):
            # Floyd's sampling without replacement: draw from 0..top; if taken, use top, which cannot be taken yet.
            top = choices - count + k
            draw = (uniform[:, k] * (top + 1)).astype(np.int64)
            taken = (offset[:, :k] == draw[:, None]).any(axis=1)
            offset[:, k] = np.where(k < count, np.where(taken, top, draw), -1)
        return np.where(offset >= 0, offset + first[:, None], 0).reshape(*earliest.shape, most)

    def resolve(self, sent: Slots, slots: int, rng: np.random.Generator) -> Slots:
        frames, ues, most = sent.shape
        received = np.zeros(frames * ues, dtype=np.int64)
        copies = sent.reshape(-1, most)
        frame = np.repeat(np.arange(frames), ues)
        width = slots + 1
        cell = np.where(copies > 0, copies + width * frame[:, None], 0)  # cell 0 stands for copies that are not sent
        # Per slot: the number of UEs that are not cancelled yet, and the sum of their indices, which is the index
        # of the last one left.
        size = frames * width
        used = copies > 0
        ue = np.broadcast_to(np.arange(len(copies))[:, None], copies.shape)
        load = np.bincount(cell[used], minlength=size)
        names = np.bincount(cell[used], weights=ue[used], minlength=size).astype(np.int64)
        start = width * np.arange(frames)
        for now in range(1, width):
            busy = start + now
            while len(alone := busy[load[busy] == 1]):
                decoded = np.unique(names[alone])  # one UE may be alone in several slots at once
                received[decoded] = now
                there = used[decoded]
                cells = cell[decoded][there]
                np.subtract.at(load, cells, 1)
                np.subtract.at(names, cells, ue[decoded][there])
                busy = np.unique(cells[copies[decoded][there] <= now])
        return received.reshape(frames, ues)


LIVA: Mapping[int, float] = MappingProxyType({2: 0.5, 3: 0.28, 8: 0.22})
"""Liva's degrees for IRSA, 0.5 x^2 + 0.28 x^3 + 0.22 x^8 (IEEE Trans. Commun. 59(2), 2011)."""


def crdsa(replicas: Annotated[int, Field(ge=1)] = 2) -> Coded:
    """Contention resolution diversity slotted ALOHA: every UE sends the same number of copies."""
    return Coded({replicas: 1.0})


def irsa(degrees: Mapping[int, float] = LIVA) -> Coded:
    """Irregular repetition slotted ALOHA: the number of copies is random, by default with Liva's degrees."""
    return Coded(degrees)


CHANNELS: Kind[Channel] = kinds.CHANNELS


def make_channel(name: str, /, **options: Any) -> Channel:
    """Return a channel by its name in `CHANNELS`, or one of your own as `package.module:Name`, with its options.

    >>> make_channel("capture", threshold_db=3.0).threshold_db
    3.0
    """
    return CHANNELS.make(name, options)


def _cells(sent: Slots, slots: int) -> tuple[Slots, Slots]:
    """Return the slot of each UE, and the index of that slot in the batch; silent UEs have slot 0."""
    pick = sent[:, :, 0]
    return pick, pick + (slots + 1) * np.arange(len(pick))[:, None]
