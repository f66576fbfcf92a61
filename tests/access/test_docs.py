"""The examples in the documentation and in the docstrings run as they stand."""

from __future__ import annotations

import doctest
import importlib
from pathlib import Path

import pytest


def test_page_on_access() -> None:
    page = Path(__file__).parents[2] / "docs" / "access.md"
    failures, tests = doctest.testfile(str(page), module_relative=False)
    assert tests > 20
    assert failures == 0


@pytest.mark.parametrize("name", ["analysis", "channels", "contenders", "counting", "latency", "planner"])
def test_docstrings(name: str) -> None:
    failures, tests = doctest.testmod(importlib.import_module(f"fedslot.access.{name}"))
    assert tests > 0
    assert failures == 0
