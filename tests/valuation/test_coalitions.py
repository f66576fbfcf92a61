import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from fedslot.valuation.coalitions import coalition_weights


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
