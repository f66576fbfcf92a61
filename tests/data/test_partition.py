import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedslot.data import load
from fedslot.data.partition import draw, own_shares, split
from fedslot.rounds.simulation import Simulation
from fedslot.scenario import Scenario
from fedslot.support.errors import InputError


def _balanced(samples: int, classes: int) -> np.ndarray:
    return np.arange(samples) % classes


def _mixes(partition, labels: np.ndarray) -> np.ndarray:
    """(K, C) share of each label in each UE's samples."""
    counts = np.array(
        [np.bincount(labels[partition.share(ue)], minlength=labels.max() + 1) for ue in range(len(partition.sizes))]
    )
    return counts / counts.sum(axis=1, keepdims=True)


@settings(max_examples=150)
@given(st.data())
def test_every_sample_goes_to_one_ue_and_every_ue_has_one(data):
    classes = data.draw(st.integers(1, 12), "classes")
    labels = np.array(data.draw(st.lists(st.integers(0, classes - 1), min_size=1, max_size=200), "labels"))
    ues = data.draw(st.integers(1, len(labels)), "ues")
    alpha = data.draw(st.sampled_from([5e-324, 0.01, 0.1, 1.0, 50.0, 1e300]), "alpha")
    sizes = data.draw(st.sampled_from(["power-law", "equal"]), "sizes")
    partition = split(labels, ues, alpha, sizes, seed=data.draw(st.integers(0, 5), "seed"))
    assert np.array_equal(np.sort(partition.samples), np.arange(len(labels)))
    assert len(partition.sizes) == ues
    assert partition.sizes.min() >= 1
    assert partition.sizes.sum() == len(labels)
    assert np.array_equal(np.concatenate([partition.share(ue) for ue in range(ues)]), partition.samples)


def test_the_same_seed_gives_the_same_partition():
    labels = _balanced(500, 10)
    one, same, other = (split(labels, 20, 0.5, "power-law", seed) for seed in (1, 1, 2))
    assert np.array_equal(one.samples, same.samples)
    assert np.array_equal(one.offsets, same.offsets)
    assert not np.array_equal(one.offsets, other.offsets)


def test_more_ues_than_samples_are_refused():
    with pytest.raises(InputError, match=r"data.ues: 11 is not allowed; it must be at most 10, the training samples"):
        split(_balanced(10, 2), 11, 1.0, "equal", 0)
    assert split(_balanced(10, 2), 10, 0.01, "power-law", 0).sizes.tolist() == [1] * 10


@pytest.mark.parametrize("alpha", [1.0, 10.0])
def test_sizes_follow_the_power_law(alpha):
    """Sizes are in proportion to U^(1/3), whose distribution function is x^3 and whose mean is 3/4."""
    ues = 2000
    partition = split(_balanced(400 * ues, 10), ues, alpha, "power-law", 3)
    x = np.sort(partition.sizes / partition.sizes.mean() * 0.75)
    distance = np.abs(np.clip(x, 0, 1) ** 3 - (np.arange(ues) + 0.5) / ues).max()
    # Kolmogorov-Smirnov: 1.63 / sqrt(n) is exceeded once in a hundred; 0.01 for the mean in place of the scale
    assert distance < 1.63 / np.sqrt(ues) + 0.01
    assert abs((x**2).mean() - 0.6) < 4 * np.sqrt((3 / 7 - 0.36) / ues) + 0.01  # E[X^2] = 3/5, E[X^4] = 3/7


@pytest.mark.parametrize("ues", [1, 3, 50, 200])
def test_equal_sizes_are_equal_within_rounding(ues):
    """Each of the ten labels is rounded by less than one sample."""
    sizes = split(_balanced(10_000, 10), ues, 1.0, "equal", 0).sizes
    assert np.abs(sizes - 10_000 / ues).max() <= 10


@pytest.mark.parametrize("alpha", [0.1, 0.3, 1.0, 5.0])
@pytest.mark.parametrize("sizes", ["power-law", "equal"])
def test_label_mixes_scatter_as_dirichlet_does(alpha, sizes):
    """The mean over UEs of sum of squared shares is (alpha + 1) / (C alpha + 1); one label is a Beta variable."""
    classes, ues = 10, 1000
    labels = _balanced(500 * ues, classes)
    mixes = _mixes(split(labels, ues, alpha, sizes, 7), labels)
    squares = (mixes**2).sum(axis=1)
    expected = (alpha + 1) / (classes * alpha + 1)
    # sampling error, and a little for raking, which pulls a thousand UEs' mean mix to the class totals
    assert abs(squares.mean() - expected) < 4 * squares.std() / np.sqrt(ues) + 0.02 * expected
    assert np.abs(mixes.mean(axis=0) - 1 / classes).max() < 0.02
    below = (mixes[:, 0] < 1 / classes).mean()
    beta = np.random.default_rng(0).beta(alpha, (classes - 1) * alpha, size=100_000)
    assert abs(below - (beta < 1 / classes).mean()) < 4 * 0.5 / np.sqrt(ues)


def test_who_gets_which_sample_of_a_label_is_random():
    """Over seeds, sample 0 goes to each of four UEs about equally often."""
    labels = np.zeros(40, dtype=np.int64)
    owners = []
    for seed in range(400):
        partition = split(labels, 4, 1.0, "equal", seed)
        owners.append(int(np.searchsorted(partition.offsets, np.flatnonzero(partition.samples == 0)[0], "right")) - 1)
    counts = np.bincount(owners, minlength=4)
    assert ((counts - 100) ** 2 / 100).sum() < 16.27  # chi-square, 3 degrees of freedom, one in a thousand


LABELS = np.repeat(np.arange(5), 400)


def test_drawn_shares_are_the_same_whenever_they_are_asked_for():
    first, again = (draw(LABELS, 50, 1.0, "power-law", 30, seed=4) for _ in range(2))
    for ue in (49, 0, 17):
        assert np.array_equal(first.share(ue), again.share(ue))
    assert not np.array_equal(first.share(0), draw(LABELS, 50, 1.0, "power-law", 30, seed=5).share(0))


def test_drawn_shares_have_the_sizes_they_say_and_no_sample_twice():
    shares = draw(LABELS, 300, 1.0, "power-law", 30, seed=0)
    for ue in range(300):
        own = shares.share(ue)
        assert len(own) == shares.sizes[ue] == len(np.unique(own))
    error = 30 * (4 / 3) * np.sqrt(3 / 80) / np.sqrt(300)  # the density 3x^2 has variance 3/80
    assert abs(shares.sizes.mean() - 30) < 4 * error + 0.5
    assert (draw(LABELS, 10, 1.0, "equal", 30, seed=0).sizes == 30).all()


@pytest.mark.parametrize("mean_size", [len(LABELS) // 4, len(LABELS), 10**9])
def test_sizes_hold_where_labels_run_out(mean_size):
    shares = draw(LABELS, 20, 0.1, "power-law", mean_size, seed=0)
    assert (shares.sizes <= len(LABELS)).all()
    for ue in range(20):
        own = shares.share(ue)
        assert len(own) == shares.sizes[ue] == len(np.unique(own))


def test_drawn_mixes_are_dirichlet():
    """Mean sum of squared label shares: (alpha + 1) / (5 alpha + 1) of the mix, plus what a sample of n adds."""
    alpha, size = 0.5, 50
    shares = draw(LABELS, 2000, alpha, "equal", size, seed=1)
    squares = [((np.bincount(LABELS[shares.share(ue)], minlength=5) / size) ** 2).sum() for ue in range(2000)]
    mix = (alpha + 1) / (5 * alpha + 1)
    expected = mix + (1 - mix) / size
    assert np.mean(squares) == pytest.approx(expected, abs=4 * np.std(squares) / np.sqrt(2000))


def test_any_number_of_ues_can_draw():
    shares = draw(LABELS, 1_000_000, 0.3, "power-law", 20, seed=0)
    assert len(shares.sizes) == 1_000_000
    assert len(shares.share(999_999)) == shares.sizes[999_999]


def blocks(labels: np.ndarray, ues: int, rng: np.random.Generator, *, spare: int = 0) -> np.ndarray:
    """The UE of each sample by its position; the last `spare` samples belong to none."""
    owners = np.arange(len(labels)) % ues
    owners[len(labels) - spare :] = -1
    return owners


def test_a_run_uses_a_partition_of_ones_own():
    own = {"name": blocks, "options": {"spare": 4}}
    scenario = Scenario.load("quickstart", {"data.ues": 10, "frame": {"slots": 4, "pull": 2}, "data.partition": own})
    samples = len(load("digits").y_train)
    assert Simulation(scenario).fleet.sizes.sum() == samples - 4


@pytest.mark.parametrize(
    "divided",
    [
        np.array([0, 1, 2, 0]),  # there is no UE 2
        np.array([0, 1, -2, 0]),
        np.array([0, 0, 0, -1]),  # nothing for UE 1
        np.array([0, 1, 0]),
        [[0, 1], [2, 4]],  # there is no sample 4
        [[0, 1], []],
        [[0, 1, 2, 3]],
        "01",
    ],
    ids=str,
)
def test_what_is_no_partition_is_refused(divided: object):
    assert own_shares("mine:cut", np.array([0, 1, 1, -1]), 4, 2).sizes.tolist() == [1, 2]
    assert own_shares("mine:cut", [[0, 1, 3], [2]], 4, 2).share(0).tolist() == [0, 1, 3]
    with pytest.raises(InputError, match=r"data.partition: 'mine:cut' .* gives each of 2 UEs some of 4 samples"):
        own_shares("mine:cut", divided, 4, 2)
