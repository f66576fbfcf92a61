import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedslot.learning.aggregation import average, coalition_weights


@given(st.lists(st.integers(1, 1000), min_size=1, max_size=8), st.integers(0, 100))
def test_the_average_is_numpys(sizes, seed):
    rng = np.random.default_rng(seed)
    updates = rng.standard_normal((len(sizes), 13)).astype(np.float32)
    found = average(torch.from_numpy(updates), np.array(sizes))
    expected = np.average(updates.astype(np.float64), axis=0, weights=sizes)
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-5, atol=1e-6)


def test_the_average_of_equal_updates_is_that_update():
    row = torch.randn(7)
    torch.testing.assert_close(average(row.repeat(4, 1), np.array([1, 10, 100, 1000])), row)


def test_data_counts():
    """30 samples against 10: three quarters and a quarter."""
    updates = torch.tensor([[4.0, 0.0], [0.0, 8.0]])
    assert average(updates, np.array([30, 10])).tolist() == [3.0, 2.0]


@given(st.data())
def test_coalition_weights_average_the_members_and_no_one_else(data):
    players = data.draw(st.integers(1, 6))
    sizes = np.array(data.draw(st.lists(st.integers(1, 50), min_size=players, max_size=players)))
    codes = np.array(data.draw(st.lists(st.integers(0, 2**players - 1), min_size=1, max_size=5)))
    members = (codes[:, None] >> np.arange(players)) & 1 == 1
    rows = np.random.default_rng(0).standard_normal((players + 1, 3))
    mixed = coalition_weights(members, sizes) @ rows
    for coalition, found in zip(members, mixed, strict=True):
        inside = np.flatnonzero(coalition)
        expected = np.average(rows[1:][inside], axis=0, weights=sizes[inside]) if len(inside) else rows[0]
        np.testing.assert_allclose(found, expected, atol=1e-12)
