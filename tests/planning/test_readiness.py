"""Readiness by slot, against brute force, against one probability for all slots, and against frames that are played."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedslot.access.channels import make_channel
from fedslot.access.clock import cost_max, cost_sum
from fedslot.access.frame import play
from fedslot.messages import Grant
from fedslot.planning.planner import plan
from fedslot.planning.pushes import best_barring
from fedslot.planning.readiness import ReadinessBySlot, SameReadiness, make_readiness
from fedslot.support.errors import InputError

rising = st.lists(st.floats(0, 1), min_size=1, max_size=6).map(sorted)


@given(rising, st.data())
def test_pull_slots_against_all_outcomes(chances: list[float], data: st.DataObject) -> None:
    pull = data.draw(st.integers(0, len(chances)))
    after = data.draw(st.integers(0, pull))
    readiness = make_readiness(chances, len(chances))
    pulled = last = costs = none = 0.0
    for ready in product([False, True], repeat=pull):
        chance = math.prod(p if is_ready else 1 - p for p, is_ready in zip(chances, ready, strict=False))
        used = [slot for slot, is_ready in enumerate(ready, 1) if is_ready]
        pulled += chance * len(used)
        last += chance * max(used, default=0)
        costs += chance * sum(slot + 1 for slot in used)
        none += chance * (max(used, default=0) <= after)
    assert readiness.pulled(pull) == pytest.approx(pulled)
    assert readiness.last_pull(pull) == pytest.approx(last, abs=1e-12)
    assert readiness.cost_sum(pull) == pytest.approx(costs)
    assert readiness.none_after(after, pull) == pytest.approx(none, abs=1e-12)


@given(st.floats(0, 1), st.integers(0, 8), st.data())
def test_equal_probabilities_are_one(probability: float, pull: int, data: st.DataObject) -> None:
    same, by_slot = SameReadiness(probability), ReadinessBySlot(np.full(8, probability))
    slot = data.draw(st.integers(0, pull))
    for method, arguments in [
        ("pulled", (pull,)),
        ("last_pull", (pull,)),
        ("cost_sum", (pull,)),
        ("none_after", (slot, pull)),
    ]:
        assert getattr(by_slot, method)(*arguments) == pytest.approx(getattr(same, method)(*arguments), abs=1e-12)


def test_ready_from_the_start_is_always_ready() -> None:
    for barring in (1.0, 0.4, "best"):
        late = plan(9, 12, ready=np.ones(9), barring=barring, value_ratio=2.0)
        usual = plan(9, 12, barring=barring, value_ratio=2.0)
        for one, other in zip(late.splits, usual.splits, strict=True):
            for name, value in one.as_dict().items():
                same = getattr(other, name)
                assert value == (same if same in (None, {}) else pytest.approx(same, rel=1e-6, abs=1e-9)), name


@pytest.mark.parametrize(("channel", "probability"), [("collision", 1.0), ("collision", 0.5), ("crdsa", 1.0)])
def test_late_ues_against_frames_that_are_played(channel: str, probability: float) -> None:
    """Computing times of 0.5 to 6 slots: those that are pulled early waste their slot, contenders use later slots."""
    frames, slots, pull, contenders, rng = 6000, 8, 3, 6, np.random.default_rng(3)
    ready = [np.clip((z - 0.5) / 5.5, 0, 1) for z in range(slots)]  # P(T <= z) of a uniform T
    medium, grant = make_channel(channel), Grant(np.arange(pull), push=True, probability=probability)
    receipts = [
        play(grant, slots, np.arange(pull, pull + contenders), rng.uniform(0.5, 6, pull + contenders), medium, rng, rng)
        for _ in range(frames)
    ]
    split = plan(slots, contenders, pulls=[pull], ready=ready, barring=probability, channel=channel, frames=20_000).best
    for expected, found in {
        split.expected_received: [len(receipt.received) for receipt in receipts],
        split.expected_received_push: [len(receipt.pushed) for receipt in receipts],
        split.expected_cost_max: [cost_max(receipt) for receipt in receipts],
        split.expected_cost_sum: [cost_sum(receipt) for receipt in receipts],
        split.expected_sent: [np.count_nonzero(receipt.attempts.slots) for receipt in receipts],
        split.nothing_pushed: [not len(receipt.pushed) for receipt in receipts],
        split.success_probability * np.mean([receipt.contenders for receipt in receipts]): [
            len(receipt.pushed) for receipt in receipts
        ],
    }.items():
        assert abs(np.mean(found) - expected) < 4.5 * np.std(found) * math.sqrt(1 / frames + 1 / 20_000) + 1e-9


def test_best_barring_of_late_ues_beats_all_others() -> None:
    ready = [0.0, 0.2, 0.5, 0.8, 1.0]
    best = plan(5, 30, pulls=[1], ready=ready, barring="best").best
    others = [plan(5, 30, pulls=[1], ready=ready, barring=p / 50).best for p in range(1, 51)]
    assert 0 < best.probability < 1
    assert best.expected_received_push >= max(split.expected_received_push for split in others) - 1e-9


def test_best_barring_by_shares_is_that_of_equal_slots() -> None:
    pmf = np.zeros(41)
    pmf[[7, 40]] = 0.5
    assert best_barring(10, pmf, np.full(10, 0.1)) == pytest.approx(best_barring(10, pmf), rel=1e-6)


@pytest.mark.parametrize(
    ("field", "slots", "contenders", "options"),
    [
        *(("ready", 2, 3, {"ready": ready}) for ready in ([0.5, 0.4], [0.5], [0.5, 1.1], [-0.1, 0.5], [0.5, math.nan])),
        ("frame_limit", 3, 3, {"ready": [0.1, 0.2, 0.3], "frame_limit": 3}),
        ("slots", 200, 100_000, {"ready": np.linspace(0, 1, 200)}),  # would take hours
    ],
)
def test_bad_plans_are_refused(field: str, slots: int, contenders: int, options: dict) -> None:
    with pytest.raises(InputError) as refusal:
        plan(slots, contenders, **options)
    assert refusal.value.field == field
