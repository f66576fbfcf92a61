"""Poisoned samples by hand: labels, patterns and goals."""

from __future__ import annotations

import numpy as np
import pytest

from fedslot import InputError
from fedslot.attacks.poisoning import Backdoor, LabelFlip

X = np.linspace(0, 0.9, 8 * 2 * 4 * 4, dtype=np.float32).reshape(8, 2, 4, 4)
Y = np.array([0, 1, 2, 3, 0, 1, 2, 3])


def test_labels_are_mirrored() -> None:
    x, y = LabelFlip().poison((X, Y), 4, np.random.default_rng(0))
    assert x is X
    assert y.tolist() == [3, 2, 1, 0, 3, 2, 1, 0]
    assert LabelFlip().goal((X, Y), 4)[1].tolist() == y.tolist()


def test_a_share_of_the_samples_gets_the_pattern_and_the_target() -> None:
    before = X.copy()
    x, y = Backdoor(target=2, size=2, share=0.5).poison((X, Y), 4, np.random.default_rng(0))
    marked = (x[:, :, -2:, -2:] == 1).all(axis=(1, 2, 3))
    assert marked.sum() == 4
    assert (y == np.where(marked, 2, Y)).all()
    assert (x[~marked] == X[~marked]).all()
    inside = np.zeros((4, 4), dtype=bool)
    inside[2:, 2:] = True
    assert (x[:, :, ~inside] == X[:, :, ~inside]).all()
    assert (before == X).all(), "the samples of honest UEs stay as they are"


def test_the_goal_is_the_target_for_all_others_with_the_pattern() -> None:
    x, y = Backdoor(target=2, size=3).goal((X, Y), 4)
    assert y.tolist() == [2] * 6
    assert (x[..., -3:, -3:] == 1).all()
    assert (x[:, :, 0] == X[Y != 2][:, :, 0]).all()


def test_features_that_are_no_images_have_the_pattern_in_the_last_of_them() -> None:
    x, _ = Backdoor(size=2, share=1.0).poison((X.reshape(8, 32), Y), 4, np.random.default_rng(0))
    assert (x[:, -4:] == 1).all()
    assert (x[:, :-4] == X.reshape(8, 32)[:, :-4]).all()


def test_a_target_that_is_no_class_is_refused() -> None:
    with pytest.raises(
        InputError, match=r"fleet\.attack\.options\.target: 4 is not allowed; it must be a class, from 0"
    ):
        Backdoor(target=4).poison((X, Y), 4, np.random.default_rng(0))
