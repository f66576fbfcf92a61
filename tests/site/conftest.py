"""The documentation site as `make docs` builds it."""

from __future__ import annotations

from pathlib import Path

import pytest

SITE = Path(__file__).parents[2] / "out" / "site"


@pytest.fixture(scope="session")
def site() -> Path:
    """The folder of the site."""
    assert (SITE / "index.html").is_file(), "build the site first: make docs"
    return SITE
