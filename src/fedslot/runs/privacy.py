"""What the received updates of a UE tell about its data: the epsilon of differential privacy.

An update that is clipped to the norm C and then gets Gaussian noise of standard deviation sigma is a Gaussian
mechanism: if all data of the UE were replaced by others, it would move by 2 C at most. The PS knows whom it heard, so
that nothing is gained by sampling, and k updates are together one Gaussian mechanism with mu = 2 C sqrt(k) / sigma, of
which

    delta = Phi(mu / 2 - epsilon / mu) - exp(epsilon) Phi(-mu / 2 - epsilon / mu)

exactly (Balle and Wang 2018; for compositions Dong, Roth and Su 2022). What comes after the noise, such as compression,
changes nothing. Numbers that UEs report besides, such as losses, are not covered.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_ndtr

from fedslot.scenario import Scenario

Floats = NDArray[np.float64]

DELTA = 1e-5
HALVINGS = 100


@dataclass(frozen=True)
class Privacy:
    """The privacy that the UEs have left after a run.

    epsilon: (K,) of each UE; 0 if nothing was received from it, infinite without noise. delta: that of all.
    """

    epsilon: Floats
    delta: float

    @property
    def largest(self) -> float:
        """The epsilon of the UE that lost most."""
        return float(self.epsilon.max())

    def __str__(self) -> str:
        heard = self.epsilon[self.epsilon > 0]
        middle = f", {np.median(heard):.3g} in the median of {len(heard)} UEs heard" if len(heard) else ""
        return f"epsilon at most {self.largest:.3g}{middle}, at delta {self.delta:g}"


def clip_norm(scenario: Scenario) -> float | None:
    """Return the norm to which updates are clipped before noise is added; None unless the chain ends with both.

    Nothing but `clip` may come between the two, since it could make updates longer again.

    >>> chain = [{"name": "clip", "options": {"norm": 0.5}}, "noise"]
    >>> clip_norm(Scenario(chain=chain)), clip_norm(Scenario(chain=chain[::-1]))
    (0.5, None)
    """
    norm = None
    for link in scenario.chain:
        if link.name == "clip":
            norm = float(link.options.get("norm", 1.0))
        elif link.name == "noise" and norm is not None:
            return norm
        else:
            norm = None
    return None


def epsilon(mu: Floats, delta: float = DELTA) -> Floats:
    """Return the epsilon (n,) of Gaussian mechanisms with sensitivities mu (n,) in units of their noise.

    >>> epsilon(np.array([0.0, 1.0]), delta=1e-5).round(3)
    array([0.   , 4.377])
    """
    finite = np.where(np.isfinite(mu), np.maximum(mu, 1e-12), 1.0)
    low, high = np.zeros_like(finite), finite**2 / 2 + finite * np.sqrt(2 * np.log(1 / delta))  # by concentrated DP
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        spent = np.exp(log_ndtr(finite / 2 - middle / finite)) - np.exp(
            middle + log_ndtr(-finite / 2 - middle / finite)
        )
        low, high = np.where(spent > delta, middle, low), np.where(spent > delta, high, middle)
    return np.where(mu == 0, 0.0, np.where(np.isfinite(mu), high, np.inf))


def privacy_of(norm: float, noise: Floats, received: NDArray[np.int64], delta: float = DELTA) -> Privacy:
    """Return the privacy of UEs after so many received updates (K,), with noise (K,) on updates clipped to a norm."""
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where(received > 0, 2 * norm * np.sqrt(received) / noise, 0.0)
    return Privacy(epsilon(ratio, delta), delta)
