"""Scenarios that cannot be held are refused in a line; those that are not refused run within the memory there is."""

from __future__ import annotations

import math
import re
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedslot.data.sources import outline
from fedslot.learning.models import Model
from fedslot.rounds import memory
from fedslot.rounds.memory import check_memory, sizes_of, total
from fedslot.scenario import Scenario
from fedslot.support.errors import InputError

DIGITS = outline("digits")
NETWORK = Model.build("mlp", DIGITS.shape, DIGITS.classes, seed=0)
LARGE = st.integers(0, 9).map(lambda power: 10**power)
sizes = st.fixed_dictionaries(
    {
        "data.ues": LARGE,
        "data.samples_per_ue": LARGE,
        "frame.slots": st.integers(0, 6).map(lambda power: 10**power),
        "training.epochs": LARGE,
        "push.channel": st.sampled_from(["collision", "irsa"]),
        "valuation.name": st.sampled_from(["kriging", "cyclic", "gtg", "leave-one-out"]),
        "strategy.name": st.sampled_from(["fedavg", "push-pull", "merit-push"]),
        "aggregation.name": st.sampled_from(["average", "krum"]),
    }
)


def scenario(fields: dict[str, Any]) -> Scenario:
    return Scenario.load("quickstart", {"frame.pull": 0, "push.contenders": 0, **fields})


@given(sizes, st.integers(10**9, 10**12))
def test_what_the_line_says_would_fit_does(fields: dict[str, Any], limit: int) -> None:
    """And one more would not: the bound is exact for the estimate."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(memory, "memory", lambda: limit)
        if total(sizes_of(scenario(fields), DIGITS, NETWORK)) <= limit:
            check_memory(scenario(fields), DIGITS, NETWORK)
            return
        with pytest.raises(InputError) as caught:
            check_memory(scenario(fields), DIGITS, NETWORK)
        assert len(str(caught.value)) < 400
        if found := re.match(r"at most (\d+) here", caught.value.allowed):
            most, key = int(found[1]), caught.value.field
            check_memory(scenario({**fields, key: most}), DIGITS, NETWORK)
            with pytest.raises(InputError):
                check_memory(scenario({**fields, key: most + 1}), DIGITS, NETWORK)


@given(sizes, st.sampled_from(["data.ues", "frame.slots", "training.epochs", "data.samples_per_ue"]))
def test_larger_scenarios_take_no_less(fields: dict[str, Any], key: str) -> None:
    more = {**fields, key: 10**6 if key == "frame.slots" else 10**9}
    before, after = (total(sizes_of(scenario(each), DIGITS, NETWORK)) for each in (fields, more))
    assert math.isfinite(after)
    assert after >= before


def test_several_processes_share_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "memory", lambda: 10**9)
    check_memory(Scenario(), DIGITS, NETWORK, workers=2)
    with pytest.raises(InputError, match=r"workers: 3 .*at most 2 here; a run takes about 0\.4 of 1\.0 GB"):
        check_memory(Scenario(), DIGITS, NETWORK, workers=3)


LIMIT = 3000  # megabytes of address space, of which PyTorch and others take one at first
LIMITED = f"""
import resource, sys
resource.setrlimit(resource.RLIMIT_AS, ({LIMIT} * 10**6,) * 2)
from fedslot.cli import main
sys.exit(main())
"""
EXTREMES = [
    "data.ues=1000000000",
    "data.ues=60000000",
    "frame.slots=1000000 data.ues=1000000",
    "frame.slots=1000000",
    "frame.slots=3000 data.ues=4000 strategy.name=fedavg",
    "frame.slots=3000 data.ues=4000 strategy.name=greedy-shap valuation.name=cyclic",
    "frame.slots=3000 data.ues=4000 strategy.name=greedy-shap valuation.name=kriging",
    "training.epochs=1000000000",
    "training.epochs=1000000000 training.engine=torch",
    "push.contenders=10000000 data.ues=20000000 push.channel=irsa",
    "push.contenders=900000 data.ues=1000000 push.channel=irsa frame.slots=100000 strategy.name=merit-push",
    "valuation.name=gtg strategy.name=greedy-shap valuation.options.permutations=1000000000",
]


@pytest.mark.skipif(sys.platform != "linux", reason="needs limits of address space")
@pytest.mark.parametrize("fields", [EXTREMES[0], pytest.param(None, marks=pytest.mark.long, id="all")])
def test_extremes_run_or_are_refused(fields: str | None, tmp_path: Any) -> None:
    """In a process of little memory: a result, or one line; no traceback, and no process that is killed."""
    for number, each in enumerate([fields] if fields else EXTREMES):
        out = tmp_path / str(number)
        given = ["rounds=1", "data.samples_per_ue=5", "training.epochs=1", *each.split()]
        words = ["run", "quickstart", "--out", str(out), *(word for one in given for word in ("-o", one))]
        done = subprocess.run(
            [sys.executable, "-c", LIMITED, *words], capture_output=True, text=True, timeout=300, check=False
        )
        assert "Traceback" not in done.stderr
        assert done.returncode in (0, 2), (each, done.returncode, done.stderr[-300:])
        assert (done.returncode == 0) == (out / "summary.json").exists()
        assert out.exists() == (done.returncode == 0)
