"""The document of a browser: built from runs, comparisons and sweeps, and sent increments only."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from bokeh.document import Document
from bokeh.document.events import ColumnDataChangedEvent, ColumnsStreamedEvent

from fedslot.deployment.presence import Presence
from fedslot.views.live.page import Page
from fedslot.views.live.viewer import Viewer
from fedslot.views.live.watched import Watched

Copy = Callable[[str], Path]
NAMES = {"pulse", "controls", "accuracy", "ues", "frames", "cost", "air", "load", "followed"}


def view(folder: Path) -> tuple[Viewer, Page]:
    viewer = Viewer(Watched(folder), Document())
    assert viewer.page is not None
    return viewer, viewer.page


def said(viewer: Viewer) -> dict[str, Any]:
    return dict(json.loads(viewer.pulse.tags[0]))


def cut(folder: Path, rounds: int) -> tuple[list[str], list[str]]:
    """Make a run unfinished; return the lines of rounds and frames that were cut off."""
    (folder / "summary.json").unlink()
    rows, frames = ((folder / name).read_text().splitlines(keepends=True) for name in ("rounds.csv", "frames.csv"))
    until = next(i for i, line in enumerate(frames) if line.startswith(f"{rounds},"))
    (folder / "rounds.csv").write_text("".join(rows[: rounds + 1]))
    (folder / "frames.csv").write_text("".join(frames[:until]))
    return rows[rounds + 1 :], frames[until:]


def append(file: Path, lines: list[str]) -> None:
    with file.open("a") as stream:
        stream.writelines(lines)


@pytest.mark.parametrize(
    ("name", "status"), [("run", "finished"), ("comparison", "all 4 runs finished"), ("sweep", "all 4")]
)
def test_a_document_of_each_kind(results: Copy, name: str, status: str) -> None:
    viewer, page = view(results(name))
    panels, document = page.panels, viewer.document
    assert {root.name for root in document.roots} == NAMES
    assert said(viewer)["status"].startswith(status)
    assert said(viewer)["fault"] == ""
    assert said(viewer)["done"] == 1
    document.validate()
    assert len(json.dumps(document.to_json(), default=str)) > 1000
    rounds = pd.read_csv(viewer.run.folder / "rounds.csv")
    assert panels.rounds.data["accuracy"].tolist() == rounds["test_accuracy"].to_list()
    assert all(len(source.data["accuracy"]) == 4 for source in panels.curves.values())
    assert all(len(source.data["accuracy"]) > 1 for source in panels.means.values())
    frames = viewer.run.folder / "frames.csv"
    assert len(panels.frames.data["ue"]) == (len(pd.read_csv(frames)) if frames.exists() else 0)


def test_only_increments_are_sent(results: Copy) -> None:
    folder = results("run")
    rows, frames = cut(folder, 2)
    viewer, page = view(folder)
    assert said(viewer)["status"].startswith("50%")
    events: list[object] = []
    viewer.document.on_change(events.append)
    viewer.tick()
    assert events == [], "nothing new, nothing sent"
    append(folder / "frames.csv", frames[:3])
    viewer.tick()
    assert events == [], "a part of a frame is not shown"
    append(folder / "frames.csv", frames[3:])
    append(folder / "rounds.csv", rows[:1])
    viewer.tick()
    assert not any(isinstance(event, ColumnDataChangedEvent) for event in events)
    streamed = [event for event in events if isinstance(event, ColumnsStreamedEvent)]
    assert {len(event.data["round"]) for event in streamed if "accuracy" in event.data} == {1}
    assert set(page.panels.frames.data["round"]) == {0, 1, 2}, "only of recorded rounds"
    append(folder / "rounds.csv", rows[1:])
    viewer.tick()
    assert set(page.panels.frames.data["round"]) == {0, 1, 2, 3}
    assert len(page.panels.rounds.data["round"]) == 4


def test_a_paused_page_is_told_how_things_are_and_catches_up(results: Copy) -> None:
    folder = results("run")
    rows, frames = cut(folder, 2)
    viewer, page = view(folder)
    page.pause.active = True
    assert page.pause.label == "Go on"
    append(folder / "frames.csv", frames)
    append(folder / "rounds.csv", rows)
    viewer.tick()
    assert len(page.panels.rounds.data["round"]) == 2
    assert said(viewer)["done"] == 1
    page.pause.active = False
    assert len(page.panels.rounds.data["round"]) == 4


def test_a_run_that_starts_over_replaces_what_was_sent(results: Copy) -> None:
    folder = results("run")
    viewer, page = view(folder)
    rows = (folder / "rounds.csv").read_text().splitlines(keepends=True)
    other = folder / "other"
    other.write_text("".join(rows[:2]))
    other.replace(folder / "rounds.csv")
    (folder / "summary.json").unlink()
    viewer.tick()
    assert len(page.panels.rounds.data["round"]) == 1
    assert len(page.panels.curves[0].data["round"]) == 1


def test_another_run_can_be_chosen(results: Copy) -> None:
    viewer, page = view(results("comparison"))
    assert page.run.value == "push-pull, seed 0"
    page.run.value = "fedavg, seed 1"
    expected = pd.read_csv(viewer.watched.path / "runs" / "fedavg-seed1" / "rounds.csv")
    assert page.panels.rounds.data["accuracy"].tolist() == expected["test_accuracy"].to_list()


def test_the_page_begins_with_a_run_that_is_under_way(results: Copy) -> None:
    folder = results("comparison")
    cut(folder / "runs" / "fedavg-seed1", 2)
    viewer, _ = view(folder)
    assert viewer.run.label == "fedavg, seed 1"
    assert "3 of 4 runs finished" in said(viewer)["status"]


def test_waiting_for_a_folder_and_loading_again(results: Copy, tmp_path: Path) -> None:
    document = Document()
    viewer = Viewer(Watched(tmp_path / "run"), document)
    assert [root.name for root in document.roots] == ["pulse"]
    assert "is not there yet" in said(viewer)["status"]
    assert not said(viewer)["reload"]
    results("run")
    viewer.tick()
    assert said(viewer)["reload"]


def test_more_seeds_load_the_page_again_and_a_fault_is_told(results: Copy) -> None:
    folder = results("comparison")
    viewer, _ = view(folder)
    marker = folder / "comparison.yaml"
    text = marker.read_text()
    marker.write_text("strategies: [")
    viewer.tick()
    assert "comparison.yaml" in said(viewer)["fault"]
    marker.write_text(text.replace("seeds: 2", "seeds: 3"))
    viewer.tick()
    assert said(viewer)["reload"]


def test_devices_that_are_offline_and_a_broker_that_is_lost(results: Copy) -> None:
    """Of a deployment the page says who is away, and no time left while nobody can be reached."""
    folder = results("run")
    rows, _ = cut(folder, 2)
    viewer, _ = view(folder)
    append(folder / "rounds.csv", rows[:1])
    file = folder / "presence.json"
    for presence, words in (
        (Presence(20, frozenset(range(20)), True), "left"),
        (Presence(20, frozenset(range(18)), True), "offline: 18-19"),
        (Presence(20, frozenset(), False), "the broker is lost"),
    ):
        file.write_text(presence.to_json())
        viewer.tick()
        assert words in said(viewer)["status"]
        assert ("left" in said(viewer)["status"]) == presence.connected
    file.write_text("{")
    viewer.tick()
    assert "left" in said(viewer)["status"]
