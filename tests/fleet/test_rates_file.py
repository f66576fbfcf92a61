import csv
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedslot.experiments.tasks import check
from fedslot.fleet import link_rates
from fedslot.runs.provenance import fingerprints
from fedslot.scenario import Scenario
from fedslot.support.errors import InputError

UES = 6
GOOD = "".join(f"{ue},0.5\n" for ue in range(UES))
SMALL = {"data.ues": UES, "frame.slots": 3, "frame.pull": 2, "push.contenders": 2}


def scenario(path: Path | str, ues: int = UES) -> Scenario:
    rates = {"name": "csv", "options": {"path": str(path)}}
    return Scenario().replace({**SMALL, "data.ues": ues, "radio.rates": rates})


def file(folder: Path, text: str | bytes) -> Path:
    path = folder / "rates.csv"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


rows = st.lists(st.tuples(st.floats(1e-6, 1), st.floats(0, 0.999)), min_size=4, max_size=20)


@given(rows, st.randoms(), st.permutations(["ue", "rate", "outage"]))
def test_any_order_of_rows_and_columns_is_read(links, random, columns):
    table = [{"ue": ue, "rate": rate, "outage": outage} for ue, (rate, outage) in enumerate(links)]
    random.shuffle(table)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rates.csv"
        with path.open("w", newline="") as stream:
            writer = csv.DictWriter(stream, columns)
            writer.writeheader()
            writer.writerows(table)
        rates, outage = link_rates(scenario(path, len(links)))
    assert list(zip(rates, outage, strict=True)) == links


@given(st.binary(max_size=80) | st.text(st.sampled_from('ue,rate\n0123456789.-"nainf '), max_size=80))
def test_any_other_content_is_refused_with_one_line(content):
    with tempfile.TemporaryDirectory() as folder:
        path = file(Path(folder), content)
        with pytest.raises(InputError) as caught:
            link_rates(scenario(path))
    assert caught.value.field == "radio.rates.options.path"
    assert "\n" not in str(caught.value)


def test_files_of_spreadsheets_are_read(tmp_path: Path):
    """With a byte-order mark and Windows' ends of lines."""
    text = "ue,rate\n" + GOOD
    rates, outage = link_rates(scenario(file(tmp_path, b"\xef\xbb\xbf" + text.replace("\n", "\r\n").encode())))
    assert rates.tolist() == [0.5] * UES
    assert not outage.any()


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("", "with the columns ue, rate and, if you like, outage, not none"),
        ("ue,speed\n" + GOOD, "with the columns ue, rate and, if you like, outage, not ue, speed"),
        ("ue,rate,rate\n" + GOOD, "with the columns"),
        ("ue,rate\n" + GOOD + "6,0.5\n", "with UEs from 0 to 5; line 8 has 6"),
        ("ue,rate\n" + GOOD.replace("3,", "2.5,"), "with UEs from 0 to 5; line 5 has 2.5"),
        ("ue,rate\n" + GOOD + "2,0.5\n", "with one row for each UE; line 8 has UE 2 again"),
        ("ue,rate\n" + GOOD.replace("4,0.5\n", ""), "with a row for each of 6 UEs; UE 4 is missing"),
        ("ue,rate\n" + GOOD.replace("1,0.5", "1,1.5"), "rates above 0 and at most 1, that of the slot; line 3 has 1.5"),
        ("ue,rate\n" + GOOD.replace("1,0.5", "1,nan"), "line 3 has nan"),
        ("ue,rate\n" + GOOD.replace("1,0.5", "1,0"), "line 3 has 0"),
        ("ue,rate\n" + GOOD.replace("1,0.5", "1,fast"), "of numbers; line 3 has 'fast'"),
        ("ue,rate\n" + GOOD.replace("1,0.5", "1"), "with 2 values in each row; line 3 has 1"),
        ("ue,rate,outage\n" + GOOD.replace("0.5", "0.5,1"), "probabilities from 0 to below 1; line 2 has 1"),
        (b"ue,rate\n\xff", "that can be read"),
    ],
)  # fmt: skip
def test_defects_are_named_with_their_line(tmp_path: Path, text, line):
    with pytest.raises(InputError) as caught:
        link_rates(scenario(file(tmp_path, text)))
    assert caught.value.field == "radio.rates.options.path"
    assert line in caught.value.allowed


def test_files_that_are_absent_are_refused_before_a_study_begins(tmp_path: Path):
    for path in (tmp_path / "none.csv", tmp_path):
        with pytest.raises(InputError, match=r"radio\.rates\.options\.path: .* is not allowed"):
            check(scenario(path))
    with pytest.raises(InputError, match=r"path: '' is not allowed; it must be the path of a file that ends in \.csv"):
        link_rates(Scenario().replace({**SMALL, "radio.rates": "csv"}))
    check(scenario(file(tmp_path, "ue,rate\n" + GOOD)))


def test_the_file_is_part_of_what_a_run_was_made_of(tmp_path: Path):
    one = scenario(file(tmp_path, "ue,rate\n" + GOOD))
    before = fingerprints(one)
    assert before == fingerprints(one)
    file(tmp_path, "ue,rate\n" + GOOD.replace("1,0.5", "1,0.25"))
    after = fingerprints(one)
    assert {name for name in after if after[name] != before.get(name)} == {"radio.rates.options.path"}
    (tmp_path / "rates.csv").unlink()
    with pytest.raises(InputError, match=r"radio\.rates\.options\.path: .* a file that can be read"):
        fingerprints(one)
    assert "radio.rates.options.path" not in fingerprints(Scenario())


def test_rates_are_those_of_the_ues(tmp_path: Path):
    text = "rate,ue\n" + "".join(f"{(ue + 1) / 10},{ue}\n" for ue in reversed(range(UES)))
    rates, _ = link_rates(scenario(file(tmp_path, text)))
    np.testing.assert_allclose(rates, (np.arange(UES) + 1) / 10)
