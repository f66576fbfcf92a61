import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedslot.support.rng import stream, torch_seed

keys = st.tuples(st.integers(0, 2**70), st.text(max_size=5), st.lists(st.integers(0, 2**32 - 1), max_size=3).map(tuple))


def _draw(key: tuple[int, str, tuple[int, ...]]) -> tuple[int, ...]:
    seed, purpose, numbers = key
    return tuple(stream(seed, purpose, *numbers).integers(0, 2**63, size=2).tolist())


@given(keys, keys)
def test_streams_are_equal_if_and_only_if_their_keys_are(one, other):
    assert (_draw(one) == _draw(other)) == (one == other)
    assert (torch_seed(one[0], one[1], *one[2]) == torch_seed(other[0], other[1], *other[2])) == (one == other)


def test_numbers_are_kept_apart():
    """(1, 23), (12, 3), (123) and the seed's own digits are different streams."""
    keys = [(0, "x", *numbers) for numbers in [(1, 23), (12, 3), (123,), (1, 2, 3), (), (0,), (0, 0)]]
    keys += [(1, "x", 23), (0, "y", 1, 23)]
    assert len({stream(*key).random() for key in keys}) == len(keys)


def test_neighbouring_streams_are_uncorrelated():
    """Correlations of 200 streams that differ in one number stay within what chance allows."""
    length = 500
    draws = np.array([stream(0, "noise", 3, ue).standard_normal(length) for ue in range(200)])
    correlation = np.corrcoef(draws)[np.triu_indices(200, 1)]
    # 19900 correlations, each with standard deviation 1/sqrt(length): the largest is below 5 of them
    assert np.abs(correlation).max() < 5 / np.sqrt(length)
    assert abs(correlation.std() * np.sqrt(length) - 1) < 0.05
    # and so are their first draws
    assert abs(np.mean(draws[:, 0])) < 4 / np.sqrt(200)


def test_streams_do_not_touch_global_generators():
    before, torch_before = np.random.get_state()[1].copy(), torch.get_rng_state()  # noqa: NPY002
    stream(0, "x").random(10)
    torch_seed(0, "x")
    np.testing.assert_array_equal(np.random.get_state()[1], before)  # noqa: NPY002
    assert torch.equal(torch.get_rng_state(), torch_before)


def test_torch_seed_is_a_seed():
    seeds = [torch_seed(0, "dropout", n) for n in range(100)]
    assert all(0 <= seed < 2**63 for seed in seeds)
    assert 0.38 < np.mean(np.array(seeds) / 2**63) < 0.62  # four standard errors of a uniform's mean
    torch.Generator().manual_seed(max(seeds))
