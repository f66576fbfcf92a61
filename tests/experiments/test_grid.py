"""Grids parsed and refused, combinations in order, folder names that tell all apart."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fedslot.experiments.grid import GridStudy, folder_name, parse_grid, say_value
from fedslot.experiments.study import LONGEST_NAME
from fedslot.scenario import Scenario
from fedslot.strategies.fedavg import FedAvg
from fedslot.support.errors import InputError

PLAIN = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(codec="utf-8"), max_size=12)
)
VALUES = (
    PLAIN | st.lists(PLAIN, max_size=3) | st.dictionaries(st.text("abc_", min_size=1, max_size=4), PLAIN, max_size=2)
)


@example(["\x85", "a\u2028b", "\u2029", "a\nb", "\r"])
@given(st.lists(VALUES, min_size=1, max_size=4, unique_by=say_value))
def test_what_is_said_is_read_back(values: list[Any]) -> None:
    """Every value can be given on the command line, also words with commas, brackets and quotes."""
    assert parse_grid([f"some.key={','.join(map(say_value, values))}"]) == {"some.key": values}


def test_values_are_read_as_overrides_are() -> None:
    words = ["a=1,1.5,1e-3", "b=true,null,auto", "c='x,y',[1, 2]", "d=mine:Oldest,fedavg", "e = 5"]
    assert parse_grid(words) == {
        "a": [1, 1.5, 0.001],
        "b": [True, None, "auto"],
        "c": ["x,y", [1, 2]],
        "d": ["mine:Oldest", "fedavg"],
        "e": [5],
    }


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ([], "one axis at least"),
        (["frame.pull"], "--grid: 'frame.pull' is not allowed; it must be of the form"),
        (["=5"], "of the form"),
        (["frame.pull="], "grid frame.pull: [] is not allowed"),
        (["frame.pull=5,,6"], "frame.pull: '5,,6' is not allowed"),
        (["frame.pull=5]"], "frame.pull: '5]' is not allowed"),
        (["frame.pull=5,6,5"], "grid frame.pull: '5' is not allowed; it must be given once"),
        (["frame.pull=5", "frame.pull=6"], "grid: 'frame.pull' is not allowed; it must be given once"),
        (["seed=1,2"], "--seeds"),
    ],
)
def test_grids_that_are_none(words: list[str], expected: str) -> None:
    with pytest.raises(InputError, match=re.escape(expected)):
        parse_grid(words)


@pytest.mark.parametrize(
    ("grid", "expected"),
    [
        (
            {"frame.pull": [5, 11]},
            "frame.pull: 11 is not allowed; it must be at most frame.slots (10) (in the combination",
        ),
        ({"frame.slots": [5, 4], "frame.pull": [4, 5]}, "in the combination frame.slots=4, frame.pull=5)"),
        ({"frame.pul": [5]}, "did you mean frame.pull?"),
        ({"frame.pull": ["five"]}, "a whole number"),
        ({"frame.pull": 5}, "grid frame.pull: 5 is not allowed; it must be a list"),
        ({"frame.pull": [object()]}, "plain"),
        ({"fleet.noise": [1, 1.0]}, "the same scenario as fleet.noise=1"),
        ({"rounds": list(range(1, 1001)), "data.ues": list(range(100, 201))}, "at most 100000"),
        ({}, "one axis at least"),
    ],
)
def test_studies_that_cannot_be_run(scenario: Scenario, grid: dict[str, Any], expected: str) -> None:
    with pytest.raises(InputError, match=re.escape(expected)) as refused:
        GridStudy(scenario, grid, 3)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("strategy.name", "os:system"),
        ("push.channel", "ether"),
        ("training.model", "mpl"),
        ("training.optimizer", "adam"),
        ("valuation.name", "fast"),
        ("data.dataset", "/nope.npz"),
        ("data.dataset", "nope"),
    ],
)
def test_parts_and_data_that_are_not_there(scenario: Scenario, key: str, value: str) -> None:
    section, field = key.split(".")
    usual = scenario.model_dump()[section][field]
    with pytest.raises(InputError, match=re.escape(f"{key}: {value!r} is not allowed")) as refused:
        GridStudy(scenario, {key: [usual, value]}, 3).check()
    assert f"(in the combination {key}={value})" in str(refused.value)
    GridStudy(scenario, {key: [usual]}, 3).check()


def test_data_may_be_on_other_machines_only(scenario: Scenario) -> None:
    GridStudy(scenario, {"data.dataset": ["digits", "there.npz"]}, 1).check(data=False)


def test_classes_become_their_names(scenario: Scenario) -> None:
    study = GridStudy(scenario, {"strategy.name": [FedAvg, "ucb"]}, 1)
    assert study.grid == {"strategy.name": ["fedslot.strategies.fedavg:FedAvg", "ucb"]}
    study.check()


@pytest.mark.parametrize("seeds", [0, -1, 1.5, True, "3"])
def test_seeds_are_a_positive_number(scenario: Scenario, seeds: Any) -> None:
    with pytest.raises(InputError, match="seeds"):
        GridStudy(scenario, {"frame.pull": [5]}, seeds)


def test_combinations_differ_in_nothing_but_the_axes(scenario: Scenario, tmp_path: Path) -> None:
    study = GridStudy(scenario.replace({"seed": 7}), {"frame.pull": [2, 5], "strategy.name": ["fedavg", "ucb"]}, 1)
    assert [(each.frame.pull, each.strategy.name) for each in study.scenarios] == [
        (2, "fedavg"),
        (2, "ucb"),
        (5, "fedavg"),
        (5, "ucb"),
    ]
    assert len({each.replace({"frame.pull": 0, "strategy.name": "x"}).digest for each in study.scenarios}) == 1
    assert study.tasks(tmp_path)[0].folder.name == "frame.pull=2_strategy.name=fedavg-seed7"


@given(st.lists(st.tuples(VALUES, VALUES), min_size=2, max_size=20, unique_by=lambda pair: tuple(map(say_value, pair))))
def test_folder_names_are_safe_and_unique(pairs: list[tuple[Any, Any]]) -> None:
    """Also where a file system does not tell upper case from lower, and for values that contain separators."""
    names = [folder_name({"strategy.options.a": a, "b": b}) for a, b in pairs]
    assert all(re.fullmatch(r"[a-z0-9._=+-]+", name) and len(name) <= LONGEST_NAME for name in names)
    assert len(set(names)) == len(names)


def test_folder_names_can_be_read() -> None:
    assert folder_name({"frame.pull": 5, "strategy.name": "mine:Oldest"}).startswith("frame.pull=5_strategy.name=mine-")


def written(folder: Path, study: GridStudy) -> Path:
    file = folder / "again.yaml"
    file.write_text(study.to_yaml())
    return file


def test_a_study_file(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("rounds: 7\nstrategy: {name: fedslot.strategies.fedavg:FedAvg}\n")
    file = tmp_path / "study.yaml"
    file.write_text(
        "scenario: mine.yaml\noverrides: {data.ues: 30}\nseeds: 2\n"
        "grid:\n  frame.pull: [2, 4]\n  strategy.options.words: ['a,b', [1, 2]]\n"
    )
    study = GridStudy.load(file)
    assert (study.scenario.rounds, study.scenario.data.ues, study.seeds) == (7, 30, 2)
    assert study.combinations[1] == {"frame.pull": 2, "strategy.options.words": [1, 2]}
    more = GridStudy.load(file, {"rounds": 8}, {"push.contenders": [1, 2]}, 5)
    assert (more.scenario.rounds, more.seeds, list(more.grid)[-1]) == (8, 5, "push.contenders")
    with pytest.raises(InputError, match="given once"):
        GridStudy.load(file, grid={"frame.pull": [4]})
    assert GridStudy.load(written(tmp_path, study)) == study, "a study writes itself out completely"


def test_a_scenario_with_a_grid_of_its_own() -> None:
    study = GridStudy.load("quickstart", {"frame.slots": 4}, {"frame.pull": [2, 4]})
    assert (study.scenario.frame.slots, study.seeds) == (4, 3), "valid in all combinations, though not without"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("scenario: quickstart\ngrid: {}", "one axis at least"),
        ("scenario: quickstart\ngrid: [1]", "grid: [1] is not allowed; it must be a mapping"),
        ("scenario: quickstart\ngrid: {frame.pull: 5}", "a list"),
        ("scenario: quickstart\ngrid: {1: [5]}", "a list of one value at least"),
        ("scenario: quickstart\ngrid: {frame.pull: [5]}\nseed: 3", "seed: 3 is not allowed"),
        ("scenario: quickstart\ngrid: {frame.pull: [5]}\nseeds: many", "seeds: 'many' is not allowed"),
        ("scenario: nowhere\ngrid: {frame.pull: [5]}", "a preset"),
        ("grid: {frame.pull: [5]}", "scenario: None is not allowed; it must be given in a study"),
        ("scenario: [1]\ngrid: {frame.pull: [5]}", "scenario: [1] is not allowed"),
        ("scenario: {1: 2}\ngrid: {frame.pull: [5]}", "1: 2 is not allowed"),
        ("scenario: {frame: {slotz: 5}}\ngrid: {frame.pull: [5]}", "did you mean frame.slots?"),
        ("scenario: quickstart\noverrides: 3\ngrid: {frame.pull: [5]}", "overrides: 3 is not allowed"),
        ("scenario: quickstart\noverrides: {1: 2}\ngrid: {frame.pull: [5]}", "overrides: 1 is not allowed"),
        ("scenario: quickstart\noverrides: {null: 2}\ngrid: {frame.pull: [5]}", "overrides: None is not allowed"),
    ],
)
def test_bad_study_files(tmp_path: Path, text: str, expected: str) -> None:
    (tmp_path / "study.yaml").write_text(text)
    with pytest.raises(InputError, match=re.escape(expected)) as refused:
        GridStudy.load(tmp_path / "study.yaml")
    assert "\n" not in str(refused.value)


def test_values_of_numpy_and_ranges_are_converted():
    study = GridStudy(Scenario(), {"frame.pull": range(2, 9, 3), "fleet.noise": np.linspace(0, 1, 3)}, np.int64(2))
    same = GridStudy(Scenario(), {"frame.pull": [2, 5, 8], "fleet.noise": [0.0, 0.5, 1.0]}, 2)
    assert study == same
    assert study.to_yaml() == same.to_yaml()
    assert [folder_name(one) for one in study.combinations] == [folder_name(one) for one in same.combinations]


def test_an_axis_over_a_section_changes_the_fields_that_its_values_name(tmp_path):
    text = "scenario: quickstart\noverrides: {frame: {slots: 12}}\ngrid: {frame: [{pull: 3, slots: 9}, {pull: 4}]}\n"
    (tmp_path / "study.yaml").write_text(text)
    study = GridStudy.load(tmp_path / "study.yaml", {"fleet": {"noise": 0.2}})
    assert [(one.frame.slots, one.frame.pull, one.fleet.noise) for one in study.scenarios] == [
        (9, 3, 0.2),
        (12, 4, 0.2),
    ]
    assert GridStudy.load(written(tmp_path, study)).scenarios == study.scenarios


def test_a_base_that_needs_the_values_of_the_grid(tmp_path):
    """Alone it would be impossible; it takes the first values, if every other combination changes the same fields."""
    base = {"frame.pull": 12}  # of 10 slots
    study = GridStudy.load("quickstart", base, {"frame": [{"slots": 14}, {"slots": 13}]})
    assert [one.frame.slots for one in study.scenarios] == [14, 13]
    with pytest.raises(InputError, match=r"frame.slots \(10\)"):
        GridStudy.load("quickstart", base, {"frame": [{"slots": 14}, {"slots": 13, "pull": 3}]})


def test_data_sets_in_a_study_are_relative_to_its_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "there"
    folder.mkdir()
    x, y = np.eye(99, 2), np.arange(99) % 3
    for file in (folder / "a.npz", folder / "b.npz", tmp_path / "c.npz"):
        np.savez(file, x_train=x, y_train=y, x_test=x, y_test=y)
    text = "scenario: {data: {dataset: a.npz}}\noverrides: {fleet.noise: 0.2}\ngrid: {data.dataset: [b.npz, digits]}\n"
    (folder / "study.yaml").write_text(text)
    study = GridStudy.load(folder / "study.yaml")
    assert study.scenario.data.dataset == str(folder / "a.npz")
    assert [one.data.dataset for one in study.scenarios] == [str(folder / "b.npz"), "digits"]
    assert GridStudy.load(written(tmp_path, study)).scenarios == study.scenarios
    given = GridStudy(Scenario(), {"data.dataset": ["c.npz", "digits"]}, 1)
    assert given.scenarios[0].data.dataset == str(tmp_path / "c.npz")
    assert GridStudy.load(written(folder, given)).scenarios == given.scenarios


def test_files_of_rates_in_a_study_are_relative_to_its_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "there"
    folder.mkdir()
    law = "{name: csv, options: {path: b.csv}}"
    text = (
        f"scenario: quickstart\noverrides: {{radio: {{rates: {{name: csv}}}}}}\ngrid: {{radio.rates: [disc, {law}]}}\n"
    )
    (folder / "study.yaml").write_text(text)
    study = GridStudy.load(folder / "study.yaml")
    assert [one.radio.rates.options for one in study.scenarios] == [{}, {"path": str(folder / "b.csv")}]
    given = GridStudy(Scenario().replace({"radio.rates": "csv"}), {"radio.rates.options.path": ["c.csv"]}, 1)
    assert given.scenarios[0].radio.rates.options == {"path": str(tmp_path / "c.csv")}
    assert GridStudy.load(written(folder, given)).scenarios == given.scenarios
