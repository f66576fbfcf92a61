"""Parts by name, their options, parts of installed packages, and what a part must have; for all kinds alike."""

from __future__ import annotations

import hashlib
import json
from importlib import metadata
from pathlib import Path
from typing import Annotated, Any

import pytest
from pydantic import Field

from fedslot.parts.kind import Kind
from fedslot.parts.kinds import KINDS
from fedslot.support.errors import InputError, RefusedError


class Lamp:
    def __init__(
        self,
        place: str,
        *,
        watts: Annotated[float, Field(gt=0, le=100)] = 5.0,
        count: int = 1,
        colours: tuple[str, ...] = (),
        tint: str | None = None,
    ) -> None:
        if tint == "none":
            raise InputError("tint", tint, "a colour")
        if tint == "dark":
            raise InputError("room.light", tint, "bright")
        if tint == "broken":
            raise RuntimeError("no\nlight")
        self.place, self.watts, self.count, self.colours = place, watts, count, colours

    def shine(self) -> None: ...


class Torch(Lamp):
    def blink(self) -> None: ...


class Loose:
    def __init__(self, place: str, **options: object) -> None:
        self.options, self.shine = options, None


def needy(place: str, oil: int, untyped=3) -> Lamp:  # type: ignore[no-untyped-def]
    return Lamp(place)


def stone(place: str) -> int:
    return 3


def vase(place: str) -> Loose:
    made = Loose(place)
    del made.shine
    return made


LAMPS: Kind[Any] = Kind(
    "lamp",
    "a lamp",
    "fedslot.lamps",
    {"plain": f"{__name__}:Lamp", "loose": f"{__name__}:Loose", "needy": f"{__name__}:needy"},
    arguments=("place",),
    needs=("shine",),
    entailed={"blink": ("pace",)},
)


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A distribution that adds the lamp `neon`, another `plain`, and one that cannot be imported."""
    lines = ["neon = shop:Neon", "plain = shop:Neon", "gone = shop:Gone"]
    folder = tmp_path / "lampshop-2.5.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: lampshop\nVersion: 2.5\n")
    (folder / "entry_points.txt").write_text("\n".join(["[fedslot.lamps]", *lines, "[fedslot.other]", "x = shop:X"]))
    (tmp_path / "shop.py").write_text(f"from {__name__} import Lamp\nclass Neon(Lamp): pass\n")
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


def test_a_part_is_found_by_its_name_or_import_path() -> None:
    assert LAMPS.find("plain") is LAMPS.find(f"{__name__}:Lamp") is Lamp
    assert (list(LAMPS), "plain" in LAMPS, "neon" in LAMPS) == (["plain", "loose", "needy"], True, False)
    assert LAMPS.find("json:dumps") is json.dumps


@pytest.mark.parametrize(
    "name", ["", "plane", ":", ":x", "json:", "json:nothing", "no.such.module:x", ".:x", "math:pi"]
)
def test_all_else_is_refused_with_one_line_that_lists_what_there_is(name: str) -> None:
    with pytest.raises(InputError) as caught:
        LAMPS.find(name)
    assert str(caught.value).startswith(f"lamp.name: {name!r} is not allowed; it must be one of plain, loose, needy")
    assert ("did you mean plain?" in str(caught.value)) == (name == "plane")
    assert "\n" not in str(caught.value)


def test_modules_that_fail_are_told_in_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "leaving_module.py").write_text("import sys; sys.exit(0)")
    (tmp_path / "grumpy_module.py").write_text("raise ImportError('first line\\nsecond line')")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(RefusedError, match=r"a part of your own called sys\.exit\(0\)"):
        LAMPS.find("leaving_module:Leaving")
    with pytest.raises(InputError, match="first line second line"):
        LAMPS.find("grumpy_module:x")


def test_options_are_the_parameters_that_the_caller_does_not_pass() -> None:
    assert {name: option.default for name, option in LAMPS.options("plain").items()} == {
        "watts": 5.0, "count": 1, "colours": (), "tint": None,
    }  # fmt: skip
    made = LAMPS.make("plain", {"watts": 60, "colours": ["red", "blue"]}, "hall")
    assert (made.place, made.watts, made.count, made.colours) == ("hall", 60, 1, ("red", "blue"))
    assert LAMPS.make("loose", {"anything": [1]}, "hall").options == {"anything": [1]}
    assert [LAMPS.takes(name, "anything") for name in LAMPS] == [False, True, False]
    assert LAMPS.bind("plain", {"count": 2})("attic").count == 2


@pytest.mark.parametrize(
    ("name", "options", "field", "message"),
    [
        ("plain", {"wats": 1}, "lamp.options.wats", "left out, since plain takes watts, count, colours, tint; did you"),
        ("plain", {"watts": "much"}, "lamp.options.watts", "a number"),
        ("plain", {"watts": True}, "lamp.options.watts", "a number"),
        ("plain", {"watts": None}, "lamp.options.watts", "a number"),
        ("plain", {"watts": float("nan")}, "lamp.options.watts", "a finite number"),
        ("plain", {"watts": 0}, "lamp.options.watts", "greater than 0"),
        ("plain", {"watts": 101.0}, "lamp.options.watts", "less than or equal to 100"),
        ("plain", {"count": 1.5}, "lamp.options.count", "a whole number"),
        ("plain", {"colours": "red"}, "lamp.options.colours", "a tuple"),
        ("plain", {1: 2}, "lamp.options", "a word, as every option is"),
        ("plain", {"tint": "none"}, "lamp.options.tint", "a colour"),
        ("plain", {"tint": "dark"}, "room.light", "bright"),
        ("plain", {"tint": "broken"}, "lamp.name", "can be built from (place) and options {'tint': 'broken'} (Runtime"),
        (f"{__name__}:needy", {}, "lamp.options.oil", "needy has no default for it"),
        (f"{__name__}:needy", {"oil": 1, "water": 2}, "lamp.options.water", "takes oil, untyped"),
        (f"{__name__}:stone", {"weight": 1}, "lamp.options.weight", "takes no options"),
        (f"{__name__}:stone", {}, "lamp.name", "a lamp with shine; it has no shine"),
        (f"{__name__}:vase", {}, "lamp.name", "a lamp with shine; it has no shine"),
        (f"{__name__}:Torch", {}, "lamp.name", "a lamp with shine, pace; it has no pace"),
    ],
)
def test_what_cannot_be_made_is_refused_in_one_line(
    name: str, options: dict[Any, object], field: str, message: str
) -> None:
    with pytest.raises(InputError) as caught:
        LAMPS.make(name, options, "hall")
    assert caught.value.field == field
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_part_of_another_class_is_refused() -> None:
    kind: Kind[Any] = Kind("lamp", "a lamp", "none", {}, ("place",), base=f"{__name__}:Lamp")
    assert kind.make(f"{__name__}:Torch", {}, "hall").place == "hall"
    with pytest.raises(InputError, match=r"a lamp, a .*Lamp, not a int"):
        kind.make(f"{__name__}:stone", {}, "hall")


@pytest.mark.usefixtures("installed")
def test_installed_packages_add_parts() -> None:
    assert LAMPS.names() == ["plain", "loose", "needy", "gone", "neon"]
    assert type(LAMPS.make("neon", {"watts": 9}, "hall")).__name__ == "Neon"
    assert LAMPS.find("plain") is Lamp, "a built-in name stays what it is"
    with pytest.raises(InputError, match=r"a part that lampshop 2\.5 can load that can be imported"):
        LAMPS.find("gone")
    with pytest.raises(InputError, match=r"one of plain, loose, needy, gone, neon, or .*; did you mean neon"):
        LAMPS.find("neom")


def test_a_fingerprint_changes_with_the_source_and_the_package(installed: Path) -> None:
    digest = hashlib.sha256(Path(__file__).read_bytes()).hexdigest()
    assert LAMPS.fingerprint("plain") is None
    assert LAMPS.fingerprint(f"{__name__}:Lamp") == digest
    assert LAMPS.fingerprint("builtins:len") == ""
    shop = hashlib.sha256((installed / "shop.py").read_bytes()).hexdigest()
    assert LAMPS.fingerprint("neon") == f"lampshop 2.5 {shop}"


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.section)
def test_every_built_in_part_is_there_and_its_options_are_typed(kind: Kind[Any]) -> None:
    for name in kind:
        assert callable(kind.find(name))
        assert all(option.annotation is not Any for option in kind.options(name).values()), name
    assert not metadata.entry_points(group=kind.group), "no test depends on what happens to be installed"
