import math

import numpy as np
import pytest

from fedslot.access import Capture, Channel, Collision, best_load, crdsa, irsa


def _throughput(channel: Channel, slots: int, load: float, frames: int) -> float:
    """Return received UEs per slot where a Poisson number of UEs sends, by playing frames one number at a time."""
    rng = np.random.default_rng(5)
    numbers, times = np.unique(rng.poisson(load * slots, frames), return_counts=True)
    received = 0
    for ues, count in zip(numbers.tolist(), times.tolist(), strict=True):
        received += np.count_nonzero(channel.play(np.ones((count, ues), dtype=np.int64), slots, rng))
    return received / frames / slots


class _Open(Channel):
    """Receives up to five UEs in a slot; the best load is that at which 5 G^4 / 4! = sum of G^k / k! for k <= 4."""

    def resolve(self, sent, slots, rng):
        pick = sent[:, :, 0]
        same = (pick[:, :, None] == pick[:, None, :]).sum(axis=2)
        return np.where(same <= 5, pick, 0)


@pytest.mark.parametrize(
    ("channel", "slots"),
    [(Collision(), 7), (Capture(3.0), 5), (Capture(-3.0, noise=0.1), 5), (crdsa(3), 10), (irsa(), 10), (irsa(), 40)],
)
def test_no_other_load_receives_more(channel: Channel, slots: int) -> None:
    best = best_load(channel, slots)
    at_best = _throughput(channel, slots, best.load, 20_000)
    assert best.received == pytest.approx(at_best, rel=0.03)
    for factor in (0.8, 0.9, 1.1, 1.25):
        assert _throughput(channel, slots, factor * best.load, 8_000) < 1.03 * at_best
    assert _throughput(channel, slots, 0.6 * best.load, 8_000) < 0.98 * at_best
    assert _throughput(channel, slots, 1.6 * best.load, 8_000) < 0.98 * at_best


def test_the_best_load_of_irsa_in_short_frames_is_far_from_its_threshold() -> None:
    loads = [best_load(irsa(), slots).load for slots in (10, 40, 200)]
    assert loads == sorted(loads)
    assert loads[0] < 0.6 < 0.7 < loads[2] < irsa().threshold


def test_a_channel_of_ones_own_is_simulated() -> None:
    loads = np.linspace(0.01, 10, 1000)
    # E[K; K <= 5] = G P(K <= 4)
    expected = loads * sum(np.exp(-loads) * loads**k / math.factorial(k) for k in range(5))
    best = best_load(_Open(), 6)
    assert best.received == pytest.approx(expected.max(), rel=0.03)
    assert expected[np.abs(loads - best.load).argmin()] > 0.98 * expected.max()


def test_collided_slots_hold_so_many_ues() -> None:
    rng = np.random.default_rng(0)
    ues = rng.poisson(1.0, 200_000)
    assert best_load(Collision(), 10).unheard == pytest.approx(ues[ues > 1].mean(), rel=0.01)
    power = [rng.exponential(size=n) for n in rng.poisson(1.25, 50_000).tolist()]  # the best load at a threshold of 4
    decoded = [bool((p >= 4 * (p.sum() - p)).any()) for p in power]
    vain = sum(len(p) - d for p, d in zip(power, decoded, strict=True))
    collided = sum(len(p) > 0 and not d for p, d in zip(power, decoded, strict=True))
    assert best_load(Capture(10 * math.log10(4)), 10).unheard == pytest.approx(vain / collided, rel=0.05)
