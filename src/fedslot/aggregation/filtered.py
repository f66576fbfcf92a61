"""Filtered: weight updates by their noise, filter what they have in common by the layers' inputs, take larger steps.

`docs/explanation/derivation.md` derives it. In each round, with d_k the steps of the received UEs:

0. Trust. Updates that the PS's labels speak against, and copies, are refused, and long steps shortened: `trust.py`.
1. Weights. The noise sigma_k of a UE is the mean of its estimates so far. Measured as a change of the layers' outputs,
   a step without noise has the mean squared length E = |g|^2 + tau^2 (progress and deviation), and its noise
   nu_k = sigma_k^2 noise_gain. w_k ~ n_k / (E + nu_k).
2. Momentum m of sum w_k d_k, with the variance v of its noise.
3. Scale. Gradients are products with a layer's inputs. So in a direction in which these have the energy lambda, the
   mean square of m is c lambda + v. The scale c of a layer is fitted over the last R rounds.
4. Filter. Over R rounds signals add up in amplitude and noise in power, so that the Wiener filter has the gain
   R c lambda / (R c lambda + v). R is `horizon` at first, where noise can spoil nothing that was learned, and falls
   with the fourth power of the validation loss, to 30.
5. Step: the filtered momentum times a factor from 1, the average itself, to `step`. It shrinks when the model has
   a clearly higher validation loss than its running means, which is so when steps are too long, and grows otherwise.
6. Report: of the new model and its running means, the one of least validation loss.
7. Return. If the new model is clearly worse than the untrained network, or the reported one than the best so far,
   noise has destroyed what the network needs to learn. Training then goes back to the best model so far, and from
   there on steps are limited: noise as strong as now, in all rounds since, must not exceed a layer's own outputs.

Under `training.ps: join`, the PS's own update has a share in the sum of 2, see `own_training.py`.

Networks with other layers than Linear and Conv2d get steps 0, 1 and 6 only.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Annotated

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor

from fedslot.aggregation.base import Aggregate, Updates
from fedslot.aggregation.own_training import PRODUCTS, add_products, samples_of_others, share_of_own
from fedslot.aggregation.trust import (
    NO_TRUST,
    are_accepted,
    are_copies,
    differences,
    remember,
    shortening,
    typical_length,
    usual_difference,
)

WINDOWS = (5, 20, 80)  # rounds over which models are averaged
SMOOTHING = 0.2  # weight of a round in E
LONGER, SHORTER = 1.2, 0.8  # change of the step's factor in a round
TOO_LONG = 0.5  # steps shrink if the loss exceeds that of the best running mean by this share of it, or of the progress
ALIKE = 0.05  # and by this share of it besides: without progress, losses differ by chance
LEAST_HORIZON = 30  # rounds
DESTROYED = 1.5  # loss of a destroyed network, relative to that of the untrained one
LOST = 0.25  # loss of the untrained network by whose share the reported model may be worse than the best so far


@dataclass(frozen=True, eq=False)
class FilterState:
    """Memory of the filter.

    noise: (K,) sum of the noise estimates of each UE. seen: (K,) their number.
    momentum: (P,) m. means: (windows, P) running means of the models. scale: (P,) c of the layer of each parameter,
    since the layers are not known at first. scale_variance: (P,) variance of that estimate.
    energy: E. variance: v. rounds: those with a received update so far. step: factor of the next step.
    first_loss: validation loss of the network before any training. loss: of the reported model.
    best: (P,) the reported model of least validation loss so far, and best_loss that loss.
    trust, trust_variance: (K,) T_k and the variance of its error. length: C. difference: that of two updates.
    limited: whether training went back to `best`, so that steps are limited. `rounds` counts from there.
    sizes: (K,) training samples of each UE seen. products: (5,) sums of inner products with updates of the PS's own.
    """

    noise: NDArray[np.float64]
    seen: NDArray[np.int64]
    momentum: Tensor
    means: Tensor
    scale: Tensor
    scale_variance: Tensor
    sizes: NDArray[np.int64]
    products: NDArray[np.float64]
    best: Tensor
    trust: NDArray[np.float64]
    trust_variance: NDArray[np.float64]
    length: float = 0.0
    difference: float = 0.0
    energy: float = 0.0
    variance: float = 0.0
    rounds: int = 0
    step: float = 1.0
    first_loss: float = 0.0
    loss: float = 0.0
    best_loss: float = math.inf
    limited: bool = False

    def traced(self) -> dict[str, NDArray[np.float64]]:
        """Return the noise estimates that `frames.csv` shows."""
        return {"noise": np.where(self.seen > 0, self.noise / np.maximum(self.seen, 1), np.nan)}


@dataclass(frozen=True, kw_only=True)
class Filtered:
    """Weights by noise, a Wiener filter by the layers' inputs, and larger steps.

    step: the largest factor of a step. momentum: weight of the momentum so far.
    horizon: number of rounds in which noise averages out, at first.
    """

    step: Annotated[float, Field(ge=1, le=1e3)] = 4.0
    momentum: Annotated[float, Field(ge=0, lt=1)] = 0.5
    horizon: Annotated[float, Field(gt=0, le=1e6)] = 1000.0

    def init(self, model: Tensor, ues: int) -> FilterState:
        zeros, means = torch.zeros_like(model), model.repeat(len(WINDOWS), 1)
        none = np.zeros(ues, dtype=np.int64)
        return FilterState(
            np.zeros(ues),
            none,
            zeros,
            means,
            zeros,
            zeros,
            none,
            np.zeros(PRODUCTS),
            model,
            np.zeros(ues),
            np.zeros(ues),
        )

    def apply(self, state: FilterState, updates: Updates) -> Aggregate[FilterState]:
        round, complete = state.rounds + 1, updates.statistics.complete
        state, factors = _screen(state, updates)
        accepted = factors > 0
        if not accepted.any():
            return Aggregate(updates.start, updates.start, state, accepted=accepted)
        noise, seen, ues = state.noise, state.seen, updates.ues
        sigma = noise[ues] / seen[ues]
        weights, energy = _weights(state, updates, sigma, factors)
        mean = torch.as_tensor(weights).to(updates.steps) @ updates.steps
        sizes, products = state.sizes.copy(), state.products
        sizes[ues] = np.where(accepted, updates.sizes, 0)
        if updates.own is not None:
            products = add_products(products, updates, weights)
            others = samples_of_others(sizes, noise, seen, energy, updates.statistics.noise_gain(updates.start))
            share = share_of_own(products, updates.own_size, others, energy)
            weights, mean = (1 - share) * weights, (1 - share) * mean + share * (updates.own - updates.start)
        memory = self.momentum if complete else 0.0
        momentum = memory * state.momentum + (1 - memory) * mean
        variance = memory**2 * state.variance + (1 - memory) ** 2 * float(weights**2 @ sigma**2)
        started = 1 - memory**round  # the momentum began at 0
        average, power = momentum / started, variance / started**2
        scale, scale_variance = state.scale, state.scale_variance
        if complete:
            scale, scale_variance = self._fit(state, average, power, updates)
            average = self._filter(average, power, scale + scale_variance.sqrt(), self._rounds(state), updates)
        step = self._limit(state, power, updates) if complete and state.limited else state.step
        model = updates.start + step * average
        windows = torch.tensor([min(round, window) for window in WINDOWS]).to(model)
        means = state.means + (model - state.means) / windows.unsqueeze(1)
        models = [model, *means]
        losses = [loss if math.isfinite(loss) else math.inf for loss in updates.val_losses(torch.stack(models))]
        first_loss = state.first_loss or updates.val_losses(updates.model.initial.unsqueeze(0))[0]
        least = min(losses)
        best, best_loss = (
            (state.best, state.best_loss) if state.rounds or state.limited else (updates.start, first_loss)
        )
        if least < best_loss:
            best, best_loss = models[losses.index(least)], least
        if complete and (losses[0] > DESTROYED * first_loss or least > best_loss + LOST * first_loss):
            kept = ("noise", "seen", "trust", "trust_variance", "length", "difference")
            known = {name: getattr(state, name) for name in kept}
            back = replace(self.init(best, len(noise)), **known, sizes=sizes, products=products)
            back = replace(back, first_loss=first_loss, loss=best_loss, best_loss=best_loss, limited=True)
            return Aggregate(best, best, back, best_loss, accepted)
        after = replace(
            state,
            energy=energy,
            momentum=momentum,
            variance=variance,
            rounds=round,
            step=self._next_step(state.step, losses, first_loss, updates.least_step) if complete else 1.0,
            means=means,
            scale=scale,
            scale_variance=scale_variance,
            first_loss=first_loss,
            loss=least,
            sizes=sizes,
            products=products,
            best=best,
            best_loss=best_loss,
        )
        return Aggregate(model, models[losses.index(least)], after, least, accepted)

    def _fit(self, state: FilterState, average: Tensor, power: float, updates: Updates) -> tuple[Tensor, Tensor]:
        """Return the scale c of each parameter's layer after this round, and the variance of its estimate, (P,) each.

        A mean square over `out` outputs has the variance 2 (c lambda + v)^2 / out, by whose inverse it is weighted.
        """
        statistics = updates.statistics
        new = min(1.0, max(1 / self._rounds(state), 1 / (state.rounds + 1)))  # weight of this round
        autocorrelation = (1 + self.momentum**2) / (1 - self.momentum**2)  # successive rounds share noise
        scales, variances = [], []
        layers = zip(
            *map(statistics.matrices, (average, state.scale, state.scale_variance)),
            statistics.bases(updates.start),
            strict=True,
        )
        for matrix, before, scale_variance, basis in layers:
            squares, energies = (matrix @ basis.vectors).double().square().mean(dim=0), basis.energies.double()
            weights = energies / (float(before[0, 0]) * energies + power).square().clamp(min=1e-30)
            total = (weights @ energies).clamp(min=1e-30)
            scale = (1 - new) * before + new * float(weights @ (squares - power) / total)
            scales.append(scale.clamp(min=0))
            sampling = new**2 * autocorrelation * 2 / len(matrix) / float(total)
            variances.append((1 - new) ** 2 * scale_variance + sampling)
        return statistics.flatten(scales), statistics.flatten(variances)

    def _rounds(self, state: FilterState) -> float:
        """Return the number of rounds R in which noise has to average out."""
        left = min(state.loss / state.first_loss, 1.0) if state.first_loss > 0 else 1.0
        return max(self.horizon * left**4, min(self.horizon, LEAST_HORIZON))

    def _filter(self, average: Tensor, power: float, scale: Tensor, rounds: float, updates: Updates) -> Tensor:
        """Return an average step (P,), with noise of a known variance, after the Wiener filter of each layer."""
        if power == 0:
            return average
        statistics, filtered = updates.statistics, []
        layers = zip(*map(statistics.matrices, (average, scale)), statistics.bases(updates.start), strict=True)
        for matrix, layer_scale, basis in layers:
            signal = rounds * float(layer_scale[0, 0]) * basis.energies
            filtered.append((matrix @ basis.vectors * (signal / (signal + power))) @ basis.vectors.mT)
        return statistics.flatten(filtered)

    def _limit(self, state: FilterState, power: float, updates: Updates) -> Tensor:
        """Return the factor of the step for each parameter (P,), which depends on its layer.

        Weights count by the energies of the layer's inputs, as noise does. Noise in successive averages is correlated.
        """
        statistics, factors = updates.statistics, []
        correlated = (1 + self.momentum) / (1 - self.momentum)
        sum_of_noise = correlated * power * min(state.rounds + 1, self._rounds(state))
        for matrix, basis in zip(statistics.matrices(updates.start), statistics.bases(updates.start), strict=True):
            outputs = float((matrix @ basis.vectors).double().square().mean(dim=0) @ basis.energies.double())
            of_noise = sum_of_noise * float(basis.energies.sum())
            longest = math.sqrt(outputs / of_noise) if of_noise > 0 else math.inf
            factors.append(torch.full_like(matrix, min(state.step, longest)))
        return statistics.flatten(factors)

    def _next_step(self, step: float, losses: list[float], first_loss: float, least: float) -> float:
        """Return the factor of the next step, from `least`; losses: of the model and of its running means."""
        best = min(losses)
        too_long = losses[0] - best > TOO_LONG * min(best, max(first_loss - best, 0.0)) + ALIKE * best
        return min(max(step * (SHORTER if too_long else LONGER), least), self.step)


def _screen(state: FilterState, updates: Updates) -> tuple[FilterState, NDArray[np.float64]]:
    """Return the state with what a round's updates tell, and the factors (Y,) of their steps, 0 if refused."""
    ues, noise, seen = updates.ues, state.noise.copy(), state.seen.copy()
    trust, variances = state.trust.copy(), state.trust_variance.copy()
    noise[ues] += updates.noise
    seen[ues] += 1
    errors = updates.noise / np.maximum(updates.norms, 1e-300)
    trust[ues], variances[ues] = remember(trust[ues], variances[ues], seen[ues], updates.gains, errors)
    between = differences(updates.steps)
    difference = usual_difference(state.difference, between)
    copies = are_copies(between, difference)
    trust[ues[np.tril(copies).any(axis=1)]] = NO_TRUST
    accepted = are_accepted(trust[ues], variances[ues], float(np.median(trust[seen > 0]))) & ~copies.any(axis=1)
    lengths = _lengths(updates)
    power = (noise[ues] / seen[ues]) ** 2 * updates.statistics.noise_gain(updates.start)
    length = typical_length(state.length, lengths[accepted], power[accepted]) if accepted.any() else state.length
    after = replace(
        state, noise=noise, seen=seen, trust=trust, trust_variance=variances, length=length, difference=difference
    )
    return after, accepted * shortening(lengths, power, length)


def _lengths(updates: Updates) -> NDArray[np.float64]:
    """Return the squared lengths (Y,) of steps as changes of the layers' outputs."""
    lengths: NDArray[np.float64] = updates.responses.double().square().sum(dim=1).cpu().numpy()
    return lengths


def _weights(
    state: FilterState, updates: Updates, sigma: NDArray[np.float64], factors: NDArray[np.float64]
) -> tuple[NDArray[np.float64], float]:
    """Return the weights (Y,) of the updates, which sum to 1 if no step is shortened, and the new E."""
    used, lengths = factors > 0, factors**2 * _lengths(updates)
    power = sigma**2 * updates.statistics.noise_gain(updates.start)
    before = state.energy if state.rounds else float(np.median(lengths[used]))
    precision = used / np.maximum(before + power, 1e-300)
    now = max(float(precision @ (lengths - power) / precision.sum()), 0.0)
    energy = now if not state.rounds else (1 - SMOOTHING) * state.energy + SMOOTHING * now
    weights = used * updates.sizes / np.maximum(energy + power, 1e-300)
    return factors * weights / weights.sum(), energy
