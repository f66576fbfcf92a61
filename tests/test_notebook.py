"""The notebook of the examples runs from top to bottom, with bars, tables and figures."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

FILE = Path(__file__).parent.parent / "examples" / "first-steps.ipynb"


def _data(cell: Any) -> list[dict[str, str]]:
    return [output.data for output in cell.outputs if "data" in output]


@pytest.mark.long
def test_the_notebook_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MPLBACKEND", raising=False)  # commands set it, and a kernel would inherit it
    notebook = nbformat.read(FILE, as_version=4)
    NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(tmp_path)}}).execute()
    cells = {cell.source.splitlines()[-1]: _data(cell) for cell in notebook.cells if cell.cell_type == "code"}
    for last in ("result.plot();", "comparison.plot();", "best.plot();", "mine.plot();"):
        assert any("image/png" in data for data in cells[last]), f"{last} shows a figure"
    for last in ("result", "comparison", "best", "mine", "stopped"):
        assert "<table" in cells[last][-1]["text/html"], f"{last} is a table"
        assert len(cells[last][-1]["text/plain"]) < 120, "and a short line elsewhere"
    for last in ("result", "comparison", "mine", "stopped"):
        assert "<progress" in cells[last][0]["text/html"], f"{last} came with a bar"
    assert re.search(r"all runs.*9/9.*done", cells["comparison"][0]["text/html"])
    assert "Oldest" in cells["mine"][-1]["text/html"]
    assert "(stopped)" in cells["stopped"][-1]["text/html"]
    kinds = {output.output_type for cell in notebook.cells for output in cell.get("outputs", [])}
    assert not kinds & {"stream", "error"}
