"""Krum and Multi-Krum: the updates that lie closest to most of the others (Blanchard et al., 2017).

The score of an update is the sum of its squared distances to its Y - byzantine - 2 nearest neighbours (one at least).
The guarantee of the paper needs Y >= 2 byzantine + 3; with fewer updates it still chooses, as Flower does.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated

from pydantic import Field
from torch import Tensor

from fedslot.aggregation.average import average
from fedslot.aggregation.base import StatelessAggregation, Updates


@dataclass(frozen=True, kw_only=True)
class Krum(StatelessAggregation):
    """The update, or average of updates, nearest to its neighbours.

    byzantine: number of received updates that may be arbitrary.

    selected: number of updates of lowest score that are averaged; 1 is Krum, more is Multi-Krum. The average is
        weighted by data, as in Flower (paper: unweighted).
    """

    byzantine: Annotated[int, Field(ge=0)] = 0
    selected: Annotated[int, Field(ge=1)] = 1

    def model(self, updates: Updates) -> Tensor:
        scores = _scores(updates.steps, max(1, len(updates.local) - self.byzantine - 2))
        best = scores.argsort(stable=True)[: self.selected]  # equal scores: the one received first
        return average(updates.local[best], updates.sizes[best.cpu().numpy()])


def _scores(steps: Tensor, neighbours: int) -> Tensor:
    """Return the sum (Y,) of the squared distances of each step (Y, P) to its nearest `neighbours`."""
    exact = steps.double()  # since ||a||^2 + ||b||^2 - 2 ab cancels
    products = exact @ exact.mT
    norms = products.diagonal()
    distances = (norms[:, None] + norms - 2 * products).fill_diagonal_(math.inf)  # an update is not its own neighbour
    return distances.sort(dim=1).values[:, :neighbours].sum(dim=1)
