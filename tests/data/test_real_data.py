"""The published data themselves, where they are in the cache, against the hashes of the published files."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest
from numpy.typing import NDArray

from fedslot.data import cache, load
from fedslot.data.sources import outline


@pytest.fixture(autouse=True)
def in_cache(name: str) -> None:
    """Skip where the data set of the test has not been fetched; a damaged one is for the test to find."""
    if not cache.path(name).exists():
        pytest.skip(f"{name} is not in the cache {cache.folder()}; type: fedslot data fetch {name}")


def _idx_md5(values: NDArray[np.uint8]) -> str:
    header = bytes([0, 0, 8, values.ndim]) + b"".join(n.to_bytes(4, "big") for n in values.shape)
    return hashlib.md5(header + values.tobytes(), usedforsecurity=False).hexdigest()


@pytest.mark.parametrize(
    ("name", "published"),
    [
        (
            "mnist",
            {
                "x_train": "6bbc9ace898e44ae57da46a324031adb",
                "y_train": "a25bea736e30d166cdddb491f175f624",
                "x_test": "2646ac647ad5339dbf082846283269ea",
                "y_test": "27ae3e4e09519cfbb04c329615203637",
            },
        ),
        (
            "fashion-mnist",
            {
                "x_train": "f4a8712d7a061bf5bd6d2ca38dc4d50a",
                "y_train": "9018921c3c673c538a1fc5bad174d6f9",
                "x_test": "8181f5470baa50b63fa0f6fddb340f0a",
                "y_test": "15d484375f8d13e6eb1aabb0c3f46965",
            },
        ),
    ],
)
def test_arrays_make_the_published_idx_files(name: str, published: dict[str, str]) -> None:
    arrays = cache.read(name)
    files = {key: _idx_md5(array[:, 0] if array.ndim == 4 else array) for key, array in arrays.items()}
    assert files == published


@pytest.mark.parametrize("name", ["cifar10"])
def test_arrays_make_the_published_cifar_batches(name: str) -> None:
    arrays = cache.read(name)
    images = np.concatenate([arrays["x_train"], arrays["x_test"]]).reshape(6, 10_000, 3072)
    labels = np.concatenate([arrays["y_train"], arrays["y_test"]]).reshape(6, 10_000, 1)
    files = [
        hashlib.md5(np.concatenate(batch, axis=1).tobytes(), usedforsecurity=False).hexdigest()
        for batch in zip(labels, images, strict=True)
    ]
    assert files == [
        "5dd7e06a14cb22eb9f671a540d1b7c25",
        "5ea93a67294ea407fff1d09f752e9692",
        "942cd6a4bcdd0dd3c604fbe906cb4421",
        "ae636b3ba5c66a11e91e8cb52e771fcb",
        "53f37980c15c3d472c316c40844f3f0d",
        "803d5f7f4d78ea53de84dbe85f74fb6d",
    ]


@pytest.mark.parametrize("name", ["smartwatch"])
def test_a_watch_is_worn_by_one_person_on_one_side(name: str) -> None:
    """Ten people, two sides, seven exercises, each recorded once: a tenth of a minute or more to train on."""
    data = load(name)
    assert (data.classes, data.x_train.shape[1:]) == (7, (1, 100, 6))
    assert data.ue_train is not None
    table = np.zeros((20, 7), dtype=int)
    np.add.at(table, (data.ue_train, data.y_train), 1)
    assert table.min() >= 5
    assert outline(name).ues == 20
    # half of each window is the first half of the next one of the same recording
    same = (data.ue_train[1:] == data.ue_train[:-1]) & (data.y_train[1:] == data.y_train[:-1])
    halves = (data.x_train[:-1, 0, 50:] == data.x_train[1:, 0, :50]).all(axis=(1, 2))
    assert np.array_equal(halves, same)
    assert not (data.x_test[:, 0, :50][:, None] == data.x_train[::400, 0, 50:]).all(axis=(2, 3)).any()
