"""`faults.csv` over restarts and crashes."""

from __future__ import annotations

from pathlib import Path

from fedslot.deployment.faults import REMEMBERED, Fault, FaultLog


def test_faults_of_rounds_that_are_repeated_are_dropped(tmp_path: Path) -> None:
    log = FaultLog(tmp_path)
    log.add(*(Fault(round, 1, "node 7", "norm", f'1e9, "far"\nfrom {round}') for round in range(4)))
    again = FaultLog(tmp_path, until=2)
    assert again.all == log.all[:2]
    again.add(Fault(2, 5, "0", "absent"))
    assert FaultLog(tmp_path, until=9).all == [*log.all[:2], Fault(2, 5, "0", "absent")]


def test_incomplete_lines_are_dropped(tmp_path: Path) -> None:
    FaultLog(tmp_path).add(Fault(0, 1, "7", "norm"))
    file = tmp_path / "faults.csv"
    for incomplete in ("1,1,10", "1,", '2,3,4,"no'):
        file.write_text(file.read_text("utf-8") + incomplete, "utf-8")
        assert FaultLog(tmp_path, until=9).all == [Fault(0, 1, "7", "norm")]


def test_without_a_folder_nothing_is_written(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    log = FaultLog()
    log.add(Fault(0, 1, "7", "norm"))
    assert len(log.all) == 1
    assert not list(tmp_path.iterdir())


def test_of_many_faults_memory_holds_the_last_ones_and_the_file_all(tmp_path: Path) -> None:
    log = FaultLog(tmp_path)
    for start in range(0, REMEMBERED + 50, 50):
        log.add(*(Fault(round, 1, "a", "late") for round in range(start, start + 50)))
    assert len(log.all) == REMEMBERED
    assert log.all[-1].round == REMEMBERED + 49
    assert log.counts == {"late": REMEMBERED + 50}
    assert (tmp_path / "faults.csv").read_text().count("\n") == REMEMBERED + 51
    assert FaultLog(tmp_path, until=10).counts == {"late": 10}
