import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.integrate import dblquad
from scipy.stats import kstest, norm

from fedslot.fleet import Fleet, link_rates
from fedslot.scenario import Scenario
from fedslot.support.errors import InputError

MANY = 40_000
ONE_RATE = {"thresholds_db": [3.0], "rates": [1.0]}


def links(law: object = "equal", ues: int = MANY, seed: int = 0, **fields: object) -> tuple[np.ndarray, np.ndarray]:
    fields = {"data.ues": ues, "frame.pull": 2, "push.contenders": 2, "seed": seed, "radio.rates": law, **fields}
    return link_rates(Scenario().replace(fields))


def disc(**options: object) -> dict[str, object]:
    return {"name": "disc", "options": options}


def test_rates_are_equal_unless_a_law_is_given():
    rates, outage = links()
    assert set(rates) == {1.0}
    assert not outage.any()
    assert set(links({"name": "equal", "options": {"rate": 0.25}})[0]) == {0.25}


def test_the_fleet_has_the_links_of_the_scenario():
    scenario = Scenario().replace({"radio.rates": "disc", "radio.outage": 0.1})
    fleet = Fleet.draw(scenario, np.arange(2000) % 10)
    rates, outage = link_rates(scenario)
    assert np.array_equal(fleet.rates, rates)
    assert np.array_equal(fleet.outage, outage)
    assert len(set(rates)) > 1


def test_ues_are_uniform_on_the_disc():
    """Outage gives the SNR, and that the distance, whose square is uniform."""
    _, outage = links(disc(edge_snr_db=4.0, exponent=2.5, shadowing_db=0.0, **ONE_RATE))
    snr_db = 3.0 - 10 * np.log10(-np.log1p(-outage))
    distance = 10 ** ((4.0 - snr_db) / (10 * 2.5))
    assert distance.max() <= 1 + 1e-9
    assert kstest(distance**2, "uniform").pvalue > 0.001


def test_mean_outage_without_shadowing_has_a_closed_form():
    """With exponent 2, SNR = edge / u with u uniform, so that 1 - E[exp(-a u)] = 1 - (1 - exp(-a)) / a."""
    a = 10 ** ((3.0 - 1.0) / 10)
    _, outage = links(disc(edge_snr_db=1.0, exponent=2.0, shadowing_db=0.0, **ONE_RATE))
    mean = 1 - (1 - math.exp(-a)) / a
    assert abs(outage.mean() - mean) < 4 * outage.std() / math.sqrt(MANY)


def test_mean_outage_over_disc_and_shadowing_is_that_by_integration():
    edge, exponent, shadowing = 8.0, 3.5, 6.0

    def lost(x: float, radius: float) -> float:
        snr_db = edge - 10 * exponent * math.log10(radius) + shadowing * x
        return -math.expm1(-(10 ** ((3.0 - snr_db) / 10))) * 2 * radius * float(norm.pdf(x))

    mean, _ = dblquad(lost, 1e-9, 1, -6, 6, epsabs=1e-4)
    _, outage = links(disc(edge_snr_db=edge, exponent=exponent, shadowing_db=shadowing, **ONE_RATE))
    assert abs(outage.mean() - mean) < 4 * outage.std() / math.sqrt(MANY) + 1e-4


def test_the_shares_of_the_rates_are_areas_of_the_disc():
    """A rate is reached within the distance at which its outage is the target."""
    thresholds, levels, target = [0.0, 6.0, 13.0], [0.1, 0.4, 1.0], 0.05
    given = {"thresholds_db": thresholds, "rates": levels, "target": target}
    rates, _ = links(disc(edge_snr_db=12.0, exponent=3.0, shadowing_db=0.0, **given))
    margin = -10 * math.log10(-math.log(1 - target))
    for threshold, level in zip(thresholds[1:], levels[1:], strict=True):
        area = min(1.0, 10 ** (2 * (12.0 - threshold - margin) / (10 * 3.0)))
        assert abs((rates >= level).mean() - area) < 4 * math.sqrt(area * (1 - area) / MANY)


def test_shadowing_spreads_the_signal():
    """Without path loss to speak of, SNR in dB is normal around that of the edge."""
    _, outage = links(disc(edge_snr_db=5.0, exponent=1e-9, shadowing_db=7.0, **ONE_RATE))
    snr_db = 3.0 - 10 * np.log10(-np.log1p(-outage[outage > 1e-12]))
    assert kstest(snr_db[snr_db < 40], norm(5.0, 7.0).cdf).pvalue > 0.001


@given(
    st.lists(st.integers(-30, 40), min_size=1, max_size=6, unique=True),
    st.floats(0.001, 0.9),
    st.floats(-20, 30),
)
def test_a_ue_takes_the_highest_rate_within_the_target(thresholds, target, edge):
    """Brute force over the rates: outage at a threshold t is 1 - exp(-t / SNR), and SNR follows from what was drawn."""
    thresholds, levels = sorted(thresholds), [(i + 1) / len(thresholds) for i in range(len(thresholds))]
    rates, outage = links(disc(edge_snr_db=edge, target=target, thresholds_db=thresholds, rates=levels), ues=50)
    for rate, lost in zip(rates, outage, strict=True):
        index = levels.index(rate)
        assert index == 0 or lost <= target * (1 + 1e-9)
        if 1e-9 < lost < 1 - 1e-9 and index + 1 < len(levels):
            mean_snr = -(10 ** (thresholds[index] / 10)) / math.log1p(-lost)
            assert -math.expm1(-(10 ** (thresholds[index + 1] / 10)) / mean_snr) > target * (1 - 1e-6)


def test_links_are_drawn_once_per_seed():
    first, again, other = links("disc", seed=3), links("disc", seed=3), links("disc", seed=4)
    assert np.array_equal(first[1], again[1])
    assert not np.array_equal(first[1], other[1])


def test_losses_of_all_kinds_combine():
    """A transmission is received if neither loses it."""
    _, alone = links("disc")
    _, both = links("disc", **{"radio.outage": 0.2})
    np.testing.assert_allclose(1 - both, 0.8 * (1 - alone), atol=1e-12)
    assert set(links("equal", **{"radio.outage": 0.2})[1]) == {0.2}


def test_no_ue_is_lost_for_certain():
    _, outage = links(disc(edge_snr_db=-200.0), ues=100, **{"radio.outage": 0.999})
    assert outage.max() < 1


def own(ues: int, rng: np.random.Generator, *, rate: float = 0.5, loss: float = 0.25) -> tuple[np.ndarray, np.ndarray]:
    return np.full(ues, rate, dtype=np.float32), np.full(ues, loss)


def alone(ues: int, rng: np.random.Generator) -> np.ndarray:
    return rng.random(ues)


def wrong(ues: int, rng: np.random.Generator, *, result: str) -> object:
    return {
        "short": np.ones(ues - 1),
        "text": np.full(ues, "fast"),
        "list": [1.0] * ues,
        "nan": np.full(ues, np.nan),
        "zero": np.zeros(ues),
        "triple": (np.ones(ues), np.zeros(ues), np.zeros(ues)),
        "none": None,
        "certain": (np.ones(ues), np.ones(ues)),
        "negative": (np.ones(ues), np.full(ues, -0.1)),
        "one": (np.ones(ues), 0.5),
    }[result]


def test_a_law_of_ones_own():
    rates, outage = links({"name": own, "options": {"loss": 0.5}}, ues=9, **{"radio.outage": 0.5})
    assert rates.tolist() == [0.5] * 9
    assert outage.tolist() == [0.75] * 9
    rates, outage = links(alone, ues=9)
    assert len(set(rates)) == 9
    assert not outage.any()


@pytest.mark.parametrize("result", ["short", "text", "list", "nan", "zero", "triple", "none"])
def test_own_rates_that_are_none_are_refused(result):
    with pytest.raises(
        InputError, match=r"radio\.rates: .*:wrong' is not allowed; .* an array \(12,\) of rates above 0"
    ):
        links({"name": wrong, "options": {"result": result}}, ues=12)


@pytest.mark.parametrize("result", ["certain", "negative", "one"])
def test_own_losses_that_are_none_are_refused(result):
    with pytest.raises(InputError, match=r"radio\.rates: .* outage probabilities \(12,\) from 0 to below 1"):
        links({"name": wrong, "options": {"result": result}}, ues=12)


def test_rates_above_that_of_the_slot_are_refused():
    with pytest.raises(
        InputError, match=r"at most 1, not 1\.5: make the slot for the fastest UE, whose rate is then 1"
    ):
        links({"name": own, "options": {"rate": 1.5}}, ues=12)


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ({"rates": [0.5, 1.0]}, r"rates: \[0\.5, 1\.0\] is not allowed; it must be one for each of 3 thresholds_db"),
        ({"rates": [0.5, 0.2, 1.0]}, r"rates: .* must be rising"),
        ({"thresholds_db": [1, 1, 2]}, r"thresholds_db: .* must be rising"),
        ({"rates": [0.5, 0.8, 1.5]}, r"rates: 1\.5 is not allowed; .* less than or equal to 1"),
        ({"target": 1.0}, r"target: 1\.0 is not allowed; it must be less than 1"),
        ({"edge_snr_db": 1e9}, r"edge_snr_db: 1000000000\.0 is not allowed"),
        ({"radius": 3}, r"radius: 3 is not allowed; it must be left out, since disc takes edge_snr_db, exponent"),
    ],
)
def test_discs_that_are_none_are_refused(options, line):
    with pytest.raises(InputError, match=rf"radio\.rates\.options\.{line}"):
        links(disc(**options))
