"""Computing times: their mean, and files of one's own."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedslot.experiments.tasks import check
from fedslot.fleet import Computing
from fedslot.runs.provenance import fingerprints
from fedslot.scenario import ComputingSection, Scenario
from fedslot.support.errors import InputError

UES = 4
SMALL = {"data.ues": UES, "frame.slots": 3, "frame.pull": 2, "push.contenders": 2}
GOOD = "".join(f"{ue},{ue / 2}\n" for ue in range(UES))


def listed(path: Path, redraw: bool = False, **fields: Any) -> Computing:
    section = ComputingSection(times=str(path), redraw=redraw, **fields)
    return Computing(section, np.full(UES, 3), seed=1)


@pytest.mark.parametrize("redraw", [False, True])
@pytest.mark.parametrize("shape", [1.0, 4.0])
def test_the_mean_over_the_fleet_is_as_given(redraw: bool, shape: float) -> None:
    sizes = np.random.default_rng(0).integers(1, 100, size=200_000)
    section = ComputingSection(mean_slots=20, shape=shape, redraw=redraw)
    times = Computing(section, sizes, seed=2).times(5)
    assert abs(times.mean() - 20) < 4 * times.std() / len(times) ** 0.5
    # the law stays: times are proportional to samples, with the same relative variance
    relative = times / sizes
    assert relative.var() / relative.mean() ** 2 == pytest.approx(1 / shape, rel=0.03)


def test_the_mean_only_scales_the_law() -> None:
    sizes = np.array([5, 10, 40])
    plain, scaled = (Computing(ComputingSection(mean_slots=mean), sizes, seed=0).times(0) for mean in (None, 7))
    assert scaled / plain == pytest.approx([scaled[0] / plain[0]] * 3)
    assert Computing(ComputingSection(mean_slots=0), sizes, seed=0).times(0).tolist() == [0, 0, 0]


@pytest.mark.parametrize("mean", [0.0, 6.0])
def test_planned_readiness_is_that_of_the_draws(mean: float) -> None:
    sizes = np.random.default_rng(1).integers(1, 50, size=50_000)
    computing, slots = Computing(ComputingSection(mean_slots=mean), sizes, seed=4), np.array([0.0, 3.0, 9.0])
    drawn = (computing.times(0)[:, None] <= slots).mean(axis=0)
    assert computing.ready_by(slots) == pytest.approx(drawn, abs=0.01)


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"mean_slots": 3, "scale": 2.0}, "scale"),
        ({"mean_slots": 3, "frequency": 1e8}, "frequency"),
        ({"times": "times.csv", "mean_slots": 3}, "mean_slots"),
        ({"times": "times.csv", "shape": 2.0}, "shape"),
    ],
)
def test_fields_that_contradict_each_other_are_refused(fields: dict[str, Any], field: str) -> None:
    with pytest.raises(InputError) as caught:
        Scenario().replace({"fleet.computing": fields})
    assert caught.value.field == f"fleet.computing.{field}"


def test_a_scenario_with_a_mean_can_be_written_and_read(tmp_path: Path) -> None:
    scenario = Scenario().replace({"fleet.computing": {"mean_slots": 20, "shape": 2, "slot": 0.5, "redraw": True}})
    (tmp_path / "scenario.yaml").write_text(scenario.to_yaml())
    assert Scenario.load(tmp_path / "scenario.yaml") == scenario


def test_times_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "times.csv"
    path.write_text("slots,ue\n" + "".join(f"{10 * ue},{ue}\n" for ue in reversed(range(UES))))
    assert listed(path).times(3).tolist() == [0, 10, 20, 30]
    assert listed(path).ready_by(np.array([0.0, 10.0, 25.0])).tolist() == [0.25, 0.5, 0.75]
    path.write_text("ue,seconds\n" + GOOD)
    assert listed(path, slot=0.25).times(3).tolist() == [0, 2, 4, 6]


def test_each_training_takes_one_of_the_times_of_its_ue(tmp_path: Path) -> None:
    path = tmp_path / "times.csv"
    rows = [(ue, 10 * ue + number) for ue in range(UES) for number in range(ue + 1)]
    path.write_text("ue,slots\n" + "".join(f"{ue},{time}\n" for ue, time in rows))
    computing = listed(path, redraw=True)
    drawn = np.array([computing.times(version) for version in range(400)])
    for ue in range(UES):
        times, counts = np.unique(drawn[:, ue], return_counts=True)
        assert times.tolist() == [10 * ue + number for number in range(ue + 1)]
        assert counts.min() > 400 / (ue + 1) / 2
    assert np.array_equal(listed(path, redraw=True).times(7), drawn[7])


@given(st.binary(max_size=80) | st.text(st.sampled_from('ue,slots\n0123456789.-"nainf '), max_size=80))
def test_any_other_content_is_refused_with_one_line(content: bytes | str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "times.csv"
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        with pytest.raises(InputError) as caught:
            listed(path)
    assert caught.value.field == "fleet.computing.times"
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "allowed"),
    [
        ("ue,rate\n0,1\n", "columns ue and slots or seconds"),
        ("ue,slots\n" + GOOD + "2,3\n", "unless redraw is true"),
        ("ue,slots\n" + GOOD[len("0,0.0.") :], "UE 0 is missing"),
        ("ue,slots\n" + GOOD + "4,3\n", "UEs from 0 to 3"),
        ("ue,slots\n0,-1\n", "at least 0"),
        ("ue,slots\n0,inf\n", "at least 0"),
        ("ue,slots\n0,1,2\n", "2 values"),
    ],
)
def test_what_is_wrong_with_a_file_is_said(tmp_path: Path, text: str, allowed: str) -> None:
    path = tmp_path / "times.csv"
    path.write_text(text)
    with pytest.raises(InputError, match=allowed):
        listed(path)


def test_a_run_with_a_file_is_refused_before_it_begins_and_knows_the_file(tmp_path: Path) -> None:
    path = tmp_path / "times.csv"
    scenario = Scenario().replace({**SMALL, "fleet.computing": {"times": str(path)}})
    with pytest.raises(InputError):
        check(scenario)
    path.write_text("ue,slots\n" + GOOD)
    check(scenario)
    before = fingerprints(scenario)
    path.write_text("ue,slots\n" + GOOD.replace("0.5", "0.6"))
    assert fingerprints(scenario) != before


def test_a_path_is_relative_to_the_scenarios_file(tmp_path: Path) -> None:
    (tmp_path / "s.yaml").write_text("fleet: {computing: {times: times.csv}}\n")
    computing = Scenario.load(tmp_path / "s.yaml").fleet.computing
    assert computing is not None
    assert computing.times == str(tmp_path / "times.csv")
