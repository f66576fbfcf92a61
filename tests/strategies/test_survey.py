"""Noise, spread and progress as the PS measures them, and the rules that follow."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from fedslot.messages import Measured, Receipt
from fedslot.strategies.survey import Survey

NONE = np.empty(0, dtype=np.int64)


def receipt(ues: list[int], measured: Measured | None, wasted: list[int] | None = None) -> Receipt:
    pulled = np.array(ues, dtype=np.int64)
    lost = np.array(wasted or [], dtype=np.int64)
    return Receipt(pulled, np.arange(1, len(pulled) + 1), NONE, NONE, NONE, lost, slots=9, measured=measured)


def drawn(rng: np.random.Generator, sigma: np.ndarray, progress: float, spread: float, size: int = 400) -> Measured:
    """Updates of `size` parameters with common progress and own deviations of known squared length, and noise."""
    common = np.full(size, np.sqrt(progress / size))
    own = rng.normal(size=(len(sigma), size)) * np.sqrt(spread / size)
    updates = common + own + sigma[:, None] * rng.normal(size=(len(sigma), size))
    return Measured(sigma, updates @ updates.T, float(size))


def test_progress_and_spread_are_those_of_the_updates():
    rng, sigma = np.random.default_rng(0), np.array([0.0, 0.02, 0.05, 0.2])
    survey = Survey.blank(4)
    for _ in range(60):
        survey = survey.add(receipt([0, 1, 2, 3], drawn(rng, sigma, progress=2.0, spread=1.0)))
    assert survey.progress == pytest.approx(2.0, rel=0.1)
    assert survey.spread == pytest.approx(1.0, rel=0.3)
    assert survey.noise.tolist() == pytest.approx(sigma.tolist())
    assert survey.seen.tolist() == [60] * 4


def test_two_updates_suffice_to_measure_progress():
    """By hand: the inner product of (3, 4) and (1, 0) is 3, their mean squared length 13."""
    measured = Measured(np.zeros(2), np.array([[25.0, 3.0], [3.0, 1.0]]), 1.0)
    survey = Survey.blank(2).add(receipt([0, 1], measured))
    assert survey.paired == 1
    assert (survey.progress, survey.energy, survey.spread) == pytest.approx((3, 13, 10))


def test_a_noise_estimate_is_the_mean_over_receptions():
    survey = Survey.blank(3)
    for noise in (0.1, 0.2, 0.6):
        survey = survey.add(receipt([1], Measured(np.array([noise]), np.ones((1, 1)), 1.0)))
    assert survey.noise.tolist() == pytest.approx([0, 0.3, 0])
    assert survey.paired == 0, "one update alone says nothing about progress"


def test_wasted_pulls_call_for_further_ues_before_the_wanted_ones():
    """A third of the pulled UEs was ready: for two updates six are pulled, the four others the longest ago."""
    survey = Survey.blank(9).add(receipt([0, 1, 2], Measured(np.zeros(3), np.ones((3, 3)), 1.0)))
    assert survey.ready == 1
    survey = survey.add(receipt([0], Measured(np.zeros(1), np.ones((1, 1)), 1.0), wasted=[1, 2]))
    assert survey.ready == pytest.approx(1 / 3)
    assert survey.further(np.array([3, 8]), slots=9).tolist() == [4, 5, 6, 7]
    assert survey.further(np.array([3, 8]), slots=4).tolist() == [4, 5]
    assert survey.further(np.array([3, 4, 5, 6]), slots=12).tolist() == [7, 8, 0, 1, 2], "there are no more"


def test_late_slots_make_longer_frames_worth_while():
    """The best Y maximises Y / ((Y + r) (Y + c)), where c counts the downlink and the late slots."""
    survey, r = replace(Survey.blank(1), paired=1, energy=1.0, progress=1.0, noise_gain=1.0), 6.3
    noisy = replace(survey, noise=np.array([r**0.5]))
    for late in (0.0, 1.0, 4.0, 9.0):
        rates = {y: y / ((y + r) * (y + 1 + late)) for y in range(2, 40)}
        assert replace(noisy, wasted=late).best_updates(np.array([0]), most=40) == max(rates, key=lambda y: rates[y])
    assert replace(noisy, wasted=9.0).best_updates(np.array([0]), most=5) == 5


def test_rare_losses_and_absent_ues_do_not_lengthen_frames():
    """One malformed update among many, and a UE that never answers."""
    all_three, one = Measured(np.zeros(3), np.ones((3, 3)), 1.0), Measured(np.zeros(1), np.ones((1, 1)), 1.0)
    survey = Survey.blank(9)
    for _ in range(9):
        survey = survey.add(receipt([0, 1, 2], all_three, wasted=[8]))
    assert survey.ready == 1
    survey = survey.add(receipt([0], one, wasted=[1]))
    for _ in range(3):
        assert len(survey.further(np.arange(3), slots=9)) == 0
        survey = survey.add(receipt([0, 1, 2], all_three))


@pytest.mark.parametrize("lengths", [[0.0, 0.0, 0.0], [0.0, 0.0, 1.0], [0.0, 1e-12, 1e12]])
def test_updates_that_change_nothing_are_measured_too(lengths):
    """A device may return the model as it came."""
    measured = Measured(np.zeros(3), np.diag(lengths), 1.0)
    survey = Survey.blank(3)
    for _ in range(3):
        survey = survey.add(receipt([0, 1, 2], measured))
        assert math.isfinite(survey.energy)
        assert survey.progress == 0
        assert survey.best_updates(survey.pool(1, 0.5), most=9) >= 2


def test_frames_without_an_update_count_and_wasted_pulls_are_remembered():
    survey = Survey.blank(3).add(receipt([], None, wasted=[2]))
    assert (survey.frames, survey.measured, survey.last.tolist()) == (1, 0, [-1, -1, 0])
    assert survey.longest_ago(np.array([2, 1, 0]), 2).tolist() == [1, 0]


@given(
    st.lists(st.floats(0, 1), min_size=1, max_size=12),
    st.floats(0.001, 10),
    st.floats(0.001, 10),
    st.floats(1, 1000),
    st.sampled_from([0.25, 0.5]),
)
def test_the_pool_has_the_least_error_of_all_cleanest_sets(noise, spread, gain, horizon, share):
    ues = len(noise)
    survey = replace(
        Survey.blank(ues), noise=np.array(noise), seen=np.ones(ues, dtype=np.int64), energy=spread, noise_gain=gain
    )
    pool = survey.pool(horizon, share)

    def error(chosen: list[float]) -> float:
        return spread / len(chosen) + gain * sum(x * x for x in chosen) / len(chosen) / horizon

    ranked, least = sorted(noise), math.ceil(share * ues)
    best = min(error(ranked[:n]) for n in range(least, ues + 1))
    assert len(pool) >= least
    assert error([noise[ue] for ue in pool]) == pytest.approx(best)
    assert max(noise[ue] for ue in pool) <= min([noise[ue] for ue in range(ues) if ue not in pool], default=1)


@pytest.mark.parametrize(("known", "least"), [(1, 1), (4, 1), (20, 5), (97, 25), (100, 25), (160, 25)])
def test_the_pool_has_a_share_of_the_known_ues_up_to_25(known, least):
    """Noise that counts for far more than the spread leaves the pool at its least size."""
    seen = (np.arange(200) < known).astype(np.int64)
    noise = np.where(seen, np.arange(200.0), 0)
    survey = replace(Survey.blank(200), seen=seen, noise=noise, energy=1e-6, noise_gain=1.0)
    assert survey.pool(horizon=1, share=0.25).tolist() == list(range(least))


@given(st.lists(st.floats(0, 1), min_size=1, max_size=12), st.floats(0.001, 10), st.floats(1, 100), st.floats(0, 3))
def test_a_ue_is_welcome_if_the_pool_is_better_with_it(noise, spread, horizon, other):
    """By the errors of the pool with it and without it."""
    survey = replace(Survey.blank(len(noise)), noise=np.array(noise), energy=spread, noise_gain=1.0)
    limit = survey.welcome_noise(np.arange(len(noise)), horizon)
    assume(not math.isclose(other, limit, rel_tol=1e-6, abs_tol=1e-9))

    def error(chosen: list[float]) -> float:
        return spread / len(chosen) + sum(x * x for x in chosen) / len(chosen) / horizon

    assert (error([*noise, other]) < error(noise)) == (other < limit)


@given(st.floats(0.01, 2.3), st.floats(0.0, 9.0))
def test_the_number_of_updates_makes_the_most_progress_per_slot(spread, power):
    """Of UEs that all have the same noise."""
    survey = replace(
        Survey.blank(3), paired=1, progress=1.0, energy=1 + spread, noise=np.full(3, power**0.5), noise_gain=1.0
    )
    count = survey.best_updates(np.arange(3), most=50)
    rate = {y: y / (y + spread + power) / (y + 1) for y in range(2, 51)}
    assert rate[count] == pytest.approx(max(rate.values()))


@given(st.floats(0.01, 2.3), st.floats(0.0, 9.0), st.integers(1, 5), st.floats(1, 64))
def test_so_it_does_with_short_updates_and_on_slow_links(spread, power, slots, downlink):
    """A downlink as long as `downlink` uplink slots; an update takes `slots` of these."""
    noise, bursts = np.full(3, power**0.5), np.full(3, slots)
    survey = replace(
        Survey.blank(3), paired=1, progress=1.0, energy=1 + spread, noise=noise, noise_gain=1.0, bursts=bursts
    )
    count = survey.best_updates(np.arange(3), most=200, downlink=downlink)
    rate = {y: y / (y + spread + power) / (slots * y + downlink) for y in range(2, 201)}
    assert rate[count] == pytest.approx(max(rate.values()))


@pytest.mark.parametrize(("noise", "first"), [(1.7, False), (1.8, True)])
def test_a_ue_on_a_bad_link_is_pulled_if_the_others_are_so_noisy_that_it_pays(noise, first):
    """With four slots, a clean update of variance 1 is worth those of variance 4: noise^2 = 3."""
    noises, slots = np.array([0.0, *np.full(39, noise)]), np.array([4, *np.full(39, 1)])
    survey = replace(
        Survey.blank(40), seen=np.ones(40, dtype=int), energy=1.0, noise=noises, noise_gain=1.0, bursts=slots
    )
    assert (survey.pool(horizon=1.0, share=0.5)[0] == 0) == first


def test_a_noisy_ue_in_the_pool_hardly_lengthens_the_frame():
    """Updates are weighed by their noise: of 20 UEs, one that adds nothing but noise leaves the others as they are."""
    clean = replace(Survey.blank(20), paired=1, progress=1.0, energy=2.0, noise_gain=1.0)
    noisy = replace(clean, noise=np.array([1000.0, *np.zeros(19)]))
    assert noisy.best_updates(np.arange(20), most=50) == clean.best_updates(np.arange(20), most=50) == 2
    assert noisy.best_updates(np.array([0]), most=50) == 50


def test_the_number_of_updates_has_limits():
    unknown = Survey.blank(3)
    assert unknown.best_updates(np.arange(3), most=9) == 2
    hopeless = replace(unknown, paired=1, energy=1.0, progress=-1.0, noise=np.full(3, 10.0), noise_gain=1000.0)
    assert hopeless.best_updates(np.arange(3), most=9) == 9
    assert hopeless.best_updates(np.arange(3), most=1) == 1


def test_refused_ues_leave_the_pool_and_measure_nothing_until_they_are_accepted():
    ones = np.ones((3, 3))
    survey = Survey.blank(9).add(receipt([0, 1, 2], Measured(np.zeros(3), ones, 1.0)))
    refused = survey.add(receipt([0, 1, 2], Measured(np.zeros(3), np.diag([1e9, 1, 1]), 1.0, np.arange(3) > 0)))
    assert sorted(refused.pool(1.0, 1.0).tolist()) == [1, 2]
    assert refused.energy == pytest.approx(1.0)
    back = refused.add(receipt([0], Measured(np.zeros(1), np.ones((1, 1)), 1.0, np.array([True]))))
    assert sorted(back.pool(1.0, 1.0).tolist()) == [0, 1, 2]


def test_a_refused_ue_has_another_chance_after_as_many_frames_as_there_are_ues():
    """Under `scout` nobody can push, so that an honest UE could not return otherwise."""
    both = Measured(np.zeros(2), np.ones((2, 2)), 1.0, np.array([False, True]))
    survey, pools = Survey.blank(9).add(receipt([0, 1], both)), []
    for _ in range(12):
        survey = survey.add(receipt([1], Measured(np.zeros(1), np.ones((1, 1)), 1.0)))
        pools.append(0 in survey.pool(1.0, 1.0))
    assert pools == [False] * 8 + [True] * 4


def test_if_all_were_refused_the_pool_has_all():
    survey = Survey.blank(3).add(receipt([0, 2], Measured(np.zeros(2), np.ones((2, 2)), 1.0, np.zeros(2, dtype=bool))))
    assert sorted(survey.pool(1.0, 1.0).tolist()) == [0, 2]
    assert survey.energy == 0
