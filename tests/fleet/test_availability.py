import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedslot.experiments.tasks import check
from fedslot.fleet.availability import Markov
from fedslot.fleet.availability_file import Listed
from fedslot.runs.provenance import fingerprints
from fedslot.scenario import Scenario
from fedslot.support.errors import InputError

HEADER = "ue,on_slots,off_slots\n"
GOOD = "0,0,10\n0,20,30\n1,5,25\n2,0,0\n"


def markov(ues: int = 20_000, **options) -> Markov:
    return Markov(ues, 3, None, **{"on": 200.0, "off": 50.0, **options})


def listed(path: Path, ues: int = 3, slot_seconds: float | None = None, **options) -> Listed:
    return Listed(ues, 0, slot_seconds, path=str(path), **options)


def file(folder: Path, text: str | bytes) -> Path:
    path = folder / "mine.csv"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


@pytest.mark.parametrize("time", [0, 12.3, 100, 4000])
def test_the_share_of_ues_that_are_there_is_stationary(time: float) -> None:
    assert abs(markov().at(time).mean() - 0.8) < 4 * (0.8 * 0.2 / 20_000) ** 0.5


@pytest.mark.parametrize("later", [1, 10, 40, 100])
def test_states_forget_each_other_as_in_a_markov_chain(later: float) -> None:
    """The correlation of two times is exp(-t (1 / on + 1 / off))."""
    law = markov()
    correlation = np.corrcoef(law.at(500), law.at(500 + later))[0, 1]
    assert abs(correlation - np.exp(-later * (1 / 200 + 1 / 50))) < 0.03


def test_times_there_and_away_have_their_means() -> None:
    law, step = markov(ues=1000, on=20.0, off=5.0), 0.1
    there = np.array([law.at(time) for time in np.arange(0, 200, step)])
    left = np.count_nonzero(there[:-1] & ~there[1:])
    assert there.sum() * step / left == pytest.approx(20, rel=0.06)
    assert (~there).sum() * step / left == pytest.approx(5, rel=0.06)


def test_the_state_at_a_time_does_not_depend_on_what_was_asked_before() -> None:
    times = np.random.default_rng(0).permutation(np.arange(0, 500, 7.7))
    one, other = markov(50), markov(50)
    states = {time: one.at(time) for time in times}
    assert all((other.at(time) == states[time]).all() for time in sorted(states))
    assert not (Markov(50, 4, None).at(100) == Markov(50, 5, None).at(100)).all()


def test_means_may_be_in_seconds() -> None:
    in_slots, in_seconds = markov(), Markov(20_000, 3, 0.5, on=100.0, off=25.0, unit="seconds")
    assert (in_slots.at(321) == in_seconds.at(321)).all()
    with pytest.raises(InputError, match=r"unit: 'seconds' .* must be slots, unless radio\.slot_seconds"):
        markov(unit="seconds")


def test_intervals_hold_from_their_beginning_until_before_their_end(tmp_path: Path) -> None:
    law = listed(file(tmp_path, HEADER + GOOD))
    there = {time: law.at(time).tolist() for time in (0, 5, 9.99, 10, 20, 25, 30, 1000)}
    assert there == {
        0: [True, False, False],
        5: [True, True, False],
        9.99: [True, True, False],
        10: [False, True, False],
        20: [True, True, False],
        25: [True, False, False],
        30: [False, False, False],
        1000: [False, False, False],
    }


def test_a_trace_in_seconds_may_begin_again(tmp_path: Path) -> None:
    seconds = file(tmp_path, "off_seconds,ue,on_seconds\n" + "20,0,0\n40,1,20\n60,2,40\n")
    law = listed(seconds, slot_seconds=2.0, period=60.0)
    assert [law.at(time).tolist().index(True) for time in (0, 10, 20, 30, 45, 59.9, 60)] == [0, 1, 2, 0, 1, 2, 0]
    with pytest.raises(InputError, match=r"path: 'seconds' .* unless radio\.slot_seconds"):
        listed(seconds)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("", "the columns ue, on_slots and off_slots, or ue, on_seconds and off_seconds, not none"),
        ("ue,on,off\n" + GOOD, "not ue, on, off"),
        ("ue,on_slots,off_seconds\n" + GOOD, "the columns"),
        (HEADER + GOOD + "3,0,1\n", "with UEs from 0 to 2; line 6 has 3"),
        (HEADER + GOOD + "0.5,0,1\n", "line 6 has 0.5"),
        (HEADER + GOOD.replace("2,0,0\n", ""), "with a row for each of 3 UEs; UE 2 is missing"),
        (HEADER + GOOD + "2,5,4\n", "line 6"),
        (HEADER + GOOD + "2,-5,4\n", "line 6"),
        (HEADER + GOOD + "2,nan,4\n", "line 6"),
        (HEADER + GOOD + "2,inf,inf\n", "line 6"),
        (HEADER + GOOD + "2,5\n", "with 3 values in each row; line 6 has 2"),
        (HEADER + GOOD + "2,now,9\n", "of numbers; line 6"),
        (b"ue\xff", "that can be read"),
    ],
)  # fmt: skip
def test_defects_are_named_with_their_line(tmp_path: Path, text: str | bytes, line: str) -> None:
    with pytest.raises(InputError) as caught:
        listed(file(tmp_path, text))
    assert line in caught.value.allowed
    with pytest.raises(InputError, match="within the period, 25; line 3 has 30"):
        listed(file(tmp_path, HEADER + GOOD), period=25.0)


@given(st.binary(max_size=80) | st.text(st.sampled_from('ue,on_slotsf\n0123456789.-"nai '), max_size=80))
def test_any_other_content_is_refused_with_one_line(content: str | bytes) -> None:
    with tempfile.TemporaryDirectory() as folder, pytest.raises(InputError) as caught:
        listed(file(Path(folder), content if isinstance(content, bytes) else HEADER + content))
    assert "\n" not in str(caught.value)


def test_the_file_is_part_of_what_a_run_was_made_of(tmp_path: Path) -> None:
    small = {"data.ues": 3, "frame.slots": 3, "frame.pull": 2, "push.contenders": 1}
    part = {"name": "csv", "options": {"path": str(file(tmp_path, HEADER + GOOD))}}
    one = Scenario().replace({**small, "fleet.availability": part})
    before = fingerprints(one)
    file(tmp_path, HEADER + GOOD + "2,4,5\n")
    after = fingerprints(one)
    assert {name for name in after if after[name] != before.get(name)} == {"fleet.availability.options.path"}
    (tmp_path / "mine.csv").unlink()
    with pytest.raises(InputError, match=r"fleet\.availability\.options\.path: .* a (CSV )?file that can be read"):
        check(one)


def test_paths_of_a_scenario_file_are_relative_to_it(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("fleet: {availability: {name: csv, options: {path: on.csv}}}\n")
    availability = Scenario.load(tmp_path / "mine.yaml").fleet.availability
    assert availability is not None
    assert availability.options == {"path": str(tmp_path / "on.csv")}
