"""Panels in a report: complete, without a network, and bounded."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

import fedslot
from fedslot.experiments.comparison import Comparison
from fedslot.views.live import embedded
from fedslot.views.live.embedded import embed, last_frames

Copy = Callable[[str], Path]


@pytest.fixture
def comparison(results: Copy) -> Comparison:
    found = fedslot.load(results("comparison"))
    assert isinstance(found, Comparison)
    return found


def test_all_is_in_the_file(comparison: Comparison) -> None:
    parts = embed(comparison)
    assert not re.search(r"<(script|link)[^>]+(src|href)=", parts["library"] + parts["script"] + parts["panels"])
    assert "push-pull, seed 0" in parts["script"]
    assert "fedavg, seed 0" in parts["script"]
    assert parts["note"] == ""
    assert 1e6 < sum(map(len, parts.values())) < 3e6


def test_panels_without_frames(comparison: Comparison) -> None:
    bare = {name: [replace(result, folder=None) for result in results] for name, results in comparison.runs.items()}
    assert "push-pull, seed 0" in embed(replace(comparison, runs=bare))["script"]


def test_only_the_last_whole_frames_of_long_runs(comparison: Comparison, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedded, "MOST_ROWS", 50)
    assert "last rounds only" in embed(comparison)["note"]
    frames = pd.DataFrame({"round": [0, 0, 0, 1, 1, 2, 2]})
    assert last_frames(frames, 7) is frames
    assert last_frames(frames, 5)["round"].to_list() == [1, 1, 2, 2]
    assert last_frames(frames, 4)["round"].to_list() == [1, 1, 2, 2]
    assert last_frames(frames, 3)["round"].to_list() == [2, 2]
