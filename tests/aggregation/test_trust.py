"""Trust: who is accepted, in expectation and over time, and what clipping leaves to a liar."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from fedslot.aggregation import AGGREGATIONS, Updates
from fedslot.aggregation.trust import (
    CLIP,
    COPY,
    are_accepted,
    are_copies,
    differences,
    remember,
    shortening,
    typical_length,
    usual_difference,
)
from fedslot.learning.layer_statistics import LayerStatistics
from fedslot.learning.models import Model

UES, INPUTS, OUTPUTS = 6, 30, 20
PROGRESS = torch.randn(OUTPUTS * INPUTS, generator=torch.Generator().manual_seed(0)) / 20
PROGRESS[::2] = PROGRESS[::3] = 0  # most parameters hardly change, so that the progress is not taken for noise
LENGTHS = st.lists(st.floats(1e-6, 1e6), min_size=1, max_size=9).map(np.array)


def received(start: torch.Tensor, steps: torch.Tensor) -> Updates:
    """The updates of a layer whose validation loss falls along the progress."""
    model = Model(nn.Linear(INPUTS, OUTPUTS, bias=False))
    inputs = torch.randn(100, INPUTS, generator=torch.Generator().manual_seed(1))
    count, statistics = len(steps), LayerStatistics(model, inputs)
    known = (
        np.arange(count),
        np.full(count, 10),
        np.zeros(count),
        inputs,
        statistics,
        lambda models: [1.0] * len(models),
    )
    return Updates(model, start, start + steps, *known, val_gradient=lambda flat: -PROGRESS)


def noise(sigma: float, seed: int) -> torch.Tensor:
    return sigma * torch.randn(UES, len(PROGRESS), generator=torch.Generator().manual_seed(seed))


def rounds(factors: torch.Tensor, sigma: float = 0.0) -> list[np.ndarray]:
    """Which updates are accepted in each round, where a UE's step is a factor (rounds, UES) times the progress."""
    aggregation, model, accepted = AGGREGATIONS.make("filtered", {}), torch.zeros(len(PROGRESS)), []
    state = aggregation.init(model, UES)
    for round, factor in enumerate(factors):
        steps = factor.unsqueeze(1) * PROGRESS + noise(sigma, round)
        result = aggregation.apply(state, received(model, steps))
        model, state = result.broadcast, result.state
        accepted.append(result.accepted)
    return accepted


def test_a_gain_is_the_cosine_with_the_descent_of_the_loss():
    steps = torch.stack([PROGRESS, -3 * PROGRESS, torch.zeros_like(PROGRESS)])
    assert received(torch.zeros_like(PROGRESS), steps).gains.tolist() == pytest.approx([1, -1, 0], abs=1e-5)


def test_flipped_updates_are_refused_and_noisy_ones_are_not():
    """Noise ten times as strong as the progress: an honest gain has the mean 0.1 and the error 0.04."""
    factors = torch.tensor([1.0, 1, 1, 1, 1, -1]).repeat(40, 1)
    accepted = np.mean(rounds(factors, sigma=10 * float(PROGRESS.square().mean().sqrt())), axis=0)
    assert (accepted[:5] > 0.95).all()
    assert accepted[5] < 0.3, "of the first few, within their error"
    assert not np.any(np.array(rounds(factors))[:, 5]), "without noise there is none"


def test_a_ue_that_turns_is_refused_and_returns_when_it_improves():
    factors = torch.ones(60, UES)
    factors[20:40, 0] = -1
    accepted = np.array(rounds(factors))[:, 0]
    assert accepted[:20].all()
    assert not accepted[30:40].any()
    assert accepted[50:].all()
    assert np.array(rounds(factors))[:, 1:].all()


def test_if_all_are_refused_the_model_stays_and_the_round_does_not_count():
    aggregation, start = AGGREGATIONS.make("filtered", {}), torch.zeros_like(PROGRESS)
    result = aggregation.apply(aggregation.init(start, UES), received(start, -PROGRESS.repeat(UES, 1)))
    assert not result.accepted.any()
    assert torch.equal(result.broadcast, start)
    assert result.state.rounds == 0
    assert result.state.seen.tolist() == [1] * UES


@pytest.mark.parametrize("scale", [10.0, 1e4])
def test_a_long_step_moves_the_model_by_the_limit_at_most(scale):
    """Without noise all steps have C; the first round may not set the limit by the liar alone."""
    aggregation, start = AGGREGATIONS.make("filtered", {"step": 1.0}), torch.zeros_like(PROGRESS)
    steps = PROGRESS.repeat(UES, 1)
    steps[5] *= scale
    moved = aggregation.apply(aggregation.init(start, UES), received(start, steps)).broadcast
    assert float(moved.norm() / PROGRESS.norm()) == pytest.approx((5 + CLIP**0.5) / 6, rel=1e-3)


def test_trust_without_noise_is_the_mean_of_the_first_gains():
    trust, variances = np.zeros(1), np.zeros(1)
    for count, gain in enumerate((0.3, -0.1, 0.4), start=1):
        trust, variances = remember(trust, variances, np.array([count]), np.array([gain]), np.array([0.2]))
    assert trust == pytest.approx(0.2)
    assert variances == pytest.approx(0.2**2 / 3)
    assert are_accepted(trust, variances, 0.2).all()


@given(LENGTHS, st.floats(0, 1e6), st.floats(1e-6, 1e6))
def test_no_step_is_lengthened_and_none_exceeds_the_limit(lengths, power, typical):
    factors = shortening(lengths, np.full(len(lengths), power), typical)
    assert (factors <= 1).all()
    assert (factors**2 * lengths <= (CLIP * typical + power) * (1 + 1e-9)).all()
    assert (factors[lengths <= CLIP * typical + power] == 1).all()


@pytest.mark.parametrize("share", [0.0, 0.2, 0.4])
def test_the_typical_length_follows_the_median_whatever_a_minority_sends(share):
    """Lengths are exponential with the median 1; the liars' are endless."""
    draw, typical, late = np.random.default_rng(0), 50.0, []
    for round in range(3000):
        lengths = np.where(draw.random(4) < share, 1e12, draw.exponential(1 / np.log(2), 4))
        typical = typical_length(typical, lengths, np.zeros(4))
        late += [typical] if round >= 200 else []
    # of honest lengths, half divided by the honest share of all are shorter
    assert np.median(late) == pytest.approx(-np.log2(1 - 0.5 / (1 - share)), rel=0.1)


def independent(seed: int) -> torch.Tensor:
    """Updates with the progress in common, and a deviation of its length each."""
    return PROGRESS + noise(float(PROGRESS.square().mean().sqrt()), seed)


def test_copies_are_refused_and_the_later_ones_lose_their_trust():
    """UEs 2 and 5 agree, in two lengths, and the PS's labels speak for both; then they are honest again."""
    aggregation, start = AGGREGATIONS.make("filtered", {}), torch.zeros_like(PROGRESS)
    state, accepted = aggregation.init(start, UES), []
    for round in range(60):
        steps = independent(round)
        if round == 20:
            steps[5] = 1.5 * steps[2]
        result = aggregation.apply(state, received(start, steps))
        state, accepted = result.state, [*accepted, result.accepted]
    assert np.array(accepted[:20]).all()
    assert accepted[20].tolist() == [True, True, False, True, True, False]
    assert [round.tolist() for round in accepted[21:24]] == [[True] * 5 + [False]] * 3
    assert np.array(accepted[40:]).all()


@given(st.integers(0, 2**31), st.floats(0, 0.2))
def test_copies_are_known_by_how_much_updates_differ(seed, jitter):
    """Vectors with independent deviations differ by 1/2 (1 - cosine); a copy with a jitter j by j^2 / 2, if small."""
    steps = independent(seed)
    steps[5] = steps[2] + jitter * float(steps[2].norm()) * torch.nn.functional.normalize(
        noise(1.0, seed + 1)[0], dim=0
    )
    between = differences(steps)
    others = between[:5, :5][~np.eye(5, dtype=bool)]
    usual = usual_difference(0.0, between)
    assert others.mean() == pytest.approx(0.5, abs=0.1)
    assert between[2, 5] == pytest.approx(jitter**2 / 2, rel=0.3, abs=1e-5)
    pairs = np.argwhere(are_copies(between, usual)).tolist()
    if abs(between[2, 5] - COPY * usual) > 1e-3:
        assert pairs == ([[2, 5], [5, 2]] if between[2, 5] < COPY * usual else [])


def test_updates_that_are_all_alike_or_empty_are_no_copies():
    """Such are those of UEs with the same samples, or of free riders."""
    alike, empty = PROGRESS.repeat(UES, 1), torch.zeros(UES, len(PROGRESS))
    for steps in (alike, empty, PROGRESS.unsqueeze(0), 1e38 * torch.ones(2, 9)):
        between = differences(steps)
        assert not are_copies(between, usual_difference(0.0, between)).any()
    assert np.array(rounds(torch.ones(30, UES))).all()
