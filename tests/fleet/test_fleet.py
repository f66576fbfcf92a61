import math

import numpy as np
import pytest

from fedslot.fleet import Computing, Fleet
from fedslot.scenario import ComputingSection, Scenario
from fedslot.support.errors import InputError

LABELS = np.arange(4000) % 10


def _fleet(**overrides: object) -> Fleet:
    fields = {"data.ues": 1000, "data.sizes": "equal", **{key.replace("__", "."): v for key, v in overrides.items()}}
    return Fleet.draw(Scenario().replace(fields), LABELS)


def test_the_fleet_is_that_of_the_scenario():
    fleet = _fleet(seed=3)
    assert fleet.ues == 1000
    assert fleet.sizes.sum() == len(LABELS)
    assert np.array_equal(fleet.epochs, _fleet(seed=3).epochs)
    assert not np.array_equal(fleet.epochs, _fleet(seed=4).epochs)
    assert fleet.computing is None


@pytest.mark.parametrize(("share", "slow"), [(0.0, 0), (0.25, 250), (0.5, 500), (1.0, 1000)])
def test_stragglers_are_the_share_that_was_asked_for(share, slow):
    """With E = 10^6 epochs a straggler almost surely falls short, so they can be counted."""
    assert (_fleet(fleet__stragglers=share, training__epochs=10**6).epochs < 10**6).sum() == slow


def test_stragglers_epochs_are_uniform_from_one():
    counts = np.bincount(_fleet(fleet__stragglers=1.0, training__epochs=5).epochs, minlength=6)
    assert (len(counts), counts[0]) == (6, 0)
    assert ((counts[1:] - 200) ** 2 / 200).sum() < 18.47  # chi-square, 4 degrees of freedom, one in a thousand


def test_one_draw_serves_any_number_of_epochs():
    """Common random numbers: who straggles, and by what fraction, does not depend on E."""
    few, many = _fleet(training__epochs=4).epochs, _fleet(training__epochs=1000).epochs
    assert np.all(few[many == 1000] == 4)
    slow = many < 1000
    # the fraction u lies in both [(e - 1) / E, e / E)
    assert np.all((many[slow] - 1) / 1000 < few[slow] / 4)
    assert np.all((few[slow] - 1) / 4 < many[slow] / 1000)
    by_strategy = _fleet(training__epochs=4, training__epochs_by_strategy={"push-pull": 1000}).epochs
    assert np.array_equal(by_strategy, many)


def test_noise_rises_over_the_ues():
    """sigma_k = (k - 1) sigma / K, by index or dealt at random."""
    levels = [0.5 * k / 1000 for k in range(1000)]
    by_index = _fleet(fleet__noise=0.5, fleet__noise_order="index").noise
    shuffled = _fleet(fleet__noise=0.5).noise
    np.testing.assert_allclose(by_index, levels)
    np.testing.assert_allclose(np.sort(shuffled), levels)
    assert abs(np.corrcoef(shuffled, levels)[0, 1]) < 4 / math.sqrt(1000)
    assert not _fleet(fleet__noise=0.0).noise.any()


def test_other_laws_of_noise():
    assert set(_fleet(fleet__noise=0.5, fleet__noise_law="equal").noise) == {0.5}
    half = _fleet(fleet__noise=0.5, fleet__noise_law="half").noise
    assert sorted(half) == [0.0] * 500 + [0.5] * 500
    assert abs(np.corrcoef(half, np.arange(1000))[0, 1]) < 4 / math.sqrt(1000)


def only_last(ues: int, level: float, *, noisy: int = 1) -> np.ndarray:
    return np.where(np.arange(ues) < ues - noisy, 0.0, level)


def test_a_law_of_ones_own():
    own = {"name": only_last, "options": {"noisy": 3}}
    noise = _fleet(fleet__noise=0.5, fleet__noise_order="index", fleet__noise_law=own).noise
    assert noise.tolist() == [0.0] * 997 + [0.5] * 3


def test_noise_has_nothing_to_do_with_straggling():
    fleet = _fleet(training__epochs=1000)
    assert abs(np.corrcoef(fleet.noise, fleet.epochs)[0, 1]) < 4 / math.sqrt(1000)
    assert abs(np.corrcoef(fleet.noise, fleet.sizes)[0, 1]) < 4 / math.sqrt(1000)


def test_computing_times_have_the_moments_of_the_gamma_law():
    """T = I D c / f, I = iterations ln(1 / eps), c of mean kappa beta and variance kappa beta^2."""
    computing = ComputingSection(
        shape=2.5, scale=4.0, bits_per_sample=100.0, frequency=1e6, accuracy=0.2, iterations=3.0, slot=0.5
    )
    ues = 200_000
    times = Computing(computing, np.full(ues, 7), seed=1).times(0)
    unit = 3.0 * math.log(5) * 7 * 100 / 1e6 / 0.5
    mean, variance = unit * 2.5 * 4, unit**2 * 2.5 * 4**2
    assert abs(times.mean() - mean) < 4 * math.sqrt(variance / ues)
    kurtosis = 3 + 6 / 2.5
    assert abs(times.var() - variance) < 4 * variance * math.sqrt((kurtosis - 1) / ues)
    skewness = (((times - mean) / math.sqrt(variance)) ** 3).mean()
    assert abs(skewness - 2 / math.sqrt(2.5)) < 0.1


def test_computing_times_are_redrawn_only_if_asked():
    def times(redraw: bool, round: int) -> np.ndarray:
        fleet = _fleet(fleet__computing={"redraw": redraw})
        return fleet.computing.times(round) / fleet.sizes

    assert np.array_equal(times(False, 0), times(False, 5))
    assert np.array_equal(times(True, 5), times(True, 5))
    assert abs(np.corrcoef(times(True, 0), times(True, 5))[0, 1]) < 4 / math.sqrt(1000)


def test_a_partition_of_ones_own():
    owners = np.arange(len(LABELS)) % 7
    scenario = Scenario().replace({"data.ues": 7, "frame.pull": 5, "push.contenders": 2})
    fleet = Fleet.draw(scenario, LABELS, owners)
    assert fleet.shares.share(3).tolist() == np.flatnonzero(owners == 3).tolist()
    assert fleet.sizes.tolist() == np.bincount(owners).tolist()
    with pytest.raises(InputError, match=r"data\.ues: 8 is not allowed; it must be 7, as many as in ue_train"):
        Fleet.draw(scenario.replace({"data.ues": 8}), LABELS, owners)
