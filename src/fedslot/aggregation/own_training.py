"""The PS as one more UE, without slot and without noise: how much its own update counts beside the received ones.

Counted by its samples alone, a PS that has few of them, or not of all classes, would pull the model to what it has
learnt by heart. So they count by its agreement with the UEs. In coordinates of the layers' outputs, with d its update
and g_k those of the UEs, whose weights are w_k,

    rho = <d, sum w_k g_k>^2 / (|d|^2 G),  G = mean <g_j, g_k> over pairs j != k,

is the squared cosine of its update with what the UEs have in common. Noise averages out of inner products of different
updates, and these are averaged over rounds. The share of its update in the step is

    rho n / (rho n + N),  N = sum of n_k E / (E + nu_k / s_k) over all UEs seen so far,

with n and n_k samples, E and nu_k the mean squared lengths of an update without noise and of the UE's noise, which
averages out over the s_k updates received from it.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fedslot.aggregation.base import Updates

Floats = NDArray[np.float64]

MEMORY = 0.9  # weight of the earlier rounds in the sums of products
PRODUCTS = 5  # number of these sums
LEAST_PROGRESS = 0.05  # of E: the least G, whose estimate may be negative


def add_products(products: Floats, updates: Updates, weights: Floats) -> Floats:
    """Return the sums (5,) over rounds of 1, |d|^2, <d, sum w_k g_k>, the number of pairs, and their <g_j, g_k>.

    updates: those of a round, with the PS's own. weights: (Y,) of the received ones, w_k; 0 for refused ones.
    """
    assert updates.own is not None
    own = updates.statistics.responses((updates.own - updates.start).unsqueeze(0), updates.start)
    mine, received = (responses.double().cpu().numpy() for responses in (own[0], updates.responses))
    received, weights = received[weights > 0], weights[weights > 0]
    grams, pairs = received @ received.T, len(received) * (len(received) - 1)
    now = [1.0, mine @ mine, weights @ (received @ mine), pairs, grams.sum() - grams.trace()]
    sums: Floats = MEMORY * products + np.array(now)
    return sums


def samples_of_others(
    sizes: NDArray[np.int64], noise: Floats, seen: NDArray[np.int64], energy: float, noise_gain: float
) -> float:
    """Return N, the samples of all UEs seen, less for their noise.

    sizes, noise, seen: (K,) as in the filter's state. energy: E. noise_gain: as in `LayerStatistics`.
    """
    known = seen > 0
    power = (noise[known] / seen[known]) ** 2 * noise_gain / seen[known]
    return float(sizes[known] @ (energy / np.maximum(energy + power, 1e-300)))


def share_of_own(products: Floats, samples: int, others: float, energy: float) -> float:
    """Return the share of the PS's own update in a step. samples: n. others: N. energy: E."""
    rounds, length, common, pairs, gram = products
    progress = max(gram / max(pairs, 1.0), LEAST_PROGRESS * energy)
    agreement = min(1.0, max(common, 0.0) ** 2 / max(rounds * length * progress, 1e-300))
    return float(agreement * samples / max(agreement * samples + others, 1e-300))
