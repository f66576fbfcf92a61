"""Folders of results: which may be written to, by one process at a time, and files that are never half-written."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from filelock import AcquireReturnProxy, FileLock, Timeout

from fedslot.support.errors import RefusedError, nearest

LOCK = ".lock"
LEFTOVERS = ".*.[0-9]*.tmp"  # temporary files of a killed `write_atomically`
IMAGES = ("png", "pdf")
SYSTEM_FAULTS = {errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EMFILE, errno.ENFILE, errno.ENOMEM}


@dataclass(frozen=True)
class FolderKind:
    """A kind of results.

    name: what messages call it. marker: the file by which its folder is known.
    files: patterns of the other files in it, in the order in which they are written.
    runs: patterns of the run folders inside.
    """

    name: str
    marker: str
    files: tuple[str, ...]
    runs: tuple[str, ...] = ()


def _images(*names: str) -> tuple[str, ...]:
    return tuple(f"figures/{name}.{kind}" for name in names for kind in IMAGES)


def _events(folder: str) -> tuple[str, ...]:
    """Return the patterns of TensorBoard's event files."""
    return tuple(f"{folder}/{part}events.out.tfevents.*" for part in ("", "by_slots/"))


RUN = FolderKind(
    "run",
    "scenario.yaml",
    (
        "change.yaml",
        "changes.csv",
        "presence.json",
        "faults.csv",
        "frames.csv",
        "rounds.csv",
        "checkpoint.npz",
        "summary.json",
        *_events("tensorboard"),
    ),
)
COMPARISON = FolderKind(
    "comparison",
    "comparison.yaml",
    (
        *("comparison.csv", "differences.csv", "runs.csv"),
        *_images("accuracy_by_*", "slots_to_targets", "on_the_air"),
        "report.html",
        *_events("tensorboard/*"),
    ),
    ("runs/*",),
)
SWEEP = FolderKind(
    "sweep",
    "study.yaml",
    (
        *("runs.csv", "sweep.csv"),
        *_images("final_*", "*_at_horizon", "slots_to_*_max", "slots_to_*_frame", "slots_to_*_own"),
        *_events("tensorboard/*"),
    ),
    ("runs/*",),
)
REPRODUCTION = FolderKind(
    "reproduction",
    "reproduction.yaml",
    (*(f"images/reproduction/fig*.{kind}" for kind in IMAGES), "curves/reproduction/runs*.csv.gz", "reproduction.md"),
    ("runs/*", "runs-*-rounds/*"),
)
EQUAL_SLOTS = FolderKind(
    "study at equal slots",
    "equal-slots.yaml",
    (*(f"images/equal-slots/*.{kind}" for kind in IMAGES), "curves/equal-slots/*.csv.gz", "equal-slots*.md"),
    ("runs/*/runs/*",),
)
RANDOM_SETTINGS = FolderKind(
    "study of random settings",
    "random-settings.yaml",
    ("curves/random-settings/*.csv.gz", "random-settings.md"),
    ("runs/*/runs/*",),
)
ATTACK_STUDY = FolderKind(
    "study of attacks", "attacks.yaml", ("curves/attacks/*.csv.gz", "attacks.md"), ("runs/*/runs/*",)
)
KINDS = (COMPARISON, SWEEP, REPRODUCTION, EQUAL_SLOTS, RANDOM_SETTINGS, ATTACK_STUDY, RUN)


@dataclass(frozen=True)
class Claim:
    """The right to write into a folder, which no other process has until it is released or this process ends.

    begun: whether the results are new, in a folder that held none. made: whether the folder itself is new, too.
    """

    path: Path
    kind: FolderKind
    held: AcquireReturnProxy[FileLock]
    begun: bool
    made: bool

    def release(self) -> None:
        """Leave the folder to others."""
        self.held.lock.release()

    def withdraw(self) -> None:
        """Release the folder as it was: delete the results that were begun, unless there are runs among them."""
        if not self.begun or any(True for pattern in self.kind.runs for _ in self.path.glob(pattern)):
            self.release()
            return
        _delete(self.path, self.kind)
        (self.path / self.kind.marker).unlink(missing_ok=True)
        self.release()
        (self.path / LOCK).unlink(missing_ok=True)
        if self.made:
            _remove_if_empty(self.path)

    def __enter__(self) -> Claim:
        return self

    def __exit__(self, *error: object) -> None:
        self.release()


def claim(
    path: Path,
    kind: FolderKind,
    description: str,
    check: Callable[[], object],
    *,
    resume: bool = False,
    force: bool = False,
) -> Claim:
    """Create a folder for results of one kind, or take one that is empty or holds results of this kind.

    description: the content of the marker. check: called to refuse results that cannot be continued.
    resume: continue the results in the folder. force: delete these results, and nothing else in the folder.
    """
    if resume and force:
        raise RefusedError("--resume continues what a folder holds, --force deletes it; give one of them")
    with refusing(path):
        refuse_foreign(path, kind, resume or force)
        made = not path.exists()
        path.mkdir(parents=True, exist_ok=True)
        held = lock(path)
        try:
            refuse_foreign(path, kind, resume or force)  # again: nothing changes from now on
            for file in path.glob(LEFTOVERS):
                file.unlink(missing_ok=True)
            if force:
                _delete(path, kind)
            goes_on = not force and (path / kind.marker).exists()
            if goes_on:
                check()
            write_atomically(path / kind.marker, description)
        except BaseException:
            held.lock.release()
            raise
    return Claim(path, kind, held, begun=not goes_on, made=made)


def refuse_foreign(path: Path, kind: FolderKind, ours: bool) -> None:
    """Refuse a folder that is not empty, unless results of this kind may be there (`ours`) and are."""
    if path.exists() and not path.is_dir():
        raise RefusedError(f"{path} is a file; give a folder for the results")
    if not path.is_dir() or set(path.iterdir()) <= {path / LOCK, *path.glob(LEFTOVERS)}:
        return
    holds = next((other.name for other in KINDS if (path / other.marker).is_file()), "other things")
    if holds != kind.name:
        what = f"a {holds}, not" if holds != "other things" else f"{holds} than"
        raise RefusedError(f"{path} holds {what} a {kind.name}; give a new folder")
    if not ours:
        raise RefusedError(
            f"{path} holds a {kind.name} already; continue it with --resume, start over with --force, "
            "or give a new folder"
        )


@contextmanager
def refusing(path: Path) -> Iterator[None]:
    """Turn the errors of a path that cannot be used into one line; the system's own faults, as a full disk, pass."""
    try:
        yield
    except OSError as error:
        if error.errno in SYSTEM_FAULTS:
            raise
        raise RefusedError(f"{path} cannot be used ({error.strerror}); give another folder") from None


def no_folder(path: Path) -> RefusedError:
    """Return the error about a folder of results that is not there; it names a folder beside it with a similar name."""
    beside = [folder.name for folder in path.parent.iterdir() if folder.is_dir()] if path.parent.is_dir() else []
    near = nearest(path.name, beside)
    hint = f"; did you mean {path.with_name(near)}?" if near else ""
    return RefusedError(f"{path} is no folder; give the folder that --out named{hint}")


def write_atomically(file: Path, content: str | bytes) -> None:
    """Write a file completely or not at all: write a temporary file beside it, then rename that."""
    temporary = file.with_name(f".{file.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("wb") as stream:
            stream.write(content.encode() if isinstance(content, str) else content)
            stream.flush()
            os.fsync(stream.fileno())
        temporary.replace(file)
    except BaseException as error:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        if isinstance(error, OSError):
            error.filename = str(file)  # writing tells none, and the temporary one says little
        raise


def lock(path: Path) -> AcquireReturnProxy[FileLock]:
    """Lock a folder, for a `with` block. The system releases the lock of a process that ends; the file stays."""
    try:
        return FileLock(path / LOCK).acquire(timeout=0)
    except Timeout:
        raise RefusedError(f"{path} is in use by another process; wait for its end or give another folder") from None


def _delete(path: Path, kind: FolderKind) -> None:
    """Delete the results of one kind in a folder, but not the marker, so that the folder is known as ours."""
    for pattern in kind.runs:
        for run in sorted(path.glob(pattern)):
            if (run / RUN.marker).is_file():
                with lock(run):
                    _delete(run, RUN)
                    (run / RUN.marker).unlink()
                (run / LOCK).unlink(missing_ok=True)
                _remove_if_empty(run)
    for pattern in reversed(kind.files):
        for file in path.glob(pattern):
            file.unlink()
    for pattern in {*kind.files, *kind.runs}:
        for parent in list(Path(pattern).parents)[:-1]:
            for folder in path.glob(str(parent)):
                _remove_if_empty(folder)


def _remove_if_empty(folder: Path) -> None:
    with suppress(OSError):  # others have files there
        folder.rmdir()
