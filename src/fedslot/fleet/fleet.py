"""The fleet of a run: the UEs with their data shares, stragglers, update noise and computing times."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedslot.data.partition import Partition, Shares, own_shares
from fedslot.fleet.computing import Computing
from fedslot.fleet.rates import ALMOST_CERTAIN
from fedslot.scenario import AttackPart, FleetSection, Scenario
from fedslot.support.errors import InputError, shorten
from fedslot.support.rng import LIARS, LYING, NOISE_LEVELS, PARTITION, RATES, STRAGGLERS, stream


@dataclass(frozen=True)
class Fleet:
    """The UEs of a scenario, drawn once from its seed.

    shares: the training samples of each UE.
    epochs: (K,) local epochs that each UE completes.
    noise: (K,) standard deviation of the noise on each UE's update.
    rates: (K,) rate of each UE's link, at most 1, that for which a slot is made.
    outage: (K,) probability that a transmission of a UE is lost, beside collisions.
    liars: (K,) whether each UE lies, in some rounds or in all.
    computing: computing times; None: training takes no time.
    """

    shares: Shares
    epochs: NDArray[np.int64]
    noise: NDArray[np.float64]
    rates: NDArray[np.float64]
    outage: NDArray[np.float64]
    liars: NDArray[np.bool_]
    computing: Computing | None
    _seed: int
    _attack: AttackPart | None

    @classmethod
    def draw(cls, scenario: Scenario, labels: NDArray[np.int64], owners: NDArray[np.int64] | None = None) -> Fleet:
        """Draw the fleet of a scenario from the labels of the training samples, (n,).

        owners: (n,) the UE that has each training sample; None: they are divided as the scenario says.
        """
        seed, data, ues = scenario.seed, scenario.data, scenario.data.ues
        shares: Shares
        if owners is not None:
            shares = Partition.of(owners)
            check_owners(scenario, len(shares.sizes))
        elif data.partition.name == "dirichlet":
            shares = data.partition.make(labels, ues, seed, data.alpha, data.sizes, data.samples_per_ue)
        else:
            divided = data.partition.make(labels, ues, stream(seed, PARTITION))
            shares = own_shares(data.partition.name, divided, len(labels), ues)
        return cls(
            shares,
            _epochs(scenario.epochs, scenario.fleet.stragglers, ues, seed),
            _noise(scenario.fleet, ues, seed),
            *link_rates(scenario),
            _liars(scenario.fleet.attack, ues, seed),
            None if scenario.fleet.computing is None else Computing(scenario.fleet.computing, shares.sizes, seed),
            seed,
            scenario.fleet.attack,
        )

    @property
    def ues(self) -> int:
        """Number of UEs, K."""
        return len(self.epochs)

    @property
    def sizes(self) -> NDArray[np.int64]:
        """Number of training samples of each UE, (K,)."""
        return self.shares.sizes

    @property
    def claimed_noise(self) -> NDArray[np.float64]:
        """Noise that each UE claims to have, (K,): what it has, but liars may claim another."""
        attack = self._attack
        return (
            self.noise
            if attack is None or attack.claimed_noise is None
            else np.where(self.liars, attack.claimed_noise, self.noise)
        )

    def lies(self, ue: int, round: int) -> bool:
        """Return whether a UE lies in a round."""
        attack = self._attack
        if attack is None or not self.liars[ue] or round < attack.from_round:
            return False
        return attack.probability == 1 or stream(self._seed, LYING, round, ue).random() < attack.probability


def check_owners(scenario: Scenario, ues: int) -> None:
    """Refuse another number of UEs than that among which a data set is divided by itself."""
    if scenario.data.ues != ues:
        raise InputError("data.ues", scenario.data.ues, f"{ues}, as many as in ue_train of {scenario.data.dataset}")


def link_rates(scenario: Scenario) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Draw the rates of the UEs' links (K,) and the outage probabilities on them (K,)."""
    part, ues = scenario.radio.rates, scenario.data.ues
    drawn = part.make(ues, stream(scenario.seed, RATES))
    rates, lost = drawn if isinstance(drawn, tuple) and len(drawn) == 2 else (drawn, np.zeros(ues))
    if not _one_each(rates, ues) or rates.min() <= 0:
        allowed = f"a function that returns an array ({ues},) of rates above 0, not {shorten(rates)}"
        raise InputError("radio.rates", part.name, allowed)
    if rates.max() > 1:
        allowed = f"rates of at most 1, not {rates.max():g}: make the slot for the fastest UE, whose rate is then 1"
        raise InputError("radio.rates", part.name, allowed)
    if not _one_each(lost, ues) or lost.min() < 0 or lost.max() >= 1:
        allowed = f"a function that returns outage probabilities ({ues},) from 0 to below 1, not {shorten(lost)}"
        raise InputError("radio.rates", part.name, allowed)
    losses = lost + scenario.radio.outage * (1 - lost.astype(np.float64))
    return rates.astype(np.float64, copy=False), np.minimum(losses, ALMOST_CERTAIN)


def _epochs(epochs: int, stragglers: float, ues: int, seed: int) -> NDArray[np.int64]:
    """Draw the number of local epochs of each UE, (K,)."""
    rng = stream(seed, STRAGGLERS)
    slow = rng.permutation(ues) < round(stragglers * ues)
    fewer = 1 + np.floor(rng.random(ues) * epochs).astype(np.int64)
    return np.where(slow, fewer, epochs)


def _liars(attack: AttackPart | None, ues: int, seed: int) -> NDArray[np.bool_]:
    """Draw which UEs lie, (K,); those of a smaller share are among those of a larger one."""
    if attack is None:
        return np.zeros(ues, dtype=bool)
    return stream(seed, LIARS).permutation(ues) < round(attack.share * ues)


def _noise(section: FleetSection, ues: int, seed: int) -> NDArray[np.float64]:
    """Return the standard deviation of the noise on each UE's update, (K,)."""
    levels = section.noise_law.make(ues, section.noise)
    if not _one_each(levels, ues) or levels.min() < 0:
        allowed = f"a function that returns an array ({ues},) of standard deviations, not {shorten(levels)}"
        raise InputError("fleet.noise_law", section.noise_law.name, allowed)
    levels = levels.astype(np.float64, copy=False)
    return stream(seed, NOISE_LEVELS).permutation(levels) if section.noise_order == "shuffled" else levels


def _one_each(given: object, ues: int) -> bool:
    """Return whether something is an array with a finite number for each UE."""
    right = isinstance(given, np.ndarray) and given.shape == (ues,) and given.dtype.kind in "iuf"
    return right and bool(np.isfinite(given).all())  # type: ignore[call-overload]
