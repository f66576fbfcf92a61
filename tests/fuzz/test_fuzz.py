"""Whatever a user gives, a command works and its output is valid, or it ends with one line and code 1 or 2.

`FEDSLOT_FUZZ=5000 pytest tests/fuzz` tries 5000 examples of each kind instead of a few.
"""

from __future__ import annotations

import io
import json
import math
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import chdir, contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import fedslot
from fedslot.access.channels import Channel, Collision, Slots
from fedslot.cli import main
from fedslot.messages import Grant
from fedslot.runs.callbacks import Report
from fedslot.scenario import keys
from fedslot.strategies.fedavg import FedAvg
from fedslot.support.yaml_text import write_yaml

SMALL = {
    "rounds": 2,
    "data.ues": 9,
    "frame.slots": 4,
    "frame.pull": 2,
    "push.contenders": 3,
    "training.epochs": 1,
    "training.engine": "torch",
    "strategy.warmup": 1,
}


def fuzz(examples: int) -> Callable[[Any], Any]:
    """Try so many examples, or as many as FEDSLOT_FUZZ says."""
    number = int(os.environ.get("FEDSLOT_FUZZ", "0")) or examples
    usual = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.function_scoped_fixture]
    return settings(max_examples=number, deadline=None, suppress_health_check=usual)


def command(*words: str) -> tuple[int, str]:
    """Run a command in this process, which says in one line if it failed, without traceback or warning.

    Return its exit code and its output.
    """
    with redirect_stdout(io.StringIO()) as output, redirect_stderr(io.StringIO()) as stderr:
        code = main(words)
    errors = stderr.getvalue()
    lines = [line for line in errors.splitlines() if line.startswith("error: ")]
    assert "Traceback" not in errors
    assert "Warning" not in errors
    assert code in (0, 1, 2)
    assert len(lines) == (1 if code else 0), errors
    if code:
        assert errors.splitlines()[-1] == lines[0], "the reason comes last"
        assert 10 < len(lines[0]) < 500
    return code, output.getvalue()


@contextmanager
def folder() -> Iterator[Path]:
    """A new current folder."""
    with tempfile.TemporaryDirectory() as name, chdir(name):
        yield Path(name)


def files(path: Path) -> dict[str, bytes | None]:
    """What there is in a folder, without locks."""
    shown = [file for file in sorted(path.rglob("*")) if "lock" not in file.name]
    return {str(file.relative_to(path)): file.read_bytes() if file.is_file() else None for file in shown}


def read_json(text: str) -> Any:
    def refuse(name: str) -> float:
        raise AssertionError(f"{name} is not JSON")

    return json.loads(text, parse_constant=refuse)


def small(overrides: dict[str, object] | None = None) -> list[str]:
    """The words for a run that takes a moment."""
    fields = {**SMALL, **(overrides or {})}
    return [word for key, value in fields.items() for word in ("-o", f"{key}={value}")]


def check_run(path: Path) -> None:
    """A finished run: a complete table of finite numbers in range, and a summary that agrees with it."""
    result = fedslot.load(path)
    rounds, scenario = result.rounds, result.scenario
    assert list(rounds["round"]) == list(range(len(rounds)))
    assert len(rounds) == scenario.most_rounds or scenario.used(0, 0, 0)  # within a budget
    numbers = rounds.select_dtypes("number").dropna(axis="columns", how="all")  # seconds and joules may be unknown
    assert np.isfinite(numbers.to_numpy()).all()
    assert rounds["test_accuracy"].between(0, 1).all()
    assert (rounds["pulled"] + rounds["wasted"] <= scenario.frame.slots).all()
    assert (rounds["push_received"] <= rounds["contenders"]).all()
    assert rounds["slots_spent"].is_monotonic_increasing
    assert read_json((path / "summary.json").read_text("utf-8"))["rounds"] == len(rounds)
    assert not [name for name in files(path) if name.endswith(".tmp")]


def check_refused_or_run(*words: str) -> None:
    """Run into `out`: it ends with a good result, or leaves nothing at all."""
    before = files(Path())
    code, _ = command(*words, "--out", "out")
    if code == 0:
        check_run(Path("out"))
    elif not Path("out").exists() or fedslot.load("out").rounds.empty:  # refused before a round was done
        assert files(Path()) == before


# Words ------------------------------------------------------------------------------------------------

NUMBERS = ["0", "1", "2", "3", "7", "-1", "0.5", "1e9", "1e308", "-0.0", "nan", "inf", "1e400", "9" * 5000, str(2**64)]
TEXTS = ["", " ", "x", "ä▶", "\udcff", "a\nb", "../..", "/dev/null/x", "a" * 300, "~", "-", "--", "null", "yes"]
VALUES = [
    *NUMBERS, *TEXTS, "true", "[]", "{}", "[1, 2]", "{a: 1}", "{1: 2}", "{a: {b: [x]}}", "*x", "&a [*a]",
    "!!python/name:os.system", "[" * 200, "2001-13-01", "2001-01-01", "'", "mean", "ready", "auto", "best", "collision",
    "irsa", "mlp", "cnn", "fedavg", "gtg", "math:pi", "os:system", ".x:y", "builtins:list",
    "fedslot.support.rng:stream", "digits", "mnist", "none.npz", "cuda:99",
]  # fmt: skip
letters = st.characters(exclude_characters="\x00", exclude_categories=["Cs"])  # no word of a command has others
words = st.sampled_from(VALUES) | st.text(letters, max_size=12) | st.integers().map(str) | st.floats().map(str)


PLAN = {
    "--slots": ["1", "5", "20", "300", "1000000000"],
    "--contenders": ["0", "3", "10", "poisson:4", "binomial:9:0.3", "2:0.5,8:0.5", "1000000", "poisson:1e5", "3:nan"],
    "--pull": ["0", "3", "1000"],
    "--value-ratio": ["0", "2.5"],
    "--ready": ["0", "0.3", "1", "1e-320"],
    "--budget": ["100", "1e15"],
    "--frame-limit": ["1", "4", "12.5", "1e6"],
    "--confidence": ["0", "0.9", "1"],
    "--barring": ["0", "0.2", "best", "1e-300"],
    "--channel": ["collision", "capture", "crdsa", "irsa"],
    "--threshold-db": ["-300", "3"],
    "--frames": ["2", "50", "10000000"],
    "--precision": ["0", "0.1"],
    "--seed": ["0", "5"],
    "--ues": ["1", "7", "1000000"],
    "--slot-ms": ["0.001", "10"],
    "--bits-per-slot": ["0.5", "1000"],
    "--parameters": ["1", "5000"],
    "--send-mj": ["0", "0.5"],
    "--listen-mj": ["0", "1e-300"],
    "--want-updates": ["0.1", "3.5", "200", "1e6"],
    "--success": ["1e-9", "0.5", "1"],
    "-o": ["frame.pull=1", "push.arrivals=0.3", "push.contenders=9", "data.ues=12", "fleet.computing={slot: 0.01}"],
    "--plot": ["plan.png", "plan.svg", "no/plan.png", "a" * 300 + ".pdf"],
}


@st.composite
def plan_words(draw: st.DrawFn) -> list[str]:
    chosen = draw(st.lists(st.sampled_from(sorted(PLAN)), max_size=6, unique=True))
    good = st.integers(0, 7)
    pairs = [(option, draw(st.sampled_from(PLAN[option]) if draw(good) else words)) for option in chosen]
    if draw(good):
        pairs += [(option, value) for option, value in [("--slots", "6"), ("--frames", "20")] if option not in chosen]
    return [*draw(st.sampled_from([[], [], ["quickstart"]])), *(word for pair in pairs for word in pair)]


@given(plan_words(), st.booleans())
@example(["--channel", "irsa", "--seed", "-1"], True)
@example(["--budget", "1e308", "--value-ratio", "1e308"], True)
@example(["--pull", "0", "--channel", "capture", "--threshold-db", "-300"], True)
@fuzz(60)
def test_plans(options: list[str], as_json: bool) -> None:
    with folder() as here:
        code, output = command("plan", *options, *(["--json"] if as_json else []))
        if code:
            assert files(here) == {}
        elif as_json:
            answer = read_json(output)
            for split in answer.get("splits", [answer]):
                check_split(split, answer["slots"])


def check_split(split: dict[str, Any], slots: int) -> None:
    assert split["pull"] + split["push"] <= slots
    for name in ("probability", "success_probability", "nothing_pushed", "within_limit"):
        assert 0 <= (split[name] or 0) <= 1
    numbers = [value for name, value in split.items() if isinstance(value, float) and name != "threshold_db"]
    assert all(math.isfinite(value) and value >= 0 for value in numbers)
    assert 1 <= split["expected_cost_max"] <= 1 + split["pull"] + split["push"] + 1e-9
    assert split["expected_received_push"] <= split["push"] + 1e-9 or split["standard_errors"]


COMMANDS = [
    "run", "compare", "sweep", "plan", "reproduce", "serve", "device", "watch", "show", "init", "presets", "schema",
    "doctor", "data", "runn", "",
]  # fmt: skip
OPTIONS = [
    "-o", "--out", "--seeds", "--grid", "--strategies", "--targets", "--workers", "--threads", "--resume", "--keys",
    "--json", "--slots", "--quick", "--nonsense", "-x", "--out=", "--", "quickstart", "paper", "list", "path",
    "frame.pull=1", "frame.pull=[1,2]", "push-pull,fedavg", "0.5,0.9",
]  # fmt: skip


@given(st.sampled_from(COMMANDS), st.lists(st.sampled_from(OPTIONS) | words, max_size=6))
@fuzz(80)
def test_mistyped_commands(name: str, rest: list[str]) -> None:
    """Words in any order; one that no command takes makes sure that nothing runs for long."""
    with folder() as here:
        tail = [] if name in ("presets", "schema") else ["--surely-no-option"]
        code, _ = command(name, *rest, *tail)
        assert code == 2 or not tail or {"--", "--help", "-h"} & {*rest}
        assert files(here) == {}


@given(st.lists(st.tuples(st.sampled_from([*sorted(keys()), "no.field", ""]), words), min_size=1, max_size=3))
@example([("seed", "-1")])
@example([("training.epochs", "9" * 5000)])
@example([("strategy.options" + ".a" * 3000, "1")])
@example([("radio.slot_seconds", "1"), ("seconds_budget", "0.1")])
@fuzz(60)
def test_overrides(pairs: list[tuple[str, str]]) -> None:
    slow = {"rounds", "training.epochs", "valuation.permutations", "training.batches", "data.dataset"}
    given = [f"{key}={value}" for key, value in pairs if key not in slow or value.strip("0123456789")]
    with folder():
        check_refused_or_run("run", "quickstart", *small(), *[word for pair in given for word in ("-o", pair)])


# Scenario files ---------------------------------------------------------------------------------------

LINES = [
    "rounds: 2", "rounds: 2", "seed: 99999999999999999999999", "data: {ues: 9}", "data:", "  ues: 9",
    "  dataset: digits", 'data: {dataset: "\\0"}', "frame: {pull: 3}", "frame: &a {slots: 4}", "push: *a",
    "strategy: [x]", "strategy: {name: planned, options: {frame_limit: 4}}",
    "strategy: &a {name: fedavg, options: *a}", "chain: &a [*a]", "frame: {slots: 1000000}", "data: {ues: 1000000000}",
    "push: {channel: {name: irsa}, contenders: 900000000}", "training: {epochs: 1000000000}",
    "data: {ues: 100000000, samples_per_ue: 1000000000}",
    "? [a]", "- 3", "...", "---", "training: {lr: .nan}", "x" * 2000, "\t", "# only words", "fleet: {noise: 1e39}",
    "time_budget: 0x10", "radio: {rates: disc}", "radio: {rates: csv}", "radio: {outage: 0.5, duty_cycle: 0.1}",
    "compression: quantise",
]  # fmt: skip


@given(
    st.binary(max_size=60)
    | st.lists(st.sampled_from(LINES), max_size=5).map(lambda lines: "\n".join(lines).encode())
    | st.recursive(words, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3)).map(
        lambda value: json.dumps(value).encode()
    )
)
@example(b"")
@example(b"? []")
@example(b"a: &x [" + b"1," * 9 + b"]\nb: &y [" + b"*x," * 9 + b"]\nc: [" + b"*y," * 9 + b"]")
@fuzz(60)
def test_scenario_files(content: bytes) -> None:
    with folder() as here:
        (here / "mine.yaml").write_bytes(content)
        check_refused_or_run("run", "mine.yaml", *small())


@fuzz(25)
@given(data=st.data())
def test_scenarios(data: st.DataObject, scenario_fields: st.SearchStrategy[dict[str, Any]]) -> None:
    fields = data.draw(scenario_fields)
    with folder() as here:
        try:
            (here / "mine.yaml").write_text(write_yaml(fields), "utf-8")
        except Exception:  # not every value can be written as YAML
            return
        check_refused_or_run("run", "mine.yaml", "-o", "training.engine=torch")


# Data -------------------------------------------------------------------------------------------------

DTYPES = ["uint8", "float32", "float64", "int64", "bool", "U3", "complex64", "O", "M8[D]"]
SHAPES = [(), (0,), (60,), (60, 4), (60, 1, 4), (60, 2, 2, 1), (60, 8, 8), (59, 4), (0, 4), (60, 0)]


@st.composite
def arrays(draw: st.DrawFn) -> dict[str, NDArray[Any]]:
    """Mostly good arrays of a data set."""
    rng = np.random.default_rng(0)
    made: dict[str, NDArray[Any]] = {
        "x_train": rng.random((60, 4)),
        "y_train": np.arange(60) % 3,
        "x_test": rng.random((40, 4)),
        "y_test": np.arange(40) % 3,
    }
    for _ in range(draw(st.integers(0, 2))):
        name = draw(st.sampled_from([*made, "ue_train", "extra"]))
        match draw(st.integers(0, 3)):
            case 0:
                made.pop(name, None)
            case 1:
                made[name] = np.zeros(draw(st.sampled_from(SHAPES)), dtype=draw(st.sampled_from(DTYPES)))
            case 2 if name in made and made[name].size and made[name].dtype.kind in "biuf":
                values = made[name].astype(float).copy()
                values.flat[0] = draw(st.sampled_from([np.nan, np.inf, -1.0, 0.5, 1e300, 1e6]))
                made[name] = values
            case _ if name in made and made[name].ndim and made[name].dtype.kind in "biuf":
                made[name] = made[name][: draw(st.integers(0, 40))].astype(draw(st.sampled_from(DTYPES[:5])))
    return made


@given(arrays(), st.none() | st.tuples(st.integers(0, 3000), st.binary(max_size=4)))
@fuzz(40)
def test_data_files(made: dict[str, NDArray[Any]], damage: tuple[int, bytes] | None) -> None:
    with folder() as here:
        np.savez(here / "mine.npz", **made)  # type: ignore[arg-type]
        if damage is not None:
            content, (at, by) = (here / "mine.npz").read_bytes(), damage
            (here / "mine.npz").write_bytes(content[:at] + by + content[at + len(by) :] if by else content[:at])
        check_refused_or_run("run", "quickstart", *small({"data.dataset": "mine.npz"}))


# Damaged folders --------------------------------------------------------------------------------------

RESUMED = ["run", "quickstart", *small({"rounds": 4}), "--resume", "--out", "run"]


@given(
    st.lists(st.tuples(words | st.integers(0, 9).map(str), words | st.sampled_from(["0.4", "1"])), max_size=12)
    | st.permutations(range(9)).map(lambda ues: [(str(ue), "0.4") for ue in ues]),
    st.sampled_from(["ue,rate", "rate,ue", "ue,rate,outage", "ue;rate", ""]),
)
@example([(str(ue), "1") for ue in range(9)], "ue,rate")
@fuzz(30)
def test_files_of_rates(rows: list[tuple[str, str]], header: str) -> None:
    with folder() as here:
        text = "\n".join([header, *map(",".join, rows)])
        (here / "mine.csv").write_bytes(text.encode("utf-8", "surrogateescape"))
        law = "{name: csv, options: {path: mine.csv}}"
        check_refused_or_run("run", "quickstart", *small({"radio.rates": law}))


@pytest.fixture(scope="module")
def interrupted(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, pd.DataFrame]:
    """The folder of a run that was stopped after two rounds of four, and the rounds that it should have in the end."""
    path = tmp_path_factory.mktemp("interrupted")

    def stop(round: fedslot.Round) -> None:
        if round.round == 1:
            raise KeyboardInterrupt

    scenario = fedslot.Scenario.load("quickstart", {**SMALL, "rounds": 4})
    with pytest.raises(KeyboardInterrupt):
        fedslot.run(scenario, path / "run", callbacks=[Report(stop)])
    return path / "run", fedslot.run(scenario).rounds


DAMAGES: dict[str, Callable[[bytes, int, bytes], bytes]] = {
    "cut": lambda content, at, by: content[:at],
    "change": lambda content, at, by: content[:at] + by + content[at + len(by) :],
    "insert": lambda content, at, by: content[:at] + by + content[at:],
    "replace": lambda content, at, by: by,
    "reorder": lambda content, at, by: b"".join([*content.splitlines(True)[:1], *content.splitlines(True)[:0:-1]]),
    "repeat": lambda content, at, by: content + b"".join(content.splitlines(True)[-1:]),
}


def damage(path: Path, how: str, at: float, by: bytes) -> None:
    """Damage a file at a place from 0 to 1."""
    content = path.read_bytes() if path.exists() else b""  # there is no summary yet
    path.unlink(missing_ok=True)
    if how == "folder":
        path.mkdir()
    elif how != "delete":
        path.write_bytes(DAMAGES[how](content, int(at * len(content)), by))


def damage_array(path: Path, at: float, shape: int) -> None:
    """Change one array of a checkpoint: its shape, its dtype or a value."""
    with np.load(path) as saved:
        all_arrays = dict(saved)
    name = sorted(all_arrays)[int(at * len(all_arrays)) % len(all_arrays)]
    array = all_arrays[name]
    if shape == 0 and array.size and array.dtype.kind in "fiu":
        array = array.copy()
        array.flat[0] = array.flat[0] + 1
    else:
        array = [array[None], np.zeros(3, "complex64"), np.zeros(0), array.ravel()[:1]][shape % 4]
    all_arrays[name] = array
    np.savez(path, **all_arrays)


@given(
    st.sampled_from(["scenario.yaml", "rounds.csv", "checkpoint.npz", "summary.json"]),
    st.sampled_from(["delete", "folder", "array", *DAMAGES]),
    st.floats(0, 0.999),
    st.binary(max_size=5) | st.sampled_from([b"\xff", b"9", b"-", b"\n", b",", b"{}", b"null"]),
)
@example("rounds.csv", "replace", 0, b"\xff\xfe\x00")
@example("rounds.csv", "reorder", 0, b"")
@example("rounds.csv", "folder", 0, b"")
@example("checkpoint.npz", "array", 0.5, b"")
@example("summary.json", "replace", 0, b"[" * 100_000)
@example("rounds.csv", "replace", 0, b"a,b\n1,2\n")
@example("rounds.csv", "insert", 0.1875, b"9")  # within the name of a column
@fuzz(50)
def test_damaged_folders(interrupted: tuple[Path, pd.DataFrame], name: str, how: str, at: float, by: bytes) -> None:
    source, expected = interrupted
    with folder() as here:
        shutil.copytree(source, here / "run")
        if how == "array":
            damage_array(here / "run" / "checkpoint.npz", at, len(by))
        else:
            damage(here / "run" / name, how, at, by)
        command("show", "run")
        before = files(here)
        if command(*RESUMED)[0]:
            assert files(here) == before, "a refusal leaves everything as it was"
        else:
            rounds = fedslot.load(here / "run").rounds
            same = [column for column in rounds.columns if column != "seconds"]
            pd.testing.assert_frame_equal(rounds[same], expected[same])
            check_run(here / "run")


# Own parts --------------------------------------------------------------------------------------------

BAD: list[Any] = [
    None, 0, 0.5, "x", [], [1, 2], (), {}, True, math.nan, 1.7, np.zeros(3), np.zeros((3, 3)), np.array([99]),
    np.array([0, 0]), np.array([-1]), np.array([0.5]), np.array(["a"]), np.array([np.nan]), np.full((1, 3), 99),
    np.full((1, 3), -1), np.full((1, 3), 0.5),
]  # fmt: skip
answer: list[Any] = [None]
"""What the next own part returns."""


class BadChannel(Channel):
    def resolve(self, sent: Slots, slots: int, rng: np.random.Generator) -> Slots:
        return answer[0]  # type: ignore[no-any-return]


class BadDraw(Collision):
    def draw(self, earliest: Slots, slots: int, rng: np.random.Generator) -> Slots:
        return answer[0]  # type: ignore[no-any-return]


class BadGrant(FedAvg):
    def schedule(self, state: Any, round: int, rng: np.random.Generator) -> Grant:
        return answer[0]  # type: ignore[no-any-return]


class BadPull(FedAvg):
    def schedule(self, state: Any, round: int, rng: np.random.Generator) -> Grant:
        return Grant(answer[0], push=True)


class BadProbability(FedAvg):
    def schedule(self, state: Any, round: int, rng: np.random.Generator) -> Grant:
        return Grant(np.arange(2), push=True, probability=answer[0])


class BadState(FedAvg):
    def init(self) -> Any:
        return answer[0]


def bad_rates(ues: int, rng: np.random.Generator) -> Any:
    return answer[0]


def bad_losses(ues: int, rng: np.random.Generator) -> Any:
    return np.ones(ues), answer[0]


FIELDS: dict[Any, str] = {
    **dict.fromkeys([BadChannel, BadDraw], "push.channel"),
    **dict.fromkeys([BadGrant, BadPull, BadProbability, BadState], "strategy.name"),
    **dict.fromkeys([bad_rates, bad_losses], "radio.rates"),
}


@given(st.sampled_from(list(FIELDS)), st.sampled_from(range(len(BAD))))
@fuzz(80)
def test_own_parts(part: Any, index: int) -> None:
    answer[0] = BAD[index]
    with folder():
        check_refused_or_run(
            "run", "quickstart", *small({"strategy.warmup": 0, FIELDS[part]: f"{__name__}:{part.__name__}"})
        )
