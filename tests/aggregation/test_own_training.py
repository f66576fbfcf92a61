"""The PS as one more UE: the share of its own update, by hand and by brute force, and the step that is taken."""

import numpy as np
import pytest
import torch
from torch import nn

from fedslot.aggregation import AGGREGATIONS, Aggregate, Updates
from fedslot.aggregation.own_training import PRODUCTS, add_products, samples_of_others, share_of_own
from fedslot.learning.layer_statistics import LayerStatistics
from fedslot.learning.models import Model

NETWORK = Model(nn.Linear(12, 30, bias=False))
INPUTS = torch.randn(200, 12, generator=torch.Generator().manual_seed(0)) * torch.tensor([1.0] * 6 + [0.0] * 6)
STATISTICS = LayerStatistics(NETWORK, INPUTS)
START = NETWORK.initial.zero_()
PROGRESS = torch.zeros(30, 12)
PROGRESS[:, :6] = torch.randn(30, 6, generator=torch.Generator().manual_seed(1)) / 100
PROGRESS = PROGRESS.flatten()


def _updates(noise: list[float], own: torch.Tensor | None = None, size: int = 30, round: int = 0) -> Updates:
    """Return updates of UEs with 10, 20, ... samples, which make the same progress, and of the PS."""
    normal = torch.randn(len(noise), len(START), generator=torch.Generator().manual_seed(100 + round))
    local, ues = PROGRESS + torch.tensor(noise).unsqueeze(1) * normal, np.arange(len(noise))
    values = np.zeros(len(noise))
    losses = lambda models: (1 / (1 + models.norm(dim=1))).tolist()  # noqa: E731
    return Updates(
        NETWORK, START, local, ues, 10 + 10 * ues, values, INPUTS, STATISTICS, losses, own=own, own_size=size
    )


def _step(updates: Updates) -> Aggregate:
    """Aggregate the first round; with so long a horizon, nothing is filtered."""
    aggregation = AGGREGATIONS.make("filtered", {"horizon": 1e6})
    return aggregation.apply(aggregation.init(START, len(updates.ues)), updates)


def _products(updates: Updates) -> tuple[np.ndarray, np.ndarray]:
    """Return the updates of the UEs (Y, n) and of the PS (n,) as changes of the layer's outputs."""
    return updates.responses.double().numpy(), STATISTICS.responses(updates.own[None], START)[0].double().numpy()


def test_products_are_those_of_all_pairs():
    products, expected, weights = np.zeros(PRODUCTS), np.zeros(PRODUCTS), np.array([0.5, 0.2, 0.3])
    for round in range(4):
        updates = _updates([0.02, 0.03, 0.01], PROGRESS * (1 + round), round=round)
        products = add_products(products, updates, weights)
        ues, own = _products(updates)
        now = [1, own @ own, sum(weight * (own @ ue) for weight, ue in zip(weights, ues, strict=True)), 6, 0]
        now[4] = sum(ues[j] @ ues[k] for j in range(3) for k in range(3) if j != k)
        expected = 0.9 * expected + np.array(now)
        np.testing.assert_allclose(products, expected, rtol=1e-4)


def test_samples_count_less_for_noise_and_more_for_every_update():
    """E = 2; the second UE's noise has the mean square 4, over three updates 4/3; the third is not known yet."""
    others = samples_of_others(np.array([10, 20, 40]), np.array([0.0, 3.0, 0.0]), np.array([1, 3, 0]), 2.0, 4.0)
    assert others == pytest.approx(10 + 20 * 2 / (2 + 4 / 3))


@pytest.mark.parametrize(
    ("products", "share"),
    [
        ([1, 4, 2, 2, 2], 30 / (30 + 60)),  # |d| = 2, |g| = 1, the same direction
        ([1, 4, 1, 2, 2], 7.5 / (7.5 + 60)),  # a cosine of a half
        ([2, 8, 2, 4, 4], 7.5 / (7.5 + 60)),  # the same twice
        ([1, 4, -2, 2, 2], 0),  # opposed
        ([1, 0, 0, 0, 0], 0),  # no update of the PS, and a single UE
        ([1, 1, 0.1, 2, -7], 0.01 / 0.05 * 30 / (0.01 / 0.05 * 30 + 60)),  # noise hides the progress: 0.05 E
    ],
)
def test_the_share_by_hand(products, share):
    assert share_of_own(np.array(products, dtype=float), 30, 60.0, 1.0) == pytest.approx(share)


def test_without_noise_a_ps_that_agrees_is_one_more_ue():
    """Three UEs with 60 samples and the PS with 30, whose step is twice as long."""
    after = _step(_updates([0.0] * 3, 2 * PROGRESS))
    torch.testing.assert_close(after.broadcast, PROGRESS * (60 + 2 * 30) / 90, rtol=1e-3, atol=1e-5)
    assert after.state.sizes.tolist() == [10, 20, 30]


def test_what_the_ues_do_not_want_has_no_share():
    elsewhere = torch.zeros(30, 12)
    elsewhere[:, 6:] = 0.01  # where inputs have hardly any energy
    plain = _step(_updates([0.0] * 3)).broadcast
    for own in (-PROGRESS, elsewhere.flatten()):
        torch.testing.assert_close(_step(_updates([0.0] * 3, own)).broadcast, plain, rtol=1e-2, atol=1e-4)


def test_a_share_of_the_ps_lessens_the_noise():
    """Of equal steps, the noise that is left shows the share, since only the UEs have any."""
    noise = [0.01] * 4
    plain, joined = _step(_updates(noise)), _step(_updates(noise, PROGRESS))
    others = (joined.broadcast - PROGRESS).norm() / (plain.broadcast - PROGRESS).norm()
    assert 0.2 < others < 0.9
    assert joined.state.variance == pytest.approx(float(others) ** 2 * plain.state.variance, rel=1e-3)


def test_agreement_is_seen_through_the_noise():
    """Each noisy update is nearly orthogonal to the progress, but not what they have in common over rounds."""
    products, cosines = np.zeros(PRODUCTS), []
    for round in range(60):
        updates = _updates([0.05] * 6, PROGRESS, round=round)
        products = add_products(products, updates, np.full(6, 1 / 6))
        ues, own = _products(updates)
        cosines += (ues @ own / np.linalg.norm(ues, axis=1) / np.linalg.norm(own)).tolist()
    assert np.square(cosines).mean() < 0.1
    rounds, length, common, pairs, gram = products
    assert (common / rounds) ** 2 / (length / rounds * gram / pairs) == pytest.approx(1, abs=0.3)
