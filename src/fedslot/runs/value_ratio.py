"""The value of pushed updates relative to pulled ones, estimated from the trace of a run.

`frames.csv` has the value of each received update in its round. Rounds in which both pulled and pushed updates were
received are compared: the ratio is that of the mean value of a pushed update to that of a pulled one, and every such
round has the same weight. Updates are worth more in the first rounds than in the last, so that only those of the same
round are alike.

The interval is Fieller's, for the ratio of two means over the same rounds. It contains each ratio q for which the mean
of pushed - q * pulled is not significantly different from 0. It is bounded only if the mean of pulled is clearly not 0.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fedslot.rounds.trace import PULLED, PUSHED
from fedslot.scenario import Scenario
from fedslot.support.errors import RefusedError

CONFIDENCE = 0.95
LEAST = 5
"""Number of rounds with both kinds of updates from which on there is an estimate."""


@dataclass(frozen=True)
class ValueRatio:
    """The value of a pushed update relative to a pulled one, with the ends of its 95% confidence interval.

    rounds: number of rounds in which both were received. pulled, pushed: number of updates in them.
    pulled_value, pushed_value: mean value of an update over these rounds, and pulled_error, pushed_error its standard
    error.
    """

    ratio: float
    low: float
    high: float
    rounds: int
    pulled: int
    pushed: int
    pulled_value: float
    pulled_error: float
    pushed_value: float
    pushed_error: float

    def as_dict(self) -> dict[str, float]:
        """Return plain numbers, for JSON."""
        return asdict(self)


def estimate_value_ratio(scenario: Scenario, frames: pd.DataFrame | None, source: object) -> ValueRatio:
    """Estimate the value ratio of a run from its trace; a run that does not tell it is refused in one line.

    frames: the columns of `frames.csv`. source: name of the run in messages.
    """
    if frames is None:
        raise RefusedError(f"{source} has no frames.csv, which has the values of updates; run without --no-frames")
    if "update_value" not in frames:
        raise RefusedError(f"{source}: an older version wrote frames.csv, without the values of updates; run it again")
    received = frames[frames["event"].isin([PULLED, PUSHED])].drop_duplicates(["round", "ue"])  # copies are one update
    if not len(received):
        raise RefusedError(f"{source}: no update was received, so there are no values")
    if received["update_value"].isna().all():
        name = scenario.strategy.name
        raise RefusedError(f"{source} has no values of updates: {name} keeps none; take a run of push-pull")
    means = received.pivot_table(index="round", columns="event", values="update_value", aggfunc="mean", observed=True)
    means = means.reindex(columns=[PULLED, PUSHED]).dropna()
    if len(means) < LEAST:
        rounds = f"only {len(means)} rounds" if len(means) else "no rounds"
        enough = f"{LEAST} or more tell a value ratio; take a run of push-pull"
        raise RefusedError(f"{source}: {rounds} with pulled and pushed updates; {enough}")
    pulled, pushed = means[PULLED].to_numpy(), means[PUSHED].to_numpy()
    errors = [float(kind.std(ddof=1)) / math.sqrt(len(kind)) for kind in (pulled, pushed)]
    interval = ratio_interval(pushed, pulled)
    if interval is None:
        worth = f"{pulled.mean():.2g} ± {errors[0]:.1g}"
        raise RefusedError(
            f"{source}: a value ratio means nothing where pulled updates are worth {worth}, not clearly above 0, "
            f"over {len(means)} rounds; give --value-ratio"
        )
    counts = received.loc[received["round"].isin(means.index), "event"].value_counts()
    return ValueRatio(
        ratio=float(pushed.mean() / pulled.mean()),
        low=interval[0],
        high=interval[1],
        rounds=len(means),
        pulled=int(counts[PULLED]),
        pushed=int(counts[PUSHED]),
        pulled_value=float(pulled.mean()),
        pulled_error=errors[0],
        pushed_value=float(pushed.mean()),
        pushed_error=errors[1],
    )


def ratio_interval(
    above: NDArray[np.float64], below: NDArray[np.float64], confidence: float = CONFIDENCE
) -> tuple[float, float] | None:
    """Return Fieller's confidence interval of the mean of `above` over that of `below`, both (n,) and paired.

    It solves (A - q B)^2 = t^2 Var(A - q B) for q, with A and B the means and t Student's quantile. None if B is not
    significantly above 0: then the interval would not be bounded.

    >>> [round(end, 3) for end in ratio_interval(np.array([2.0, 4.0, 6.0]), np.array([1.0, 2.0, 3.0]), 0.8)]
    [2.0, 2.0]
    """
    from scipy.stats import t  # slow to import

    count = len(above)
    quantile = float(t.ppf((1 + confidence) / 2, count - 1))
    (of_above, common), (_, of_below) = (quantile**2 * np.cov(above, below) / count).tolist()
    top, bottom = float(above.mean()), float(below.mean())
    square = bottom**2 - of_below
    if bottom <= 0 or square <= 0:
        return None
    middle = (top * bottom - common) / square
    half = math.sqrt(max(0.0, middle**2 - (top**2 - of_above) / square))
    return middle - half, middle + half
