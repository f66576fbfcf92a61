from __future__ import annotations

import hashlib
import tempfile
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedslot.data.partition import Partition
from fedslot.data.sources import Dataset, divides_itself, load
from fedslot.support.errors import InputError, RefusedError

Arrays = dict[str, Any]


def good() -> Arrays:
    """Return three classes of features (n, 4), the smallest thing that everything is right with."""
    rng = np.random.default_rng(1)
    return {
        "x_train": rng.normal(size=(9, 4)),
        "y_train": np.arange(9) % 3,
        "x_test": rng.normal(size=(4, 4)),
        "y_test": np.array([0, 2, 1, 1]),
    }


def saved(folder: Path, arrays: Arrays) -> str:
    np.savez(folder / "own.npz", **arrays)
    return str(folder / "own.npz")


# Published by UCI for the test set of "Optical Recognition of Handwritten Digits", with 64 pixels from 0 to 16.
PUBLISHED_COUNTS = [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]
# The first image of the list, as scikit-learn's tutorial prints it.
PUBLISHED_IMAGE = """
0 0 5 13 9 1 0 0   0 0 13 15 10 15 5 0   0 3 15 2 0 11 8 0   0 4 12 0 0 8 8 0
0 5 8 0 0 9 8 0    0 4 11 0 1 12 7 0     0 2 14 5 10 12 0 0  0 0 6 13 10 0 0 0
"""


def test_digits_are_the_published_ones_scaled_to_one() -> None:
    digits = load("digits")
    x, y = np.concatenate([digits.x_train, digits.x_test]), np.concatenate([digits.y_train, digits.y_test])
    assert (x.shape, x.dtype, y.dtype) == ((1797, 1, 8, 8), np.float32, np.int64)
    assert np.bincount(y).tolist() == PUBLISHED_COUNTS
    assert set((x * 16).flat) == set(range(17))
    first = np.array(PUBLISHED_IMAGE.split(), float).reshape(8, 8) / 16
    assert [int(label) for image, label in zip(x[:, 0], y, strict=True) if np.array_equal(image, first)] == [0]


def test_digits_of_all_versions_are_the_same() -> None:
    """The hash was taken of the arrays that scikit-learn's `load_digits` gave."""
    digits = load("digits")
    whole = hashlib.sha256()
    for array in (digits.x_train, digits.y_train, digits.x_test, digits.y_test):
        whole.update(f"{array.dtype}{array.shape}".encode() + array.tobytes())
    assert whole.hexdigest() == "ba5bf25cf21a240d61016b33d2026ee9a12647ef8e6a4dbdba76fcdaf2349f87"


def test_arrays_cannot_be_written(tmp_path: Path) -> None:
    for data in (load("digits"), load(saved(tmp_path, good()))):
        for array in (data.x_train, data.y_train, data.x_test, data.y_test):
            with pytest.raises(ValueError, match="read-only"):
                array[0] = 0


def test_own_features(tmp_path: Path) -> None:
    arrays = good()
    data = load(saved(tmp_path, arrays))
    assert isinstance(data, Dataset)
    assert np.array_equal(data.x_train, arrays["x_train"].astype(np.float32))
    assert data.y_test.tolist() == [0, 2, 1, 1]
    assert (data.x_train.dtype, data.y_train.dtype, data.classes) == (np.float32, np.int64, 3)


@pytest.mark.parametrize(
    ("given", "loaded"),
    [
        ((6,), (6,)),
        ((5, 7), (1, 5, 7)),
        ((1, 5, 7), (1, 5, 7)),
        ((3, 5, 7), (3, 5, 7)),
        ((3, 2, 3), (3, 2, 3)),
    ],
)
def test_own_images_of_bytes_are_scaled(tmp_path: Path, given: tuple[int, ...], loaded: tuple[int, ...]) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (9, *given), dtype=np.uint8)
    pixels.flat[:2] = 0, 255
    data = load(saved(tmp_path, good() | {"x_train": pixels, "x_test": pixels[:4]}))
    assert data.x_train.shape == (9, *loaded)
    assert (data.x_train.flat[0], data.x_train.flat[1]) == (0, 1)
    assert np.array_equal(np.rint(data.x_train.astype(float) * 255), pixels.reshape(9, *loaded))


def test_own_file_is_loaded_once_until_it_changes(tmp_path: Path) -> None:
    name = saved(tmp_path, good())
    first = load(name)
    assert load(name) is first
    saved(tmp_path, {key: np.repeat(array, 2, axis=0) for key, array in good().items()})
    assert len(load(name).x_train) == 18


X, Y, Y_TEST = (good()[key] for key in ("x_train", "y_train", "y_test"))
LAST = {"x_train": np.zeros((9, 8, 8, 3)), "x_test": np.zeros((4, 8, 8, 3))}
DEFECTS: list[tuple[Arrays, str]] = [
    ({"y_test": None}, "y_test is missing"),
    ({"x_train": np.zeros(9)}, "x_train of numbers in 2, 3 or 4 dim"),
    ({"x_test": np.zeros((4, 1, 1, 1, 1))}, "x_test of numbers in 2, 3 or 4"),
    ({"y_train": np.eye(9)}, "y_train of integers (classes) or floats in 1 dimension"),
    ({"y_train": Y[:8]}, "not 8 in y_train for 9 in x_train"),
    ({"y_test": Y}, "not 9 in y_test for 4 in x_test"),
    ({"x_test": np.zeros((0, 4)), "y_test": Y[:0]}, "x_test that is not empty"),
    ({"x_train": np.zeros((9, 0))}, "x_train that is not empty"),
    ({"y_train": Y + 0.5}, "y_train and y_test of one kind"),
    ({"y_train": Y - 1}, "numbered from 0 without gaps"),
    ({"y_train": Y + 1}, "numbered from 0 without gaps"),
    ({"y_train": Y * 2}, "numbered from 0 without gaps"),
    ({"y_train": np.where(Y == 0, -1, Y)}, "numbered from 0 without gaps"),
    ({"y_train": Y * 0}, "at least two classes"),
    ({"y_test": Y_TEST + 1}, "y_test with classes of y_train only, 0 to 2"),
    ({"y_test": Y_TEST - 1}, "y_test with classes of y_train only"),
    ({"x_train": np.full((9, 4), np.nan)}, "finite"),
    ({"x_test": np.full((4, 4), -np.inf)}, "finite"),
    ({"x_test": np.full((4, 4), 1e300)}, "finite in float32"),
    ({"x_train": X.astype(object)}, "without Python objects"),
    ({"x_test": np.zeros((4, 5))}, "(4,) in x_train and (5,) in x_test"),
    ({"x_test": np.zeros((4, 4, 1))}, "samples of one shape"),
    (LAST, "channels first, not of shape (8, 8, 3)"),
    ({"x_train": np.ones((9, 4), np.uint8)}, "uint8, which is divided by 255, in both parts or in none"),
    ({"x_test": np.ones((4, 4), np.uint8)}, "uint8, which is divided by 255, in both parts or in none"),
    ({"ue_train": np.zeros(9)}, "ue_train of one integer for each of the 9 training samples, not float64"),
    ({"ue_train": np.zeros(8, int)}, "ue_train of one integer"),
    ({"ue_train": np.zeros((9, 1), int)}, "ue_train of one integer"),
    ({"ue_train": np.array(["a"] * 9)}, "ue_train of one integer"),
    ({"ue_train": np.arange(9) + 1}, "ue_train with UEs numbered from 0 without gaps"),
    ({"ue_train": np.arange(9) - 1}, "ue_train with UEs numbered from 0 without gaps"),
    ({"ue_train": np.array([0, 0, 0, 2, 2, 2, 3, 3, 3])}, "ue_train with UEs numbered from 0 without gaps"),
]
for kind in ("datetime64[s]", "timedelta64[s]", "S3", "U3", "complex128", [("a", "i4")], "V4"):
    DEFECTS.append(({"x_train": np.zeros((9, 4), kind)}, "x_train of numbers"))
    DEFECTS.append(({"y_test": np.zeros(4, kind)}, "y_test of integers"))


@pytest.mark.parametrize(("changes", "message"), DEFECTS)
def test_own_defects_are_refused_in_one_line(tmp_path: Path, changes: Arrays, message: str) -> None:
    arrays = {name: array for name, array in {**good(), **changes}.items() if array is not None}
    name = saved(tmp_path, arrays)
    with pytest.raises(InputError) as refused:
        load(name)
    assert message in str(refused.value)
    assert (refused.value.field, refused.value.value) == ("data.dataset", name)
    assert "\n" not in str(refused.value)


def test_own_file_that_is_no_archive(tmp_path: Path) -> None:
    missing = tmp_path / "missing.npz"
    with pytest.raises(InputError, match="a file that exists"):
        load(str(missing))
    (tmp_path / "folder.npz").mkdir()
    with pytest.raises(InputError, match="a file that exists"):
        load(str(tmp_path / "folder.npz"))
    for content in (b"", b"x_train", b"PK\x03\x04", np.zeros(3).tobytes()):
        (tmp_path / "odd.npz").write_bytes(content)
        with pytest.raises(InputError, match=r"an intact \.npz"):
            load(str(tmp_path / "odd.npz"))
    with (tmp_path / "single.npz").open("wb") as file:
        np.save(file, np.zeros(3))
    with pytest.raises(InputError, match=r"an intact \.npz"):
        load(str(tmp_path / "single.npz"))


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_own_file_with_any_byte_changed_gives_the_data_or_a_refusal(data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as folder:
        name = saved(Path(folder), good())
        content = bytearray(Path(name).read_bytes())
        place = data.draw(st.integers(0, len(content) - 1))
        content[place] ^= data.draw(st.integers(1, 255))
        Path(name).write_bytes(content[: data.draw(st.sampled_from([len(content), place]))])
        try:
            loaded = load(name)
        except InputError:
            return
        # Not refused: the byte belonged to the archive's metadata.
        assert np.array_equal(loaded.x_train, good()["x_train"].astype(np.float32))
        assert np.array_equal(loaded.y_test, good()["y_test"])


@pytest.mark.parametrize("name", ["", "mnits", "MNIST", "data.csv", "digits.npy"])
def test_unknown_name_lists_the_known(name: str) -> None:
    with pytest.raises(
        InputError, match=r"digits, mnist, fashion-mnist, cifar10, smartwatch, or a file that ends in \.npz"
    ):
        load(name)


@pytest.mark.parametrize("name", ["mnist", "fashion-mnist", "cifar10"])
def test_absent_data_says_what_to_type(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEDSLOT_DATA", str(tmp_path))
    with pytest.raises(RefusedError, match=f"type: fedslot data fetch {name}$"):
        load(name)


def test_ue_train_says_who_has_which_samples(tmp_path: Path) -> None:
    assert load(saved(tmp_path, good())).ue_train is None
    assert not divides_itself(str(tmp_path / "own.npz"))
    owners = np.array([2, 0, 1, 1, 0, 2, 2, 2, 0], dtype=np.uint8)
    data = load(saved(tmp_path, {**good(), "ue_train": owners}))
    assert data.ue_train is not None
    assert (data.ue_train.dtype, data.ue_train.tolist()) == (np.int64, owners.tolist())
    assert divides_itself(str(tmp_path / "own.npz"))
    assert not divides_itself("digits")
    partition = Partition.of(data.ue_train)
    assert [partition.share(ue).tolist() for ue in range(3)] == [[1, 4, 8], [2, 3], [0, 5, 6, 7]]
    assert partition.sizes.tolist() == [3, 2, 4]


@pytest.mark.parametrize("content", [b"", b"words", b"\x93NUMPY"])
def test_members_that_are_no_arrays_are_refused(tmp_path: Path, content: bytes) -> None:
    for member in ("x_train", "x_train.npy", "ue_train"):
        saved(tmp_path, {name: array for name, array in good().items() if name != member.partition(".")[0]})
        with zipfile.ZipFile(tmp_path / "own.npz", "a") as archive:
            archive.writestr(member, content)
        with pytest.raises(InputError, match="plain arrays, as numpy") as caught:
            load(str(tmp_path / "own.npz"))
        assert "\n" not in str(caught.value)


def test_an_archive_larger_than_the_memory_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Zeros take a thousandth of their size in an archive."""
    np.savez_compressed(tmp_path / "bomb.npz", x_train=np.zeros((1000, 1000)))
    assert (tmp_path / "bomb.npz").stat().st_size < 100_000
    monkeypatch.setattr("fedslot.data.formats.memory", lambda: 15_000_000)
    with pytest.raises(InputError, match=r"arrays fit into memory \(0\.0 GB, and this machine has 0\.0 GB\)"):
        load(str(tmp_path / "bomb.npz"))
