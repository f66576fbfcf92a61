"""The live view in a real browser: it grows with a run, shows slots, goes back, follows, and tells what is wrong."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import fedslot
from fedslot.views.report import write_report

Start = Callable[..., subprocess.Popen[str]]
OpenPage = Callable[..., Any]
SCENARIO = {"rounds": 30, "data.ues": 40, "training.epochs": 1, "push.contenders": 7}
STRATEGIES = ["push-pull", "merit-push", "fedavg"]
SHOTS = os.environ.get("FEDSLOT_SCREENSHOTS")  # a folder for pictures to look at


@pytest.fixture(scope="module")
def comparison(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("browser") / "comparison"
    found = fedslot.compare(fedslot.Scenario.load("quickstart", SCENARIO), STRATEGIES, 2, folder, workers=1)
    write_report(found, folder)
    return folder


def watch(start: Start, folder: Path) -> tuple[subprocess.Popen[str], str]:
    process = start(sys.executable, "-m", "fedslot", "watch", str(folder), stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    return process, next(word for word in process.stdout.readline().split() if word.startswith("http"))


def text(page: Any, name: str) -> str:
    return str(page.locator(f"#fs-{name}").text_content())


def until(page: Any, condition: str) -> None:
    """Wait for a condition in JavaScript."""
    page.wait_for_function(f"() => {{ {HELP} return {condition} }}")


HELP = """
const doc = window.Bokeh?.documents[0];
const model = (name) => doc?.get_model_by_name(name);
const source = (plot, glyph) => model(plot).renderers.find((each) => each.glyph.type === glyph).data_source;
const text = (name) => document.getElementById('fs-' + name)?.textContent ?? '';
"""


def ask(page: Any, question: str) -> Any:
    """The answer to a question in JavaScript."""
    return page.evaluate(f"() => {{ {HELP} return {question} }}")


def shoot(page: Any, name: str) -> None:
    if SHOTS:
        Path(SHOTS).mkdir(parents=True, exist_ok=True)
        page.screenshot(path=f"{SHOTS}/{name}.png", full_page=True)


def cell(page: Any, event: str) -> tuple[float, float, dict[str, float]]:
    """The place of a slot in which something happened, in pixels of the page, and what its row says."""
    page.locator(".fs-all").scroll_into_view_if_needed()
    found = ask(
        page,
        f"""(() => {{
            const data = source('frames', 'Rect').data, plot = model('frames'), range = plot.x_range;
            for (let i = data.round.length - 1; i >= 0; i--)
                if (data.event[i] === '{event}' && data.round[i] > range.start + 1 && data.round[i] <= range.end - 1) {{
                    const view = Bokeh.index.find_one_by_id(plot.id), box = view.el.getBoundingClientRect();
                    const {{x_scale, y_scale}} = view.frame;
                    return {{x: box.x + x_scale.compute(data.x[i]), y: box.y + y_scale.compute(data.slot[i]),
                             ue: data.ue[i], round: data.round[i], slot: data.slot[i]}};
                }}
        }})()""",
    )
    return found["x"], found["y"], found


def test_a_run_is_seen_growing_and_ends_with_ctrl_c(start: Start, open_page: OpenPage, tmp_path: Path) -> None:
    words = ["run", "quickstart", "-o", "rounds=1000000", "--live", "--out", str(tmp_path / "run")]
    process = start(sys.executable, "-m", "fedslot", *words, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    address = next(line for line in process.stderr if line.startswith("live view: ")).split()[-1]
    page = open_page(address)
    until(page, "model('accuracy') && source('accuracy', 'Line').data.accuracy.length > 0")
    before = ask(page, "source('accuracy', 'Line').data.accuracy.length")
    until(page, f"source('accuracy', 'Line').data.accuracy.length > {before} + 5")
    until(page, "text('status').includes('left')")
    last = ask(page, "Math.max(...source('frames', 'Rect').data.round)")
    assert text(page, "round").startswith("round ")
    shoot(page, "run-1100-light")

    page.get_by_role("button", name="Pause").dispatch_event("click")
    page.get_by_role("button", name="Go on").wait_for()
    held = ask(page, "source('accuracy', 'Line').data.accuracy.length")
    status = text(page, "status")
    until(page, f"text('status') !== {status!r}")
    assert ask(page, "source('accuracy', 'Line').data.accuracy.length") <= held + 1, "paused"
    page.get_by_role("button", name="Go on").dispatch_event("click")
    until(page, f"Math.max(...source('frames', 'Rect').data.round) > {last}")

    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    assert process.returncode == 130
    until(page, "text('fault').includes('has ended')")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1100, 1900])
def test_a_comparison_can_be_read(start: Start, open_page: OpenPage, comparison: Path, width: int, scheme: str) -> None:
    _, address = watch(start, comparison)
    page = open_page(address, width=width, scheme=scheme)
    until(page, "text('status').includes('all 6 runs finished') && text('round')")
    assert page.evaluate("document.documentElement.dataset.theme") == scheme
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth"), "nothing to scroll sideways"
    labels = ask(
        page, "model('accuracy').center.find((each) => each.type === 'Legend').items.map((each) => each.label.value)"
    )
    assert labels == STRATEGIES
    assert ask(page, "model('frames').left[0].major_label_text_color") == (
        "#444444" if scheme == "light" else "#c3c8d0"
    )
    shoot(page, f"comparison-{width}-{scheme}")
    page.get_by_role("button", name="light / dark").click()
    assert page.evaluate("document.documentElement.dataset.theme") != scheme


def test_slots_say_who_and_can_be_followed(start: Start, open_page: OpenPage, comparison: Path) -> None:
    _, address = watch(start, comparison)
    page = open_page(address, width=1900, height=1000, scheme="dark")
    until(page, "text('status') && text('round')")
    for event in ("pulled", "collided"):
        x, y, row = cell(page, event)
        page.mouse.move(x, y)
        page.get_by_text(f"UE {row['ue']:.0f}").first.wait_for()
        page.get_by_text(f": {event}").first.wait_for()
        page.get_by_text(f"round {row['round']:.0f}, slot {row['slot']:.0f}").first.wait_for()
    x, y, row = cell(page, "pulled")
    page.mouse.click(x, y)
    until(page, f"text('followed').startsWith('UE {row['ue']:.0f}: received')")
    mine = ask(page, f"Array.from(source('frames', 'Rect').data.ue).filter((ue) => ue === {row['ue']}).length")
    assert ask(page, "source('followed', 'Step').data.round.length") == mine
    received = int(text(page, "followed").split("received ")[1].split()[0])
    frames = fedslot.load(comparison / "runs" / "push-pull-seed0").frames
    mine = frames[(frames["ue"] == row["ue"]) & frames["event"].isin(["pulled", "pushed"])]
    assert received == mine["round"].nunique()
    shoot(page, "followed-1900-dark")


def test_going_back_through_rounds(start: Start, open_page: OpenPage, comparison: Path) -> None:
    _, address = watch(start, comparison)
    page = open_page(address)
    until(page, "text('round').startsWith('round 29:')")
    page.locator(".noUi-handle").focus()
    for _ in range(20):
        page.keyboard.press("ArrowLeft")
    until(page, "text('round').startsWith('round 9:')")
    rounds = fedslot.load(comparison / "runs" / "push-pull-seed0").rounds
    assert f"accuracy {rounds['test_accuracy'][9]:.3f} after {rounds['slots_spent'][9]} slots" in text(page, "round")
    frames = fedslot.load(comparison / "runs" / "push-pull-seed0").frames
    early = frames[(frames["round"] <= 9) & frames["event"].isin(["pulled", "pushed"])]
    counted = ask(page, "source('ues', 'Scatter').data.received.reduce((a, b) => a + b, 0)")
    assert counted == len(early), "UEs are shown as they were then"
    assert ask(page, "source('ues', 'Scatter').data.ue.length") == early["ue"].nunique()
    values = early.groupby("ue")["value"].last().sort_values(ascending=False)
    assert ask(page, "Array.from(source('ues', 'Scatter').data.value)") == pytest.approx(values.to_list())
    shoot(page, "back-1100-light")


def test_another_run_of_a_comparison(start: Start, open_page: OpenPage, comparison: Path) -> None:
    _, address = watch(start, comparison)
    page = open_page(address)
    until(page, "text('round')")
    page.locator(".fs-controls select").select_option(label="fedavg, seed 1")
    rounds = fedslot.load(comparison / "runs" / "fedavg-seed1").rounds
    until(page, f"text('round').includes('accuracy {rounds['test_accuracy'].iloc[-1]:.3f}')")
    until(page, "text('ues').includes('no values')")


def test_a_report_without_a_network(open_page: OpenPage, comparison: Path) -> None:
    page = open_page((comparison / "report.html").as_uri(), width=1400, offline=True)
    until(page, "text('round').startsWith('round 29:')")
    page.locator(".fs-controls select").select_option(label="merit-push, seed 0")
    rounds = fedslot.load(comparison / "runs" / "merit-push-seed0").rounds
    until(page, f"text('round').includes('accuracy {rounds['test_accuracy'].iloc[-1]:.3f}')")
    x, y, row = cell(page, "pushed")
    page.mouse.move(x, y)
    page.mouse.click(x, y)
    until(page, f"text('followed').startsWith('UE {row['ue']:.0f}')")
    shoot(page, "report")


def test_what_is_wrong_is_told_on_the_page(start: Start, open_page: OpenPage, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    fedslot.run(fedslot.Scenario.load("quickstart", {**SCENARIO, "rounds": 3}), folder)
    process, address = watch(start, folder)
    page = open_page(address)
    until(page, "text('status') === 'finished'")
    with (folder / "rounds.csv").open("a") as stream:
        stream.write("nonsense\n")
    until(page, "text('fault').includes('rounds.csv is broken')")
    for file in folder.iterdir():
        file.unlink()
    folder.rmdir()
    until(page, "text('fault').includes('has vanished')")
    process.send_signal(signal.SIGINT)
    until(page, "text('fault').includes('has ended')")
