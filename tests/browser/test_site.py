"""The documentation site in a real browser, opened from the disk: no page is too wide, and search works."""

from __future__ import annotations

from pathlib import Path

import pytest

SITE = Path(__file__).parents[2] / "out" / "site"
PAGES = sorted(str(page.relative_to(SITE)) for page in SITE.rglob("*.html") if page.name != "404.html")


def test_the_site_is_there() -> None:
    assert len(PAGES) > 30, "build it first: make docs"


@pytest.mark.parametrize("width", [1280, 390])
def test_no_page_is_wider_than_the_screen(open_page, width: int) -> None:
    page = open_page((SITE / "index.html").as_uri(), width=width)
    for name in PAGES:
        page.goto((SITE / name).as_uri())
        assert page.evaluate("document.documentElement.scrollWidth") <= width, name


def test_images_are_there(open_page) -> None:
    page = open_page((SITE / "index.html").as_uri())
    for name in PAGES:
        page.goto((SITE / name).as_uri())
        assert page.evaluate("[...document.images].filter(i => !i.naturalWidth).map(i => i.src)") == [], name


def test_search_works_without_a_server(open_page) -> None:
    page = open_page((SITE / "index.html").as_uri())
    page.click(".md-search__input")
    page.keyboard.type("fleet.noise_law")  # explained by the reference
    page.wait_for_selector(".md-search-result__item a[href*='scenario.html']")
