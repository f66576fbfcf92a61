"""Trust: which updates go with the PS's labels, and how long each may be.

With g the gradient of the validation loss at the broadcast model, the gain of an update d_k is the cosine between d_k
and -g. An honest update may have a gain below 0, since the data of its UE differ from the PS's, and since noise of
standard deviation sigma_k adds to it an error of sigma_k / |d_k|. Most updates of a liar do. So a UE has the trust T_k,
the running mean of its gains, with the standard error e_k that noise leaves in it. An update is accepted if

    T_k + e_k > -MARGIN max(T, 0),  T: the median trust of the UEs received so far.

The update of this round counts at once: a UE that turns soon loses its trust, and one that improves regains it. FLTrust
(Cao et al. 2021) weights updates by their cosine with an update that the PS trains, in one round alone. Zeno (Xie et
al. 2019) ranks them by the fall of a loss that the PS measures, less a penalty for their length.

Colluders who agree on an update send it alike, while those of honest UEs differ by their samples and the order of
these. Two updates are copies if they differ, by 1 - cosine, by less than a share COPY of what two usually differ by.
Both are refused, and the UE of the later slot loses its trust: it may have heard the other.

The cosine does not depend on length, and a long step destroys a model in almost any direction. So each step is
shortened to at most the squared length CLIP C + nu_k, in units of the layers' outputs, where nu_k is that of the UE's
noise and C a running median of the lengths of accepted updates without noise.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Floats = NDArray[np.float64]

MEMORY = 0.9  # most weight of the earlier gains in T_k, about ten updates: their data differ, but a UE may turn
MARGIN = 0.25  # honest UEs with rare labels, which are needed, have T_k a little below 0; refused at 0, they are missed
CLIP = 4.0  # twice the median length: a lower limit shortens many honest steps
SPEED = 0.2  # most change in a round of log C, and of that of the usual difference
COPY = 0.05  # honest updates differed by 0.2 or more, even with much alike data and no noise
LEAST_DIFFERENCE = 1e-3  # where all updates are alike, copies tell nothing
NO_TRUST = -1.0  # the least a cosine can be: some ten to thirty good updates bring a UE back


def remember(
    trust: Floats, variances: Floats, seen: NDArray[np.int64], gains: Floats, errors: Floats
) -> tuple[Floats, Floats]:
    """Return T_k and e_k^2 (Y,) of the received UEs after a round.

    trust, variances: (Y,) before it. seen: (Y,) updates of each UE, with this one. gains: (Y,) of this round.
    errors: (Y,) their standard errors by noise.
    """
    memory = np.minimum(MEMORY, 1 - 1 / seen)
    return memory * trust + (1 - memory) * gains, memory**2 * variances + (1 - memory) ** 2 * errors**2


def are_accepted(trust: Floats, variances: Floats, median: float) -> NDArray[np.bool_]:
    """Return which updates (Y,) are accepted. trust, variances: (Y,) T_k and e_k^2. median: T.

    >>> are_accepted(np.array([0.1, -0.02, -0.1, -0.1]), np.array([0, 0, 0.05**2, 0.2**2]), median=0.1)
    array([ True,  True, False,  True])
    """
    accepted: NDArray[np.bool_] = trust + np.sqrt(variances) > -MARGIN * max(median, 0.0)
    return accepted


def typical_length(before: float, lengths: Floats, power: Floats) -> float:
    """Return C after a round. before: C, 0 in the first one. lengths, power: (Y,) of accepted updates, with nu_k.

    C moves towards the median by a share of itself, so that one long step moves it no more than another. It begins with
    the noise, which hides it in the first round: a C that is too small would shorten the first steps of all.
    """
    if not before:
        return float(np.median(lengths))
    moves = np.sign(lengths - power - before) * before / (before + power)  # noisy updates say little
    return before * math.exp(SPEED * float(moves.mean()))


def shortening(lengths: Floats, power: Floats, typical: float) -> Floats:
    """Return the factors (Y,), at most 1, of steps of squared `lengths` whose noise has the `power` nu_k.

    >>> shortening(np.array([1.0, 16.0, 16.0]), np.array([0.0, 0.0, 12.0]), typical=1.0)
    array([1. , 0.5, 1. ])
    """
    factors: Floats = np.sqrt(np.minimum(1.0, (CLIP * typical + power) / np.maximum(lengths, 1e-300)))
    return factors


def differences(steps: Tensor) -> Floats:
    """Return 1 - cosine (Y, Y) between steps (Y, P); it is 1 for steps without length, and of each to itself."""
    unit = steps / torch.linalg.vector_norm(steps, dim=1, keepdim=True).clamp(min=1e-30)
    cosines: Floats = (unit @ unit.mT).double().clamp(max=1).fill_diagonal_(0).cpu().numpy()  # 1 but for rounding
    return 1 - cosines


def usual_difference(before: float, between: Floats) -> float:
    """Return the running median of the differences of two updates. before: 0 in the first round. between: (Y, Y).

    One that differs from all others moves it little, or honest updates that are much alike would seem copies.
    """
    pairs = between[np.triu_indices(len(between), 1)]
    if not len(pairs):
        return before
    if before <= LEAST_DIFFERENCE:
        return float(np.median(pairs))
    return before * math.exp(SPEED * float(np.sign(pairs - before).mean()))


def are_copies(between: Floats, usual: float) -> NDArray[np.bool_]:
    """Return which pairs (Y, Y) of updates are copies. between: their differences. usual: that of two updates.

    >>> are_copies(differences(torch.tensor([[1.0, 0.0], [0.0, 2.0], [0.0, 3.0]])), usual=0.7).astype(int)
    array([[0, 0, 0],
           [0, 0, 1],
           [0, 1, 0]])
    """
    copies: NDArray[np.bool_] = between < (COPY * usual if usual > LEAST_DIFFERENCE else 0.0)
    np.fill_diagonal(copies, False)
    return copies
