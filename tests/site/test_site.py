"""The documentation site is complete, and asks for nothing from the network."""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterable
from html.parser import HTMLParser
from pathlib import Path

import click
import pytest
from typer.main import get_command

from fedslot.cli import app
from fedslot.parts.kinds import AGGREGATIONS, CHANNELS, KINDS, STRATEGIES, VALUATIONS
from fedslot.scenario import keys, presets

LOADING = {
    "script": "src",
    "img": "src",
    "iframe": "src",
    "source": "src",
    "video": "src",
    "audio": "src",
    "link": "href",
}
ELSEWHERE = re.compile(r"(?:https?:)?//")
PACKAGES = {
    "fedslot": "fedslot",
    **{name: f"fedslot.{name}" for name in ("access", "aggregation", "strategies", "valuation", "data", "tracking")},
    **{name: f"fedslot.deployment.{name}" for name in ("mqtt", "flower")},
}


class Page(HTMLParser):
    """The anchors of a page, what it loads, and its text."""

    def __init__(self, file: Path) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.loads: list[str] = []
        self.text = ""
        self.feed(file.read_text("utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        self.ids.add(values.get("id") or "")
        self.loads.append(values.get(LOADING.get(tag, "")) or "")
        self.loads += re.findall(r"url\(([^)]*)\)", values.get("style") or "")

    def handle_data(self, data: str) -> None:
        self.text += data


def test_no_page_loads_anything_from_elsewhere(site: Path) -> None:
    pages = sorted(site.rglob("*.html"))
    assert len(pages) > 30
    for file in pages:
        assert not [address for address in Page(file).loads if ELSEWHERE.match(address)], file


def test_no_style_loads_anything_from_elsewhere(site: Path) -> None:
    styles = sorted(site.rglob("*.css"))
    assert styles
    for file in styles:
        addresses = re.findall(r"url\([\"']?([^)\"']*)|@import [\"']([^\"']*)", file.read_text("utf-8"))
        assert not [pair for pair in addresses if ELSEWHERE.match("".join(pair))], file


def test_every_field_has_an_anchor(site: Path) -> None:
    assert keys().keys() <= Page(site / "reference" / "scenario.html").ids


def test_every_command_and_option_is_there(site: Path) -> None:
    page = Page(site / "reference" / "commands.html")
    found = 0

    def check(command: click.Command, path: str) -> None:
        nonlocal found
        if isinstance(command, click.Group):
            for name, inner in command.commands.items():
                check(inner, f"{path} {name}")
            return
        assert path.replace(" ", "-") in page.ids
        for option in command.params:
            if isinstance(option, click.Option) and not option.hidden and option.name != "help":
                assert option.opts[-1] in page.text, f"{path} {option.opts[-1]}"
                found += 1

    check(get_command(app), "fedslot")
    assert found > 80


@pytest.mark.parametrize(
    ("page", "names"),
    [
        ("presets", presets()),
        ("strategies", STRATEGIES),
        ("aggregations", AGGREGATIONS),
        ("channels", CHANNELS),
        ("valuation", VALUATIONS),
        *(("others", kind) for kind in KINDS if kind not in (STRATEGIES, AGGREGATIONS, CHANNELS, VALUATIONS)),
    ],
)
def test_every_part_has_an_anchor(site: Path, page: str, names: Iterable[str]) -> None:
    assert set(names) <= Page(site / "reference" / f"{page}.html").ids


@pytest.mark.parametrize("page", PACKAGES)
def test_every_public_name_has_an_anchor(site: Path, page: str) -> None:
    package = importlib.import_module(PACKAGES[page])
    names = {f"{PACKAGES[page]}.{name}" for name in package.__all__}
    assert names <= Page(site / "reference" / "api" / f"{page}.html").ids


def test_the_methods_of_a_channel_are_explained(site: Path) -> None:
    page = Page(site / "reference" / "api" / "fedslot.html")
    assert {"fedslot.Channel.resolve", "fedslot.Channel.draw", "fedslot.NoState", "fedslot.warm_up"} <= page.ids
    assert "returns: (F, N)" in " ".join(page.text.split())


def test_formulas_are_typeset(site: Path) -> None:
    pages = {str(file.relative_to(site)): file.read_text("utf-8") for file in sorted(site.rglob("*.html"))}
    assert not [name for name, text in pages.items() if "arithmatex" in text]
    formulas = re.findall("<math [^>]*>", pages["explanation/derivation.html"])
    assert sum('display="block"' in formula for formula in formulas) > 5
