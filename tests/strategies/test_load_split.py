from dataclasses import replace

import numpy as np
import pytest

from fedslot import Scenario
from fedslot.messages import Receipt
from fedslot.rounds.simulation import Simulation
from fedslot.strategies import STRATEGIES, Cell
from fedslot.strategies.load_split import MEMORY, SplitLedger

NONE = np.empty(0, dtype=np.int64)
CELL = Cell(ues=30, slots=10, pull=6, warmup=0)


def _after(excesses: list[float], state: SplitLedger | None = None, cell: Cell = CELL, **options: float) -> SplitLedger:
    """Return the state after frames in which so many UEs too many could have contended."""
    strategy = STRATEGIES.make("load-split", options, cell)
    state = strategy.init() if state is None else state
    for excess in excesses:
        receipt = Receipt(NONE, NONE, NONE, NONE, NONE, NONE, slots=10, open_slots=state.push, excess=excess)
        state = strategy.observe(state, receipt, np.empty(0))
    return state


def test_the_first_frame_has_the_split_of_the_scenario():
    state = _after([])
    grant = STRATEGIES.make("load-split", {}, CELL).schedule(state, 0, np.random.default_rng(0))
    assert (len(grant.pull), grant.push, grant.slots, grant.probability) == (6, True, None, None)


def test_a_slot_changes_sides_only_beyond_the_hysteresis():
    """Four push slots and a hysteresis of 0.5: two UEs more or less change nothing, however long."""
    assert _after([1.9] * 50, hysteresis=0.5).push == 4
    assert _after([-1.9] * 50, hysteresis=0.5).push == 4
    frames = 1 + int(np.log(1 - 2 / 4) / np.log(MEMORY))  # until 4 (1 - MEMORY^n) > 2
    assert _after([4.0] * (frames - 1), hysteresis=0.5).push == 4
    assert _after([4.0] * frames, hysteresis=0.5).push == 5
    assert _after([-4.0] * frames, hysteresis=0.5).push == 3


def test_some_slots_always_push_and_some_pull():
    assert _after([100.0] * 100, least=2).push == 8
    assert _after([-100.0] * 100, least=2).push == 2
    assert _after([100.0] * 9, cell=replace(CELL, slots=1, pull=1)).push == 1


def test_a_frame_without_push_slots_says_nothing_of_the_load():
    state = _after([])
    receipt = Receipt(NONE, NONE, NONE, NONE, NONE, NONE, slots=10, excess=50.0)
    assert STRATEGIES.make("load-split", {}, CELL).observe(state, receipt, np.empty(0)).push == state.push


@pytest.mark.parametrize("channel", ["collision", "capture"])
def test_the_number_of_push_slots_follows_the_load(channel: str):
    """In a quiet cell few slots push, and where twice as many UEs contend as slots are open, all but one do."""
    fields = {"strategy.name": "load-split", "strategy.warmup": 0, "training.epochs": 1, "data.samples_per_ue": 5}
    fields |= {"frame": {"slots": 12, "pull": 6}, "rounds": 60, "valuation.name": "leave-one-out"}
    push = {}
    for contenders in (1, 40):
        more = {"push.contenders": contenders, "push.channel": channel, "push.probability": "auto", "data.ues": 80}
        last = [record for record, *_ in Simulation(Scenario(**{**fields, **more})).rounds()][30:]
        push[contenders] = np.mean([record.slots - record.pulled for record in last])
    assert push[1] < 4.5
    assert push[40] > 10
