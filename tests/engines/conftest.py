"""For tests that keep time by the clock."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fedslot.deployment.timing import Timing


@pytest.fixture
def longer(request: pytest.FixtureRequest) -> Callable[[Timing], Timing]:
    """Makes frames longer when the test is run again: 3 times, then 9 times as long as at first."""
    factor = 3.0 ** (request.node.execution_count - 1)

    def lengthen(timing: Timing) -> Timing:
        return Timing(timing.slot * factor, timing.downlink * factor, timing.tolerance * factor)

    return lengthen


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that the broker's user can enter, as /etc/fedslot."""
    made = Path(tempfile.mkdtemp(prefix="fedslot-"))
    made.chmod(0o755)
    yield made
    shutil.rmtree(made)
