"""`fedslot plan` as a user calls it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from fedslot.access.analysis import PushPeriod
from fedslot.cli import app
from fedslot.errors import InputError


@pytest.fixture
def run():
    def call(*arguments: str) -> Result:
        return CliRunner().invoke(app, ["plan", *arguments], catch_exceptions=False)

    return call


def test_one_split_as_json(run) -> None:
    answer = json.loads(run("--slots", "20", "--pull", "10", "--contenders", "10", "--json").stdout)
    assert answer["success_probability"] == pytest.approx(0.9**9)
    assert answer["expected_received_push"] == pytest.approx(10 * 0.9**9)
    assert answer["expected_cost_exact"] == pytest.approx(18.4193, abs=1e-4)
    assert answer["expected_cost_paper"] == pytest.approx(18.4306, abs=1e-4)
    assert answer["expected_cost_max"] == pytest.approx(answer["expected_cost_exact"] + 1)


def test_edges_as_json(run) -> None:
    for slots, pull, contenders in [(20, 20, 10), (20, 10, 0), (20, 19, 2)]:
        text = run("--slots", f"{slots}", "--pull", f"{pull}", "--contenders", f"{contenders}", "--json").stdout
        answer = json.loads(text)
        assert answer["expected_cost_exact"] == answer["expected_cost_paper"] == pull
        assert answer["expected_received_push"] == answer["success_probability"] == 0


def test_all_splits_as_json(run) -> None:
    answer = json.loads(run("--slots", "20", "--contenders", "10", "--value-ratio", "4", "--json").stdout)
    assert [split["pull"] for split in answer["splits"]] == list(range(21))
    assert answer["best"] == max(answer["splits"], key=lambda split: split["expected_value"])
    assert answer["by"] == "expected_value"


def test_table_marks_the_best(run) -> None:
    lines = run("--slots", "20", "--contenders", "10", "--value-ratio", "4").stdout.splitlines()
    marked = [line for line in lines if "▶" in line]
    assert marked[0].split()[:3] == ["▶", "6", "14"]
    assert "pull 6, leave 14 open" in marked[1]
    assert len([line for line in lines if line[:6].replace("▶", " ").strip().isdigit()]) == 21


def test_long_tables_are_cut_and_say_so(run) -> None:
    text = run("--slots", "200", "--contenders", "100", "--value-ratio", "3.2").stdout
    assert "of 201 splits shown" in text
    assert len(text.splitlines()) < 60
    best = json.loads(run("--slots", "200", "--contenders", "100", "--value-ratio", "3.2", "--json").stdout)["best"]
    assert f"▶ {best['pull']} " in text


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("--budget", "1000", "--barring", "best", "--value-ratio", "2"),
        (
            "--budget",
            "1000",
            "--barring",
            "best",
            "--value-ratio",
            "2",
            "--channel",
            "crdsa",
            "--frames",
            "50",
        ),
        ("--slots", "120", "--contenders", "poisson:60", "--ready", "0.5"),
    ],
)
def test_tables_fit_80_columns(run, arguments: tuple[str, ...]) -> None:
    text = run(*arguments).stdout
    assert "…" not in text
    assert max(len(line) for line in text.splitlines()) <= 80


def test_one_split_as_text(run) -> None:
    text = run("--pull", "10", "--channel", "capture", "--frames", "200").stdout
    assert "expected received push" in text
    assert "±" in text


@pytest.mark.parametrize("channel", ["capture", "crdsa", "irsa", "fedslot.access.channels:Capture"])
def test_simulated_channels(run, channel: str) -> None:
    arguments = ("--slots", "6", "--contenders", "4", "--channel", channel, "--frames", "300", "--json")
    answer = json.loads(run(*arguments).stdout)
    assert answer["frames"] == 300
    assert all(split["standard_errors"] for split in answer["splits"])
    assert answer == json.loads(run(*arguments).stdout)
    assert answer != json.loads(run(*arguments, "--seed", "1").stdout)


def test_threshold_reaches_the_channel(run) -> None:
    def pushed(decibels: str) -> float:
        text = run("--pull", "5", "--channel", "capture", "--threshold-db", decibels, "--json").stdout
        return float(json.loads(text)["expected_received_push"])

    assert pushed("0") > pushed("20") + 0.5


def test_the_name_of_the_plot_is_printed_as_it_is(run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert "Drawn in [bold]plan.png." in run("--plot", "[bold]plan.png").stdout


def test_a_limit_per_frame(run) -> None:
    answer = json.loads(run("--frame-limit", "15", "--confidence", "0.95", "--value-ratio", "4", "--json").stdout)
    assert (answer["frame_limit"], answer["confidence"]) == (15, 0.95)
    assert (answer["best"]["pull"], answer["best"]["push"]) == (0, 14)
    assert all(split["within_limit"] >= 0.95 for split in answer["splits"])
    text = run("--frame-limit", "15", "--value-ratio", "4").stdout
    assert "P(within" in text
    assert max(len(line) for line in text.splitlines()) <= 80


def test_a_plot_that_cannot_be_written_leaves_nothing(run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match="No space"):
        run("--plot", str(tmp_path / "plan.png"))
    assert list(tmp_path.iterdir()) == []


def test_plot_is_written(run, tmp_path: Path) -> None:
    for suffix, magic in [("png", b"\x89PNG"), ("pdf", b"%PDF"), ("svg", b"<?xml")]:
        path = tmp_path / f"plan.{suffix}"
        run("--plot", str(path))
        assert path.read_bytes().startswith(magic)


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (("--slots", "0"), "slots: 0 is not allowed; it must be from 1 to"),
        (("--pull", "21"), "pull: 21 is not allowed; it must be from 0 to 20"),
        (
            ("--contenders", "many"),
            "contenders: 'many' is not allowed; it must be a whole number, poisson:MEAN",
        ),
        (("--ready", "2"), "ready: 2.0 is not allowed; it must be a probability, from 0 to 1"),
        (
            ("--barring", "often"),
            "--barring: 'often' is not allowed; it must be a probability, from 0 to 1, or best",
        ),
        (("--barring", "nan"), "barring: nan is not allowed"),
        (("--budget", "-3"), "budget: -3.0 is not allowed; it must be a number of slots above 0"),
        (("--value-ratio", "inf"), "value_ratio: inf is not allowed"),
        (
            ("--channel", "aloha"),
            "push.channel: 'aloha' is not allowed; it must be one of collision, capture",
        ),
        (("--threshold-db", "3"), "--threshold-db: 3.0 is not allowed; it must be left out"),
        (("--channel", "irsa", "--frames", "0"), "frames: 0 is not allowed"),
        (
            ("--plot", "plan.gif"),
            "--plot: 'plan.gif' is not allowed; it must be a file name that ends in .png",
        ),
        (("--plot", "nowhere/plan.png"), "--plot: 'nowhere/plan.png' is not allowed; it must be in a folder"),
        (
            ("--plot", "plan.png", "--pull", "3"),
            "--plot: 'plan.png' is not allowed; it must be left out with --pull",
        ),
    ],
)
def test_bad_arguments_are_refused_in_one_line(run, arguments: tuple[str, ...], line: str) -> None:
    with pytest.raises(InputError) as refusal:
        run(*arguments)
    assert line in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_two_hundred_slots_agree_with_integers(run) -> None:
    splits = json.loads(run("--slots", "200", "--contenders", "100", "--json").stdout)["splits"]
    for pull in (0, 50, 199, 200):
        exact = PushPeriod(200 - pull, 100).expected_cost_exact(pull)
        assert splits[pull]["expected_cost_exact"] == pytest.approx(exact, rel=1e-10)


def test_help_loads_nothing_heavy() -> None:
    script = (
        "import sys; from fedslot.cli import plan; "
        "print([m for m in ('numpy', 'scipy', 'torch', 'matplotlib', 'pandas') if m in sys.modules])"
    )
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"
