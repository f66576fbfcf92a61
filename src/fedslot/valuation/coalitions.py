"""Averaging weights of coalitions."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def coalition_weights(members: NDArray[np.bool_], sizes: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the averaging weights (C, Y + 1) of coalitions (C, Y) over the global model (column 0) and the updates.

    The empty coalition is the global model itself.

    >>> coalition_weights(np.array([[False, False], [True, True]]), np.array([30, 10]))
    array([[1.  , 0.  , 0.  ],
           [0.  , 0.75, 0.25]])
    """
    weights = np.empty((len(members), len(sizes) + 1))
    shares = np.multiply(members, sizes.astype(float), out=weights[:, 1:])
    total = shares.sum(axis=1, keepdims=True)
    shares /= np.maximum(total, 1)
    weights[:, :1] = total == 0
    return weights
