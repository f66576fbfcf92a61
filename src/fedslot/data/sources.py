"""The data sets by name, or a user's own `.npz`: float32 features, labels or numbers, training and test parts."""

from __future__ import annotations

import zipfile
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from fedslot.data import cache, formats
from fedslot.data.catalogue import CATALOGUE
from fedslot.data.formats import OWNERS
from fedslot.support.errors import InputError, one_of
from fedslot.support.files import file_digest, file_version

NAMES = ("digits", *CATALOGUE)

_DIGITS = Path(__file__).with_name("digits.npz")  # its source and licence are in digits.md
_DIGITS_TRAIN = 1000
_FIELD = "data.dataset"


@dataclass(frozen=True, eq=False)
class Dataset:
    """Labelled samples for training and for testing, as read-only arrays.

    x_train, x_test: (n, channels, height, width) for images, (n, d) for other features.
    y_train, y_test: (n,), classes from 0 to `classes` - 1, or the numbers of a regression in float32.
    ue_train: (n,), the UE that has each training sample, from 0 without gaps; None if the scenario divides them.
    """

    name: str
    x_train: NDArray[np.float32]
    y_train: NDArray[Any]
    x_test: NDArray[np.float32]
    y_test: NDArray[Any]
    ue_train: NDArray[np.int64] | None = None

    def __post_init__(self) -> None:
        for array in (self.x_train, self.y_train, self.x_test, self.y_test, self.ue_train):
            if array is not None:
                array.setflags(write=False)  # many runs share one copy

    @property
    def classes(self) -> int:
        """Number of classes; 0 if the targets are numbers."""
        return 0 if self.y_train.dtype.kind == "f" else int(self.y_train.max()) + 1

    @property
    def outputs(self) -> int:
        """Number of outputs that a network needs: one per class, or a number."""
        return self.classes or 1


def load(name_or_path: str) -> Dataset:
    """Load a data set: `digits`, which is embedded, a fetched one, or your own file that ends in `.npz`.

    An `.npz` holds `x_train`, `y_train`, `x_test`, `y_test`: features as (n, d), (n, height, width) or
    (n, channels, height, width), where uint8 is divided by 255, and integer labels from 0 without gaps, or targets
    of float32 or float64 for a regression. It may hold `ue_train`, the UE that has each training sample.

    >>> digits = load("digits")
    >>> digits.x_train.shape, digits.x_test.shape, digits.classes
    ((1000, 1, 8, 8), (797, 1, 8, 8), 10)
    """
    if name_or_path == "digits":
        return _digits()
    file = cache.path(name_or_path) if name_or_path in CATALOGUE else _own_file(name_or_path)
    return _load(name_or_path, file, *file_version(file))


@dataclass(frozen=True)
class Outline:
    """Sizes of a data set.

    train, test: numbers of samples. shape: of one sample. classes: number of classes, 0 for targets that are numbers.
    ues: number of UEs among which `ue_train` divides it; None if the scenario does.
    """

    train: int
    test: int
    shape: tuple[int, ...]
    classes: int
    ues: int | None = None

    @property
    def outputs(self) -> int:
        """Number of outputs that a network needs: one per class, or a number."""
        return self.classes or 1


def outline(name_or_path: str) -> Outline:
    """Return the sizes of a data set; those that can be fetched need not be there, a file of one's own is read.

    >>> outline("mnist").train, outline("digits").shape
    (60000, (1, 8, 8))
    """
    if name_or_path in CATALOGUE:
        entry = CATALOGUE[name_or_path]
        return Outline(entry.train, entry.test, entry.shape, entry.classes, entry.ues)
    version = (0, 0) if name_or_path == "digits" else file_version(_own_file(name_or_path))
    return _outline(name_or_path, *version)


@lru_cache(maxsize=64)  # combinations of a sweep may take turns with several files
def _outline(name: str, changed: int, size: int) -> Outline:
    data = load(name)
    ues = None if data.ue_train is None else int(data.ue_train.max()) + 1
    return Outline(len(data.y_train), len(data.y_test), data.x_train.shape[1:], data.classes, ues)


def check_exists(name_or_path: str) -> None:
    """Refuse a data set that is absent, without reading it."""
    if name_or_path in CATALOGUE:
        cache.check_exists(name_or_path)
    elif name_or_path != "digits" and not _own_file(name_or_path).is_file():
        _refuse(name_or_path, "a file that exists")


def divides_itself(name_or_path: str) -> bool:
    """Return whether a data set says itself which UE has which samples, without reading them."""
    if name_or_path in CATALOGUE:
        return CATALOGUE[name_or_path].ues is not None
    try:
        with zipfile.ZipFile(_own_file(name_or_path)) as archive:
            return f"{OWNERS}.npy" in archive.namelist()
    except (OSError, ValueError, zipfile.BadZipFile):  # no file of one's own, or a damaged one
        return False


def digest(name_or_path: str) -> str | None:
    """Return the SHA-256 of a user's own file; None for data sets by name, which are checked when they are read."""
    if name_or_path in NAMES:
        return None
    try:
        return file_digest(_own_file(name_or_path))
    except OSError:
        _refuse(name_or_path, "a file that exists and may be read")


@lru_cache(maxsize=1)  # runs of a sweep share a data set; two of CIFAR-10's size would take too much memory
def _load(name: str, file: Path, changed: int, size: int) -> Dataset:
    """Load from `file`; `changed` and `size` are part of the cache key, so that a new version is read again."""
    if name not in CATALOGUE:
        return _own(name, file)
    arrays = cache.read(name)
    x_train, x_test = (_features(arrays.pop(key)) for key in ("x_train", "x_test"))
    y_train, y_test = (arrays[key].astype(np.int64) for key in ("y_train", "y_test"))
    owners = arrays[OWNERS].astype(np.int64) if OWNERS in arrays else None
    return Dataset(name, x_train, y_train, x_test, y_test, owners)


@lru_cache(maxsize=1)
def _digits() -> Dataset:
    published = formats.npz(_DIGITS, ("pixels", "labels"))
    x = (published["pixels"] / 16).astype(np.float32)[:, None]
    y = published["labels"].astype(np.int64)
    # Every 1.797th sample of the list sorted by class: a stratified split without randomness.
    by_class = np.argsort(y, kind="stable")
    rank = np.arange(len(y))
    chosen = (rank + 1) * _DIGITS_TRAIN // len(y) > rank * _DIGITS_TRAIN // len(y)
    train, test = np.sort(by_class[chosen]), np.sort(by_class[~chosen])
    return Dataset("digits", x[train], y[train], x[test], y[test])


def _own(name: str, file: Path) -> Dataset:
    """Load a user's `.npz` and refuse every defect that would make a run fail later."""
    arrays = _read_npz(name, file)
    for part in ("train", "test"):
        x, y = arrays[f"x_{part}"], arrays[f"y_{part}"]
        if x.ndim not in (2, 3, 4) or x.dtype.kind not in "buif":
            _refuse(name, f"x_{part} of numbers in 2, 3 or 4 dimensions, not {x.dtype} of shape {x.shape}")
        if y.ndim != 1 or y.dtype.kind not in "iuf":
            _refuse(name, f"y_{part} of integers (classes) or floats in 1 dimension, not {y.dtype} of shape {y.shape}")
        if x.size == 0:
            _refuse(name, f"x_{part} that is not empty")
        if len(x) != len(y):
            _refuse(name, f"one label for each sample, not {len(y)} in y_{part} for {len(x)} in x_{part}")
    x_train, y_train, x_test, y_test = (arrays[key] for key in formats.ARRAYS)
    shape = x_train.shape[1:]
    if shape != x_test.shape[1:]:
        _refuse(name, f"samples of one shape, not {shape} in x_train and {x_test.shape[1:]} in x_test")
    if (x_train.dtype == np.uint8) != (x_test.dtype == np.uint8):
        kinds = f"{x_train.dtype} in x_train and {x_test.dtype} in x_test"
        _refuse(name, f"samples of one scale: uint8, which is divided by 255, in both parts or in none, not {kinds}")
    if len(shape) == 3 and shape[2] <= 4 < shape[0]:
        _refuse(name, f"images with the channels first, not of shape {shape}")
    y_train, y_test = _targets(name, y_train, y_test)
    x_train, x_test = _features(x_train), _features(x_test)
    if not (np.isfinite(x_train).all() and np.isfinite(x_test).all()):
        _refuse(name, "features that are finite in float32, without NaN")
    if len(shape) == 2:
        x_train, x_test = x_train[:, None], x_test[:, None]
    owners = arrays.get(OWNERS)
    if owners is not None:
        if owners.shape != y_train.shape or owners.dtype.kind not in "iu":
            kind = f"{owners.dtype} of shape {owners.shape}"
            _refuse(name, f"{OWNERS} of one integer for each of the {len(y_train)} training samples, not {kind}")
        if not _counts_from_0(np.unique(owners)):
            _refuse(name, f"{OWNERS} with UEs numbered from 0 without gaps, since each has a sample at least")
        owners = owners.astype(np.int64)
    return Dataset(name, x_train, y_train, x_test, y_test, owners)


def _targets(name: str, y_train: NDArray[Any], y_test: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return the targets of a user's file: classes as int64, or numbers as float32."""
    if (y_train.dtype.kind == "f") != (y_test.dtype.kind == "f"):
        _refuse(name, f"y_train and y_test of one kind, not {y_train.dtype} and {y_test.dtype}")
    if y_train.dtype.kind == "f":
        with np.errstate(over="ignore"):  # overflow gives infinity
            numbers = y_train.astype(np.float32), y_test.astype(np.float32)
        if not all(np.isfinite(part).all() for part in numbers):
            _refuse(name, "targets that are finite in float32, without NaN")
        return numbers
    classes = np.unique(y_train)
    if not _counts_from_0(classes) or len(classes) < 2:
        _refuse(name, "y_train with at least two classes, numbered from 0 without gaps; a regression has floats")
    if not np.isin(y_test, classes).all():
        _refuse(name, f"y_test with classes of y_train only, 0 to {classes[-1]}")
    return y_train.astype(np.int64), y_test.astype(np.int64)


def _counts_from_0(numbers: NDArray[Any]) -> bool:
    """Return whether sorted, different integers are 0, 1, 2, ..."""
    return bool(numbers[0] == 0 and numbers[-1] == len(numbers) - 1)


def say_source(name: str) -> str:
    """Return the name of a data set, or of a user's file without its folder, for those who read results elsewhere.

    >>> say_source("digits"), say_source("/home/me/secret/own.npz")
    ('digits', 'own.npz')
    """
    return Path(name).name


def _own_file(path: str) -> Path:
    if not path.endswith(".npz"):
        _refuse(path, one_of(path, NAMES, ", or a file that ends in .npz"))
    return Path(path).expanduser().absolute()


def _read_npz(name: str, file: Path) -> dict[str, NDArray[Any]]:
    try:
        arrays = formats.npz(file, (*formats.ARRAYS, OWNERS))
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        _refuse(name, "a file that exists")
    except PermissionError:
        _refuse(name, "a file that may be read")
    except MemoryError as error:
        _refuse(name, f"a file whose arrays fit into memory ({str(error) or 'no more could be had'})")
    except Exception:  # a damaged archive can raise any exception, an array of objects a ValueError
        _refuse(name, "an intact .npz of plain arrays, as numpy.savez writes it, without Python objects")
    if missing := [key for key in formats.ARRAYS if key not in arrays]:
        _refuse(name, f"an .npz with {', '.join(formats.ARRAYS)}; {', '.join(missing)} is missing")
    return arrays


def _features(x: NDArray[Any]) -> NDArray[np.float32]:
    """Return features as float32, with bytes scaled to [0, 1], without a float64 copy."""
    if x.dtype == np.uint8:
        scaled: NDArray[np.float32] = np.divide(x, 255, dtype=np.float32)
        return scaled
    with np.errstate(over="ignore"):  # overflow gives infinity, which is refused later
        return x.astype(np.float32, copy=False)


def _refuse(name: str, allowed: str) -> NoReturn:
    raise InputError(_FIELD, name, allowed)
