from dataclasses import dataclass, fields, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedslot.messages import Grant, Measured, Receipt
from fedslot.strategies import STRATEGIES, Asking, Cell, Ledger, NoState, Split
from fedslot.strategies.fedavg import FedAvg
from fedslot.support.errors import InputError

CELL = Cell(ues=10, slots=4, pull=2, contenders=3)


def _rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def _ues(*numbers: int) -> np.ndarray:
    return np.array(numbers, dtype=np.int64)


def _receipt(*ues: int) -> Receipt:
    """A frame in which these were received by pull."""
    measured = Measured(np.zeros(len(ues)), 1 + np.eye(len(ues)), 1.0) if ues else None
    return Receipt(_ues(*ues), np.arange(1, len(ues) + 1), _ues(), _ues(), _ues(), _ues(), slots=20, measured=measured)


def _ledger(*values: float) -> Ledger:
    value = np.array(values)
    return Ledger(value, np.isfinite(value).astype(np.int64))


# what the PS remembers


def test_a_ledger_with_fields_of_its_own_keeps_them():
    @dataclass(frozen=True)
    class Aged(Ledger):
        age: np.ndarray

    blank = Ledger.blank(3)
    aged = Aged(blank.value, blank.seen, age=np.array([5, 6, 7])).smooth(_receipt(1), np.array([2.0]), 0.5)
    assert type(aged) is Aged
    assert aged.value.tolist() == [-np.inf, 2.0, -np.inf]
    assert aged.age.tolist() == [5, 6, 7]


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=12))
def test_the_running_mean_is_the_mean(values):
    ledger = Ledger.blank(2)
    for value in values:
        ledger = ledger.smooth(_receipt(0), np.array([value]), "mean")
    assert ledger.value[0] == pytest.approx(np.mean(values), abs=1e-6)
    assert ledger.seen[0] == len(values)


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=12), st.floats(0, 0.99))
def test_smoothing_is_a_weighted_sum_of_all_that_was_observed(values, memory):
    """The newest has weight 1 - m, the one before m (1 - m), ..., the first m^(n-1)."""
    ledger = Ledger.blank(1)
    for value in values:
        ledger = ledger.smooth(_receipt(0), np.array([value]), memory)
    ages = np.arange(len(values))[::-1]
    weights = np.where(ages == len(values) - 1, 1.0, 1 - memory) * memory**ages
    assert ledger.value[0] == pytest.approx(weights @ np.array(values), rel=1e-9, abs=1e-6)


def test_values_go_to_the_ues_in_the_order_of_the_receipt():
    """Pushed UEs come behind the pulled ones."""
    receipt = Receipt(_ues(4, 1), _ues(1, 2), _ues(3), _ues(4), collided=_ues(0), wasted=_ues(2), slots=20)
    ledger = Ledger.blank(5).smooth(receipt, np.array([0.4, 0.1, 0.3]), 0.5)
    assert ledger.value.tolist() == [-np.inf, 0.1, -np.inf, 0.3, 0.4]
    assert ledger.seen.tolist() == [0, 1, 0, 1, 1]


def test_the_ledger_is_not_changed_in_place():
    before = _ledger(1.0, -np.inf)
    after = before.smooth(_receipt(), np.array([]), 0.5)
    before.smooth(_receipt(0, 1), np.array([9.0, 9.0]), 0.5)
    assert before.value.tolist() == after.value.tolist() == [1.0, -np.inf]
    assert before.seen.tolist() == after.seen.tolist() == [1, 0]


def test_the_spread_is_that_of_ues_with_a_value():
    assert _ledger(1.0, -np.inf, 3.0).spread == 1.0
    assert Ledger.blank(3).spread == _ledger(2.0, 2.0, -np.inf).spread == 1.0


# the strategies


def _warm_up_rounds(name: str, cell: Cell, rounds: int) -> list[Grant]:
    """Grants of the first rounds, if all that was granted is received and worth its index."""
    strategy = STRATEGIES.make(name, {}, cell)
    state, grants = strategy.init(), []
    for round in range(rounds):
        grant = strategy.schedule(state, round, _rng(round))
        grants.append(grant)
        state = strategy.observe(state, _receipt(*grant.pull), grant.pull.astype(float))
    return grants


@pytest.mark.parametrize("name", ["greedy-shap", "push-pull", "only-pull"])
@pytest.mark.parametrize(("ues", "slots"), [(8, 4), (10, 4), (3, 4), (4, 4), (7, 1), (200, 20)])
def test_the_full_pass_visits_each_ue_once(name, ues, slots):
    cell = Cell(ues=ues, slots=slots, pull=1)
    passes = -(-ues // slots)
    grants = _warm_up_rounds(name, cell, passes)
    in_turn = [grant.pull[: min(slots, ues - slots * round)] for round, grant in enumerate(grants)]
    assert np.concatenate(in_turn).tolist() == list(range(ues))
    for grant in grants:
        assert not grant.push
        assert len(set(grant.pull.tolist())) == len(grant.pull) == min(slots, ues)


@pytest.mark.parametrize(
    ("warmup", "round", "pull", "push"),
    [
        (None, 2, [8, 9, 7, 6], False),  # slots left over by the pass go to the most valued
        (5, 3, [9, 8, 7, 6], False),
        (5, 4, [9, 8, 7, 6], False),
        (5, 5, [9, 8], True),
        (1, 1, [3, 2], True),  # unseen UEs are never preferred to seen ones
        (0, 0, [0, 1], True),
    ],
)
def test_warm_up_by_hand(warmup, round, pull, push):
    """Ten UEs, four slots, worth their index."""
    grant = _warm_up_rounds("push-pull", replace(CELL, warmup=warmup), round + 1)[round]
    assert (grant.pull.tolist(), grant.push) == (pull, push)


STATE = _ledger(0.3, -np.inf, 0.9, 0.9, -0.5, 0.0, 0.3, -np.inf, 0.1, 0.2)


@pytest.mark.parametrize(
    ("name", "pull", "push"),
    [("greedy-shap", [2, 3, 0, 6], False), ("push-pull", [2, 3], True), ("only-pull", [2, 3], False)],
)
def test_the_most_valued_are_pulled_best_first_ties_by_index(name, pull, push):
    grant = STRATEGIES.make(name, {}, CELL).schedule(STATE, 9, _rng())
    assert grant.pull.tolist() == pull
    assert grant.push is push
    assert grant.probability is None  # the scenario's


def test_fedavg_is_uniform_over_the_ues():
    strategy = STRATEGIES.make("fedavg", {}, CELL)
    pulls = np.array([strategy.schedule(strategy.init(), round, _rng(round)).pull for round in range(5000)])
    assert pulls.shape == (5000, 4)
    assert all(len(set(pull)) == 4 for pull in pulls.tolist())
    counts, expected = np.bincount(pulls.ravel(), minlength=10), 2000
    # Pearson's statistic times (n - 1) / (n - k), for draws without replacement: chi-square, 9 degrees of freedom
    assert ((counts - expected) ** 2 / expected).sum() * 9 / 6 < 27.88
    first = np.bincount(pulls[:, 0], minlength=10)
    assert ((first - 500) ** 2 / 500).sum() < 27.88  # nor does the order of slots favour anyone
    few = STRATEGIES.make("fedavg", {}, Cell(ues=3, slots=5, pull=1))
    assert sorted(few.schedule(few.init(), 0, _rng()).pull.tolist()) == [0, 1, 2]


@pytest.mark.parametrize(
    ("ues", "slots", "share", "senders"),
    [(50, 10, 0.1, 5), (200, 20, 0.1, 20), (200, 5, 0.1, 5), (4, 9, 0.1, 1), (3, 9, 1.0, 3)],
)
def test_centralized_pulls_the_same_share_in_every_round(ues, slots, share, senders):
    strategy = STRATEGIES.make("centralized", {}, Cell(ues=ues, slots=slots, pull=0, share=share))
    grants = [strategy.schedule(strategy.init(), round, _rng(round)) for round in range(3)]
    assert all(grant.pull.tolist() == list(range(senders)) and not grant.push for grant in grants)


@pytest.mark.parametrize("name", STRATEGIES)
@given(ues=st.integers(1, 30), slots=st.integers(1, 12), data=st.data())
def test_grants_are_valid_in_any_cell(name, ues, slots, data):
    """Whatever was received, different UEs of the cell are pulled, at most one per slot."""
    slots = max(slots, 2) if name == "merit-push" else slots
    pull, seed = data.draw(st.integers(0, min(slots, ues))), data.draw(st.integers(0, 2**32))
    warmup, memory = data.draw(st.none() | st.integers(0, 3)), data.draw(st.just("mean") | st.floats(0, 0.99))
    cell = Cell(ues, slots, pull, contenders=None, warmup=warmup, memory=memory)
    strategy, rng = STRATEGIES.make(name, {}, cell), _rng(seed)
    state = strategy.init()
    for round in range(4):
        if isinstance(strategy, Asking):
            asked = strategy.ask(state, round, rng)
            assert len(set(asked.tolist())) == len(asked)
            state = strategy.hear(state, asked, rng.random(len(asked)))
        grant = strategy.schedule(state, round, rng)
        assert len(set(grant.pull.tolist())) == len(grant.pull) <= slots
        assert set(grant.pull.tolist()) <= set(range(ues))
        assert grant.probability in (None, "auto", 1.0)
        received = grant.pull[rng.random(len(grant.pull)) < 0.7]
        wasted = np.setdiff1d(grant.pull, received)
        receipt = replace(_receipt(*received), wasted=wasted)
        state = strategy.observe(
            state, receipt, rng.normal(size=len(received)) if strategy.needs_values else 0 * received
        )


@pytest.mark.parametrize("name", STRATEGIES)
def test_state_is_arrays_and_survives_being_written_and_read(name):
    """A strategy goes on as before from a copy of its state made field by field, which scheduling does not change."""
    strategy = STRATEGIES.make(name, {}, replace(CELL, warmup=2))
    state = strategy.init()
    for round in range(3):
        grant = strategy.schedule(state, round, _rng(round))
        state = strategy.observe(state, _receipt(*grant.pull), np.linspace(-1, 1, len(grant.pull)))
    copied = {field.name: np.array(getattr(state, field.name)) for field in fields(state)}
    assert all(array.dtype.kind in "bif" for array in copied.values())
    again = type(state)(**copied)
    for round in (3, 4):
        one, other = (strategy.schedule(s, round, _rng(round)) for s in (state, again))
        assert one.pull.tolist() == other.pull.tolist()
        assert (one.push, one.probability) == (other.push, other.probability)


LIMITS = {
    "ucb": [{"exploration": -1}, {"exploration": 10**400}, {"exploration": float("nan")}],
    "s-fedavg": [{"temperature": 0.001}],
    "planned": [{"frame_limit": limit} for limit in (1, float("nan"), "long", True)],
    "power-of-choice": [{"candidates": 3}, {"candidates": 11}, {"answer_slots": 2}],
    "scout": [{"horizon": 0}],
    "merit-push": [{"push": 0}, {"push": 1.5}, {"horizon": -1}, {"attribute": "age"}],
    "load-split": [{"hysteresis": -1}, {"least": 0}],
    "oort": [{"explore": 1.5}, {"decay": -1}, {"penalty": float("inf")}],
}


@pytest.mark.parametrize(("name", "options"), [(name, options) for name in LIMITS for options in LIMITS[name]])
def test_options_have_limits(name, options):
    with pytest.raises(InputError) as caught:
        STRATEGIES.make(name, options, CELL)
    assert caught.value.field == f"strategy.options.{next(iter(options))}"


class AsksOnly(FedAvg):
    def ask(self, state: NoState, round: int, rng: np.random.Generator) -> None: ...


@pytest.mark.parametrize(("name", "missing"), [("builtins:repr", "init"), (f"{__name__}:AsksOnly", "hear")])
def test_a_strategy_lacks_nothing(name, missing):
    with pytest.raises(InputError, match=f"strategy.name: .*it has no {missing}"):
        STRATEGIES.make(name, {}, CELL)


def _grants(name: str, cell: Cell) -> list[tuple[object, ...]]:
    """The grants of eight rounds in which every pulled UE is received, with values that differ over rounds."""
    strategy, rng = STRATEGIES.make(name, {}, cell), np.random.default_rng(3)
    state, grants = strategy.init(), []
    for round in range(8):
        grant = strategy.schedule(state, round, _rng(round))
        grants.append((grant.pull.tolist(), grant.push, grant.probability, grant.slots))
        state = strategy.observe(state, _receipt(*grant.pull), rng.normal(2, size=cell.ues)[grant.pull])
    return grants


SPLITS = [Split(pull, 5 - pull, 1.0, 2.5 * (pull < 5)) for pull in range(6)]


OTHERS = {"frame.pull": {"pull": 1}, "strategy.warmup": {"warmup": 0}, "strategy.memory": {"memory": 0.9}}
OTHERS |= {"strategy.share": {"share": 0.4}}


@pytest.mark.parametrize("name", [name for name in STRATEGIES if hasattr(STRATEGIES.find(name), "uses")])
def test_strategies_use_exactly_the_fields_that_they_declare(name):
    cell = Cell(ues=9, slots=5, pull=3, contenders=4, warmup=2, outlook=lambda limit: SPLITS)
    uses = STRATEGIES.find(name).uses
    plain = _grants(name, cell)
    used = {key for key, other in OTHERS.items() if _grants(name, replace(cell, **other)) != plain}
    # a strategy that opens push slots leaves their probability to the scenario, unless it sets one
    used |= {"push.probability"} if any(push and chance is None for _, push, chance, _ in plain) else set()
    assert used == {*uses} - {"push"}
    assert any(push for _, push, *_ in plain) == ("push" in uses)
    assert STRATEGIES.find(name).needs_values == ("strategy.memory" in uses)
    if "push" not in uses:
        assert _grants(name, replace(cell, contenders=1)) == plain
