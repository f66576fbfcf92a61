"""Laws of the rates of the UEs' links, and of the losses on them.

A rate is relative to that for which a slot is made. A law of your own is a function like these, `radio.rates:
package.module:function`; further parameters are its options. It returns the rates (K,), or a pair of rates and outage
probabilities. The law `csv` is in rates_file.py.
"""

from __future__ import annotations

from typing import Annotated

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from fedslot.support.errors import InputError

Rates = NDArray[np.float64]
Rate = Annotated[float, Field(gt=0, le=1)]
Decibels = Annotated[float, Field(ge=-200, le=200)]

ALMOST_CERTAIN = float(np.nextafter(1, 0))  # the largest probability of a loss: with 1, a UE could never be heard
RATES = [0.25, 0.5, 1.0]  # of 1, 2 and 4 bit/s/Hz
THRESHOLDS_DB = [0.0, 4.8, 11.8]  # Shannon's: 2^1 - 1, 2^2 - 1 and 2^4 - 1


def equal(ues: int, rng: np.random.Generator, *, rate: Rate = 1.0) -> Rates:
    """Return the same rate for all UEs."""
    return np.full(ues, rate)


def disc(
    ues: int,
    rng: np.random.Generator,
    *,
    edge_snr_db: Decibels = 10.0,
    exponent: Annotated[float, Field(gt=0, le=10)] = 3.5,
    shadowing_db: Annotated[float, Field(ge=0, le=50)] = 8.0,
    target: Annotated[float, Field(gt=0, lt=1)] = 0.1,
    thresholds_db: Annotated[list[Decibels], Field(min_length=1, max_length=100)] = THRESHOLDS_DB,
    rates: Annotated[list[Rate], Field(min_length=1, max_length=100)] = RATES,
) -> tuple[Rates, Rates]:
    """Place the UEs on a disc around the PS; return their rates, and the outage probabilities at these.

    A UE uses the highest rate whose outage probability under Rayleigh fading is at most `target`; if there is none, the
    lowest one.

    edge_snr_db: mean signal-to-noise ratio at the edge of the disc [dB], without shadowing.
    exponent: of the path loss over the distance.
    shadowing_db: standard deviation of the log-normal shadowing [dB], drawn once per UE.
    target: outage probability that a UE accepts.
    thresholds_db: signal-to-noise ratio that each rate needs [dB], rising.
    rates: the rates, rising, relative to that for which a slot is made.
    """
    if len(rates) != len(thresholds_db):
        raise InputError("rates", rates, f"one for each of {len(thresholds_db)} thresholds_db")
    for option, values in (("thresholds_db", thresholds_db), ("rates", rates)):
        if (np.diff(values) <= 0).any():
            raise InputError(option, values, "rising, since a higher rate needs a higher signal-to-noise ratio")
    nearer_db = -5 * exponent * np.log10(1 - rng.random(ues))  # the squared distance is uniform on (0, 1]
    snr_db = edge_snr_db + nearer_db + shadowing_db * rng.standard_normal(ues)
    margin_db = -10 * np.log10(-np.log1p(-target))  # 1 - exp(-threshold / SNR) <= target
    chosen = np.maximum(np.searchsorted(thresholds_db, snr_db - margin_db, side="right") - 1, 0)
    outage = -np.expm1(-(10 ** ((np.array(thresholds_db)[chosen] - snr_db) / 10)))
    return np.array(rates)[chosen], np.minimum(outage, ALMOST_CERTAIN)
