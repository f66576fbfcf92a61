"""A real browser: the system's Chromium, driven by Playwright; without one, the tests are skipped and say so."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator
from typing import Any

import pytest

OpenPage = Callable[..., Any]


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    """The browser."""
    api = pytest.importorskip(
        "playwright.sync_api", reason="Playwright is not installed: pip install 'fedslot[browser]'"
    )
    path = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if path is None:
        pytest.skip("no Chromium is installed; as root: apt-get install chromium")
    with api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])  # root has no sandbox
        yield browser
        browser.close()


@pytest.fixture
def open_page(chromium: Any) -> Iterator[OpenPage]:
    """Opens pages: open_page(address, width=1100, scheme="dark").

    The test fails if a page has errors, or asks for anything from elsewhere than this machine.
    """
    contexts, errors, asked = [], [], []

    def open_(address: str, width: int = 1100, height: int = 900, scheme: str = "light", **options: Any) -> Any:
        size = {"width": width, "height": height}
        context = chromium.new_context(viewport=size, color_scheme=scheme, **options)
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(60_000)
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
        page.on("request", lambda request: asked.append(request.url))
        page.on("websocket", lambda socket: asked.append(socket.url))
        page.goto(address)
        return page

    yield open_
    for context in contexts:
        context.close()
    assert [error for error in errors if not re.search(r"(?i)websocket|ERR_CONNECTION|not connected", error)] == []
    hosts = {url.split("/")[2].partition(":")[0] for url in asked if not url.startswith("data:")}
    assert hosts <= {"127.0.0.1", ""}, "no request leaves this machine"
