"""The aggregation `filtered`, by its parts: weights, filter, step and reported model."""

from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from fedslot.aggregation import AGGREGATIONS, Aggregate, Updates
from fedslot.learning.layer_statistics import LayerStatistics
from fedslot.learning.models import Model

INPUTS, OUTPUTS = 60, 40


def _rng(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


class Cell:
    """One linear layer whose inputs live in the first 10 of 60 dimensions, and UEs with common progress."""

    def __init__(self, noise: list[float], sizes: list[int] | None = None, module: nn.Module | None = None) -> None:
        module = module or nn.Linear(INPUTS, OUTPUTS, bias=False)
        self.model = Model(module)
        self.model.initial.zero_()
        inputs = torch.zeros(400, INPUTS)
        inputs[:, :10] = torch.randn(400, 10, generator=_rng(0))
        self.inputs, self.statistics = inputs, LayerStatistics(self.model, inputs)
        self.noise = torch.tensor(noise)
        self.sizes = np.array(sizes or [10] * len(noise))
        progress = torch.zeros(OUTPUTS, INPUTS)
        progress[:, :10] = torch.randn(OUTPUTS, 10, generator=_rng(1)) / 100
        self.progress = progress.flatten()[: self.model.size]

    def updates(self, start: torch.Tensor, round: int) -> Updates:
        noise = torch.randn(len(self.noise), self.model.size, generator=_rng(100 + round))
        local = start + self.progress + self.noise.unsqueeze(1) * noise
        ues, values = np.arange(len(self.noise)), np.zeros(len(self.noise))
        return Updates(
            self.model,
            start,
            local,
            ues,
            self.sizes,
            values,
            self.inputs,
            self.statistics,
            lambda models: (1 / (1 + models.norm(dim=1))).tolist(),
        )

    def run(self, rounds: int = 1, **options: Any) -> list[Aggregate[Any]]:
        """Rounds from the zero model."""
        aggregation, start = AGGREGATIONS.make("filtered", options), torch.zeros(self.model.size)
        results = [Aggregate(start, start, aggregation.init(start, len(self.noise)))]
        for round in range(rounds):
            results.append(aggregation.apply(results[-1].state, self.updates(results[-1].broadcast, round)))
        return results


def test_without_noise_it_is_the_average():
    cell = Cell([0.0, 0.0, 0.0], [10, 20, 30])
    torch.testing.assert_close(cell.run()[1].broadcast, cell.progress, rtol=1e-3, atol=1e-5)


def test_steps_grow_while_they_help():
    """By a fifth in every round, up to the largest; the loss falls with the length of the model here."""
    models = [result.broadcast for result in Cell([0.0]).run(8, step=2.5)]
    factors = [float((after - before).norm() / models[1].norm()) for before, after in pairwise(models)]
    assert factors == pytest.approx([min(1.2**round, 2.5) for round in range(8)], rel=1e-3)


def test_steps_shrink_when_the_model_is_much_worse_than_its_running_means():
    """The loss grows with the square of the model's length, so that the last model is far worse than the means."""
    cell, aggregation = Cell([0.0]), AGGREGATIONS.make("filtered", {})
    state = replace(aggregation.init(cell.progress, 1), step=3.0, rounds=50, first_loss=1e6)
    worse = replace(cell.updates(10 * cell.progress, 0), val_losses=lambda models: models.norm(dim=1).square().tolist())
    assert aggregation.apply(state, worse).state.step == pytest.approx(3.0 * 0.8)
    small = replace(state, step=1.0)
    assert aggregation.apply(small, worse).state.step == 1, "the average itself is the least"


def test_a_model_whose_loss_overflows_is_not_reported():
    """And its step was too long."""
    cell, aggregation = Cell([0.0]), AGGREGATIONS.make("filtered", {})
    state = replace(aggregation.init(cell.progress, 1), step=3.0, rounds=50)
    broken = replace(cell.updates(cell.progress, 0), val_losses=lambda models: [float("nan"), 3.0, 1.0, 2.0])
    result = aggregation.apply(state, broken)
    assert result.val_loss == 1.0
    torch.testing.assert_close(result.report, result.state.means[1])
    assert result.state.step == pytest.approx(3.0 * 0.8)


def test_a_steady_step_is_not_delayed_by_momentum():
    """Momentum begins at 0 and is corrected for it, so that equal steps add up from the first round."""
    models = [result.broadcast for result in Cell([0.0]).run(4, step=1.0)]
    for before, after in pairwise(models):
        torch.testing.assert_close(after - before, models[1], rtol=1e-3, atol=1e-5)


def test_noise_is_filtered_where_inputs_do_not_vary():
    """Of noise in 60 dimensions, most of that in the 50 without inputs goes; the progress in the 10 others stays."""
    cell = Cell([0.01] * 4)
    step = cell.run(horizon=3.0)[1].broadcast.view(OUTPUTS, INPUTS)
    plain = cell.updates(torch.zeros(cell.model.size), 0).steps.mean(dim=0).view(OUTPUTS, INPUTS)
    assert float(step[:, 10:].norm()) < 0.1 * float(plain[:, 10:].norm())
    kept = (step[:, :10] * plain[:, :10]).sum() / plain[:, :10].square().sum()
    assert 0.85 < float(kept) <= 1


def test_the_shorter_the_horizon_the_stronger_the_filter():
    cell = Cell([0.05] * 2)
    norms = [float(cell.run(step=1.0, horizon=horizon)[1].broadcast.norm()) for horizon in (0.1, 1.0, 10.0, 100.0)]
    assert norms == sorted(norms)
    assert norms[0] < 0.5 * norms[-1]


def test_the_scale_of_the_signal_is_learned_over_rounds():
    """The progress has the mean square c = 1e-4 in directions of energy 1; the noise of a round has 6 times as much."""
    cell = Cell([0.05] * 4)
    truth = float(cell.progress.view(OUTPUTS, INPUTS)[:, :10].square().mean())
    states = [result.state for result in cell.run(60, step=1.0)[1:]]
    assert all(float(state.scale.min()) == float(state.scale.max()) for state in states)  # a single layer
    late = [float(state.scale[0]) for state in states[40:]]
    assert late == pytest.approx([truth] * 20, rel=0.5)
    assert float(states[-1].scale_variance[0]) < 0.2 * float(states[0].scale_variance[0])


def test_the_scale_of_a_short_horizon_is_that_of_the_last_round():
    """Also if the horizon is less than a round."""
    first, second = (Cell([0.05] * 4).run(9, step=1.0, horizon=horizon)[-1].state for horizon in (0.1, 1.0))
    assert float(first.scale_variance[0]) >= 0
    assert float(first.scale_variance[0]) == pytest.approx(float(second.scale_variance[0]), rel=0.5)


@pytest.mark.parametrize(
    ("learned", "worse", "factor"),
    [
        (0.1, 0.2, 0.8),  # half of what was learned is too much to lose, though it is little of the loss itself
        (1.0, 0.2, 1.2),
        (0.0, 0.1, 1.2),  # nothing is learned yet, and losses differ by chance
        (0.0, 0.2, 0.8),
    ],
)
def test_steps_shorten_when_more_is_lost_than_chance_explains(learned: float, worse: float, factor: float):
    cell, aggregation, best = Cell([0.0]), AGGREGATIONS.make("filtered", {}), 2.3 - learned
    state = replace(aggregation.init(cell.progress, 1), step=3.0, rounds=50, first_loss=2.3, loss=best)

    def losses(models: torch.Tensor) -> list[float]:
        far = models.norm(dim=1) > 5 * cell.progress.norm()
        return torch.where(far, best + worse, best).tolist()

    updates = replace(cell.updates(10 * cell.progress, 0), val_losses=losses)
    assert aggregation.apply(state, updates).state.step == pytest.approx(3.0 * factor)


def test_the_filter_gets_stronger_as_the_loss_falls():
    """With half of the loss, noise has a sixteenth of the rounds to average out, but 30 at least."""
    cell = Cell([0.05] * 2)
    after = cell.run(step=1.0)[-1].state

    def length(loss: float, horizon: float) -> float:
        state = replace(after, first_loss=2.0, loss=loss)
        updates = cell.updates(torch.zeros(cell.model.size), 1)
        return float(
            AGGREGATIONS.make("filtered", {"horizon": horizon, "step": 1.0}).apply(state, updates).broadcast.norm()
        )

    lengths = [length(loss, horizon=1e4) for loss in (0.01, 0.2, 1.0, 2.0)]
    assert lengths == sorted(lengths)
    assert lengths[0] < 0.99 * lengths[-1]
    assert length(3.0, horizon=1e4) == lengths[-1], "a loss above the first one is no reason for more noise"
    # the scale is fitted over the horizon as well, which makes no difference in the second round
    assert length(1.0, horizon=1600.0) == pytest.approx(length(2.0, horizon=100.0), rel=1e-3)
    assert length(0.01, horizon=1e4) == pytest.approx(length(2.0, horizon=30.0), rel=1e-3)


def test_weights_follow_noise_and_data():
    """The state's energy is E, and weights are n_k / (E + nu_k); with a long horizon nothing is filtered."""
    noise, sizes = [0.001, 0.02, 0.05], [10, 20, 40]
    cell = Cell(noise, sizes)
    before, after = cell.run(1, step=1.0, horizon=1e6, momentum=0.0)
    energy, gain = after.state.energy, cell.statistics.noise_gain(before.broadcast)
    assert energy == pytest.approx(
        float(cell.statistics.responses(cell.progress[None], before.broadcast).square().sum()), rel=0.5
    )
    weights = np.array(sizes) / (energy + np.array(noise) ** 2 * gain)
    weights /= weights.sum()
    steps = cell.updates(before.broadcast, 0).steps
    torch.testing.assert_close(after.broadcast, torch.tensor(weights).float() @ steps, rtol=0.1, atol=2e-3)
    assert after.state.variance == pytest.approx(float(weights**2 @ np.array(noise) ** 2), rel=0.1)


def test_noise_estimates_are_averaged_over_rounds():
    state = Cell([0.01, 0.04]).run(9)[-1].state
    assert (state.noise / state.seen).tolist() == pytest.approx([0.01, 0.04], rel=0.1)
    assert state.seen.tolist() == [9, 9]


def _lossy(cell: Cell, losses: list[float]) -> Updates:
    """Return updates of a round whose model and running means have these losses."""
    return replace(cell.updates(cell.progress, 0), val_losses=lambda models: losses[: len(models)])


def test_training_goes_back_to_the_best_model_where_noise_has_destroyed_the_network():
    """From 2.3: a model above 1.5 times that, or a reported one a quarter of it above the best so far."""
    cell, aggregation = Cell([0.05] * 3), AGGREGATIONS.make("filtered", {})
    state = replace(aggregation.init(2 * cell.progress, 3), rounds=9, first_loss=2.3, loss=1.0, best_loss=1.0)
    for destroyed in ([3.46, 1.1, 1.1, 1.1], [1.58, 1.58, 1.58, 1.58]):
        back = aggregation.apply(state, _lossy(cell, destroyed))
        assert torch.equal(back.broadcast, state.best)
        assert torch.equal(back.report, state.best)
        assert (back.val_loss, back.state.rounds, back.state.limited) == (1.0, 0, True)
        assert back.state.seen.tolist() == [1, 1, 1], "what is known of the UEs stays known"
    for training in ([3.44, 1.1, 1.1, 1.1], [1.57, 1.57, 1.57, 1.57]):
        assert aggregation.apply(state, _lossy(cell, training)).state.rounds == 10
    better = aggregation.apply(state, _lossy(cell, [3.46, 0.9, 1.1, 1.1]))
    assert better.val_loss == 0.9, "the best of this round counts"
    assert torch.equal(better.report, better.broadcast)


def test_limited_steps_add_at_most_as_much_noise_as_the_layer_puts_out():
    """Measured on the layer's outputs: three UEs' noise in the t-th round is at most a t-th of the outputs' energy."""
    cell, aggregation = Cell([0.3] * 3), AGGREGATIONS.make("filtered", {"momentum": 0.0, "horizon": 1e6})
    start = 10 * cell.progress
    outputs = float((cell.inputs @ start.view(OUTPUTS, INPUTS).T).square().sum(dim=1).mean())
    for rounds in (0, 8):
        state = replace(aggregation.init(start, 3), limited=True, rounds=rounds, first_loss=1e6, loss=1e6, step=4.0)
        step = aggregation.apply(state, cell.updates(start, 0)).broadcast - start
        change = float((cell.inputs @ step.view(OUTPUTS, INPUTS).T).square().sum(dim=1).mean())
        assert change == pytest.approx(outputs / (rounds + 1), rel=0.25)


def test_many_rounds_with_noise_come_closer_than_the_average():
    """Twenty rounds towards a target: the error of the filtered sum of steps against that of the average's."""
    cell = Cell([0.003, 0.03, 0.06])
    filtered = cell.run(20, step=1.0)[-1].broadcast
    plain = torch.zeros(cell.model.size)
    for round in range(20):
        plain = plain + cell.updates(plain, round).steps.mean(dim=0)
    target = 20 * cell.progress
    assert float((filtered - target).norm()) < 0.25 * float((plain - target).norm())


def test_the_reported_model_is_the_one_of_least_validation_loss():
    """The loss falls with the norm here: of a growing model and its running means, the model itself is the longest."""
    last = Cell([0.0]).run(9)[-1]
    assert torch.equal(last.report, last.broadcast)
    lengths = [float(mean.norm()) for mean in last.state.means]
    assert lengths == sorted(lengths, reverse=True)
    models = torch.stack([result.broadcast for result in Cell([0.0]).run(9)[1:]])
    torch.testing.assert_close(last.state.means[2], models.mean(dim=0))  # fewer rounds than its window


def test_other_networks_get_the_average_weighted_by_noise():
    cell = Cell([0.0, 0.5], module=nn.Sequential(nn.Linear(INPUTS, 30), nn.LayerNorm(30), nn.Linear(30, 5)))
    assert not cell.statistics.complete
    before, after = cell.run(1)
    clean, noisy = cell.updates(before.broadcast, 0).steps
    assert float((after.broadcast - clean).norm()) < 0.02 * float((noisy - clean).norm())
