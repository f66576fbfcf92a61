"""The partitions of benchmarks, against their definitions in NIID-Bench (Li et al. 2022)."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedslot.data.label_skew import iid, label_dirichlet, label_quantity
from fedslot.fleet import Fleet
from fedslot.scenario import Scenario
from fedslot.support.errors import InputError


def _table(labels: np.ndarray, shares: list[np.ndarray]) -> np.ndarray:
    """(K, C) samples of each label that each UE has."""
    return np.array([np.bincount(labels[share], minlength=labels.max() + 1) for share in shares])


def _rng(seed: int) -> np.random.Generator:
    return np.random.default_rng(seed)


@given(st.integers(1, 60), st.integers(0, 200), st.integers(0, 9))
def test_iid_shares_are_equal_and_use_every_sample(ues, more, seed):
    labels = np.arange(ues + more) % 4
    shares = iid(labels, ues, _rng(seed))
    sizes = [len(share) for share in shares]
    assert len(shares) == ues
    assert max(sizes) - min(sizes) <= 1
    assert np.array_equal(np.sort(np.concatenate(shares)), np.arange(len(labels)))


def test_iid_shares_do_not_go_by_label():
    """The chi-squared statistic of the table has the mean and variance of independence: df and 2 df."""
    labels, ues = np.sort(np.arange(20_000) % 10), 40
    table = _table(labels, iid(labels, ues, _rng(0)))
    expected = 20_000 / ues / 10
    df = (ues - 1) * 9
    assert abs(((table - expected) ** 2 / expected).sum() - df) < 4 * np.sqrt(2 * df)


@settings(max_examples=60)
@given(st.integers(2, 12), st.data())
def test_each_ue_has_as_many_labels_as_asked_and_owners_share_equally(classes, data):
    labels = _rng(classes).permutation(np.repeat(np.arange(classes), 50))
    ues = data.draw(st.integers(1, 40))
    count = data.draw(st.integers(1, classes))
    table = _table(labels, label_quantity(labels, ues, _rng(ues), labels_per_ue=count))
    assert ((table > 0).sum(axis=1) == count).all()
    for label in range(classes):
        owned = table[table[:, label] > 0, label]
        if len(owned):
            assert owned.sum() == 50
            assert owned.max() - owned.min() <= 1
    if ues >= classes:  # UE k has label k modulo the number of labels
        assert all(table[ue, ue % classes] for ue in range(ues))
        assert table.sum() == len(labels)


def test_the_other_labels_are_drawn_evenly():
    """With two of three labels, the second label is either of the two others with probability 1/2."""
    labels = np.repeat(np.arange(3), 4000)
    table = _table(labels, label_quantity(labels, 3000, _rng(1), labels_per_ue=2)) > 0
    others = table[::3, 1].mean()  # of the UEs that have label 0 first
    assert abs(others - 0.5) < 4 * 0.5 / np.sqrt(1000)


def test_labels_need_samples_for_all_their_owners():
    with pytest.raises(InputError, match=r"data.ues: 9 is not allowed; it must be fewer: \d UEs have label \d"):
        label_quantity(np.arange(6) % 2, 9, _rng(0), labels_per_ue=1)
    with pytest.raises(InputError, match=r"data.partition.options.labels_per_ue: 11 .* at most 10, the number of lab"):
        _fleet(partition={"name": "label-quantity", "options": {"labels_per_ue": 11}})


@settings(max_examples=30)
@given(st.sampled_from([0.1, 0.5, 5.0]), st.integers(1, 12), st.integers(0, 9))
def test_each_sample_has_one_owner_and_each_ue_enough(alpha, ues, seed):
    labels = np.arange(1000) % 10
    shares = label_dirichlet(labels, ues, _rng(seed), alpha=alpha, least=5)
    assert np.array_equal(np.sort(np.concatenate(shares)), np.arange(1000))
    assert min(map(len, shares)) >= 5


def test_shares_of_the_first_label_are_dirichlet():
    """No UE is full at the first label: shares of two UEs are Beta(alpha, alpha), whose variance is 1/(4(2alpha+1))."""
    labels, alpha = np.repeat(np.arange(10), 100), 0.5
    first = [
        _table(labels, label_dirichlet(labels, 2, _rng(seed), alpha=alpha, least=1))[0, 0] / 100 for seed in range(2000)
    ]
    assert abs(np.mean(first) - 0.5) < 4 * np.sqrt(1 / 8 / 2000)
    assert abs(np.var(first) - 1 / 8) < 0.01


def test_a_ue_that_is_full_gets_nothing_more():
    """Two UEs: once one has half of all samples, all later labels go to the other."""
    labels = np.repeat(np.arange(10), 100)
    for seed in range(50):
        table = _table(labels, label_dirichlet(labels, 2, _rng(seed), least=1))
        before = np.cumsum(table, axis=1) - table  # samples that each UE had when a label was divided
        assert (table[before >= 500] == 0).all()


def test_impossible_wishes_are_refused():
    with pytest.raises(InputError, match="least: 11 is not allowed; it must be at most 10"):
        label_dirichlet(np.zeros(100, dtype=int), 10, _rng(0), least=11)
    with pytest.raises(InputError, match=r"least: 10 .* 1000 draws with alpha 0.001"):
        label_dirichlet(np.arange(200) % 2, 20, _rng(0), alpha=0.001)
    with pytest.raises(InputError, match=r"data.ues: 11 is not allowed; it must be at most 10, the training samples"):
        iid(np.arange(10), 11, _rng(0))


def _fleet(**data) -> Fleet:
    labels = np.arange(1000) % 10
    return Fleet.draw(Scenario(data={"ues": 20, **data}, frame={"slots": 10, "pull": 5}), labels)


@pytest.mark.parametrize("name", ["iid", "label-quantity", "label-dirichlet"])
def test_scenarios_name_them(name):
    fleet = _fleet(partition=name)
    assert fleet.sizes.sum() == 1000
    assert np.array_equal(fleet.shares.share(3), _fleet(partition=name).shares.share(3))
