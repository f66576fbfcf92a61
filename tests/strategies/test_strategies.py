from dataclasses import dataclass, fields, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedslot.messages import Grant, Measured, Receipt
from fedslot.strategies import STRATEGIES, Asking, Cell, Ledger, Split
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


def test_smoothing_by_hand():
    """memory 0.75: 8, then 0.75 * 8 + 0.25 * 4 = 7, then 0.75 * 7 + 0.25 * (-1) = 5."""
    ledger = Ledger.blank(3)
    seen = []
    for value in (8.0, 4.0, -1.0):
        ledger = ledger.smooth(_receipt(1), np.array([value]), 0.75)
        seen.append(ledger.value[1])
    assert seen == [8.0, 7.0, 5.0]
    assert ledger.seen.tolist() == [0, 3, 0]
    assert ledger.value[[0, 2]].tolist() == [-np.inf, -np.inf]


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


def test_without_memory_only_the_last_counts():
    ledger = _ledger(3.0, 5.0).smooth(_receipt(1), np.array([-2.0]), 0.0)
    assert ledger.value.tolist() == [3.0, -2.0]


def test_values_go_to_the_ues_in_the_order_of_the_receipt():
    """Pushed UEs come behind the pulled ones."""
    receipt = Receipt(_ues(4, 1), _ues(1, 2), _ues(3), _ues(4), collided=_ues(0), wasted=_ues(2), slots=20)
    ledger = Ledger.blank(5).smooth(receipt, np.array([0.4, 0.1, 0.3]), 0.5)
    assert ledger.value.tolist() == [-np.inf, 0.1, -np.inf, 0.3, 0.4]
    assert ledger.seen.tolist() == [0, 1, 0, 1, 1]


def test_the_ledger_is_not_changed_in_place():
    before = _ledger(1.0, 2.0)
    before.smooth(_receipt(0, 1), np.array([9.0, 9.0]), 0.5)
    assert before.value.tolist() == [1.0, 2.0]
    assert before.seen.tolist() == [1, 1]


def test_nothing_received_changes_nothing():
    before = _ledger(1.0, -np.inf)
    after = before.smooth(_receipt(), np.array([]), 0.5)
    assert after.value.tolist() == before.value.tolist()


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


def test_slots_left_over_by_the_pass_go_to_the_most_valued():
    """Ten UEs, four slots, worth their index: the third frame has UEs 8 and 9, then 7 and 6."""
    assert _warm_up_rounds("push-pull", CELL, 3)[2].pull.tolist() == [8, 9, 7, 6]


def test_warm_up_goes_on_greedily_and_ends():
    grants = _warm_up_rounds("push-pull", replace(CELL, warmup=5), 6)
    assert [grant.pull.tolist() for grant in grants[3:5]] == [[9, 8, 7, 6]] * 2
    assert not any(grant.push for grant in grants[:5])
    assert grants[5].pull.tolist() == [9, 8]
    assert grants[5].push


def test_a_warm_up_shorter_than_the_pass_leaves_ues_unseen():
    """One frame sees UEs 0 to 3; unseen ones are never preferred to seen ones."""
    grants = _warm_up_rounds("push-pull", replace(CELL, warmup=1), 2)
    assert grants[1].pull.tolist() == [3, 2]


def test_without_warm_up_the_first_pulls_are_by_index():
    grant = STRATEGIES.make("push-pull", {}, replace(CELL, warmup=0)).schedule(Ledger.blank(10), 0, _rng())
    assert grant.pull.tolist() == [0, 1]
    assert grant.push


STATE = _ledger(0.3, -np.inf, 0.9, 0.9, -0.5, 0.0, 0.3, -np.inf, 0.1, 0.2)


@pytest.mark.parametrize(
    ("name", "pull", "push"),
    [("greedy-shap", [2, 3, 0, 6], False), ("push-pull", [2, 3], True), ("only-pull", [2, 3], False)],
)
def test_the_most_valued_are_pulled_best_first_ties_by_index(name, pull, push):
    grant = STRATEGIES.make(name, {}, CELL).schedule(STATE, 9, _rng())
    assert grant.pull.tolist() == pull
    assert grant.push is push
    assert grant.probability == 1.0


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


def test_fedavg_with_fewer_ues_than_slots_pulls_them_all():
    grant = STRATEGIES.make("fedavg", {}, Cell(ues=3, slots=5, pull=1)).schedule(None, 0, _rng())
    assert sorted(grant.pull.tolist()) == [0, 1, 2]


@pytest.mark.parametrize(
    ("ues", "slots", "share", "senders"),
    [(50, 10, 0.1, 5), (200, 20, 0.1, 20), (200, 5, 0.1, 5), (4, 9, 0.1, 1), (3, 9, 1.0, 3)],
)
def test_centralized_pulls_the_same_share_in_every_round(ues, slots, share, senders):
    strategy = STRATEGIES.make("centralized", {}, Cell(ues=ues, slots=slots, pull=0, share=share))
    grants = [strategy.schedule(strategy.init(), round, _rng(round)) for round in range(3)]
    assert all(grant.pull.tolist() == list(range(senders)) and not grant.push for grant in grants)


def test_who_needs_values():
    needs = {name: STRATEGIES.make(name, {}, CELL).needs_values for name in STRATEGIES}
    assert {name for name in needs if needs[name]} == {
        "greedy-shap",
        "push-pull",
        "planned",
        "only-pull",
        "ucb",
        "s-fedavg",
    }


@pytest.mark.parametrize("name", STRATEGIES)
@given(ues=st.integers(1, 30), slots=st.integers(1, 12), data=st.data())
def test_grants_are_valid_in_any_cell(name, ues, slots, data):
    """Whatever was received, different UEs of the cell are pulled, at most one per slot."""
    slots = max(slots, 2) if name == "merit-push" else slots
    pull, seed = data.draw(st.integers(0, min(slots, ues))), data.draw(st.integers(0, 2**32))
    warmup, memory = data.draw(st.none() | st.integers(0, 3)), data.draw(st.just("mean") | st.floats(0, 0.99))
    cell = Cell(ues, slots, pull, contenders=None, probability="auto", warmup=warmup, memory=memory)
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
        assert 0 < grant.probability <= 1
        received = grant.pull[rng.random(len(grant.pull)) < 0.7]
        wasted = np.setdiff1d(grant.pull, received)
        receipt = replace(_receipt(*received), wasted=wasted)
        state = strategy.observe(
            state, receipt, rng.normal(size=len(received)) if strategy.needs_values else 0 * received
        )


def test_barring_counts_only_ues_that_are_not_pulled():
    assert Cell(ues=20, slots=20, pull=14, contenders=16, probability="auto").barring(14) == 1.0
    assert Cell(ues=20, slots=16, pull=14, contenders=16, probability="auto").barring(14) == pytest.approx(2 / 6)


@pytest.mark.parametrize(
    ("slots", "pull", "contenders", "expected"),
    [
        (20, 10, 40, 0.25),  # ten slots for forty
        (20, 10, 10, 1.0),
        (20, 10, 5, 1.0),
        (20, 10, 0, 1.0),
        (20, 20, 10, 1.0),  # no push slots: nothing to bar
        (20, 10, None, 10 / 90),  # all that are not pulled
    ],
)
def test_automatic_barring_keeps_one_contender_per_push_slot(slots, pull, contenders, expected):
    cell = Cell(ues=100, slots=slots, pull=pull, contenders=contenders, probability="auto", warmup=0)
    grant = STRATEGIES.make("push-pull", {}, cell).schedule(Ledger.blank(100), 0, _rng())
    assert grant.probability == pytest.approx(expected)


def test_a_fixed_barring_probability_is_passed_on():
    cell = replace(CELL, probability=0.3, warmup=0)
    assert STRATEGIES.make("push-pull", {}, cell).schedule(Ledger.blank(10), 0, _rng()).probability == 0.3


@pytest.mark.parametrize("name", STRATEGIES)
def test_state_is_arrays_and_survives_being_written_and_read(name):
    """A strategy goes on as before from a copy of its state made field by field."""
    strategy = STRATEGIES.make(name, {}, replace(CELL, warmup=2))
    state = strategy.init()
    for round in range(3):
        grant = strategy.schedule(state, round, _rng(round))
        state = strategy.observe(state, _receipt(*grant.pull), np.linspace(-1, 1, len(grant.pull)))
    copied = {field.name: np.array(getattr(state, field.name)) for field in fields(state)}
    assert all(array.dtype.kind in "if" for array in copied.values())
    again = type(state)(**copied)
    for round in (3, 4):
        one, other = (strategy.schedule(s, round, _rng(round)) for s in (state, again))
        assert one.pull.tolist() == other.pull.tolist()
        assert (one.push, one.probability) == (other.push, other.probability)


@pytest.mark.parametrize("name", STRATEGIES)
def test_scheduling_is_a_pure_function(name):
    strategy = STRATEGIES.make(name, {}, CELL)
    state = strategy.init()
    grants = [strategy.schedule(state, 3, _rng(5)) for _ in range(2)]
    assert grants[0].pull.tolist() == grants[1].pull.tolist()


@dataclass(frozen=True)
class Turn:
    next: np.ndarray


class InTurn:
    """A user's own strategy that pulls UEs in turn, in as many slots as its option says."""

    needs_values = False

    def __init__(self, cell: Cell, *, width: int = 3) -> None:
        self.cell, self.width = cell, width

    def init(self) -> Turn:
        return Turn(np.array(0))

    def schedule(self, state: Turn, round: int, rng: np.random.Generator) -> Grant:
        return Grant((int(state.next) + np.arange(self.width)) % self.cell.ues)

    def observe(self, state: Turn, receipt: Receipt, values: np.ndarray) -> Turn:
        return Turn(state.next + self.width)


class AsksOnly(InTurn):
    def ask(self, state: Turn, round: int, rng: np.random.Generator) -> None: ...


def test_a_strategy_of_ones_own_by_import_path():
    strategy = STRATEGIES.make(f"{__name__}:InTurn", {"width": 4}, CELL)
    state, pulls = strategy.init(), []
    for round in range(3):
        grant = strategy.schedule(state, round, _rng())
        pulls.append(grant.pull.tolist())
        state = strategy.observe(state, _receipt(*grant.pull), np.zeros(4))
    assert pulls == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 0, 1]]


@pytest.mark.parametrize(
    ("name", "option", "least"), [("ucb", "exploration", 0), ("s-fedavg", "temperature", 0.01), ("scout", "horizon", 1)]
)
def test_options_have_limits(name, option, least):
    for value in (least - 1, 10**400, float("nan")):
        with pytest.raises(InputError) as caught:
            STRATEGIES.make(name, {option: value}, CELL)
        assert caught.value.field == f"strategy.options.{option}"
    assert STRATEGIES.make(name, {option: least}, CELL)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("fedavq", "did you mean fedavg?"),
        ("builtins:list", "a strategy that can be built from (cell)"),
        ("builtins:repr", "it has no init"),
        (f"{__name__}:AsksOnly", "it has no hear"),
    ],
)
def test_what_is_no_strategy_is_refused_with_one_line(name, reason):
    with pytest.raises(InputError) as caught:
        STRATEGIES.make(name, {}, CELL)
    assert caught.value.field == "strategy.name"
    assert reason in str(caught.value)
    assert "\n" not in str(caught.value)


def _grants(name: str, cell: Cell) -> list[tuple[object, ...]]:
    """The grants of eight rounds in which every pulled UE is received, with values that differ over rounds."""
    strategy, rng = STRATEGIES.make(name, {}, cell), np.random.default_rng(3)
    state, grants = strategy.init(), []
    for round in range(8):
        grant = strategy.schedule(state, round, _rng(round))
        grants.append((grant.pull.tolist(), grant.push, grant.push and grant.probability, grant.slots))
        state = strategy.observe(state, _receipt(*grant.pull), rng.normal(2, size=cell.ues)[grant.pull])
    return grants


def _splits(probability: float) -> list[Split]:
    return [Split(pull, 5 - pull, probability, 2.5 * (pull < 5)) for pull in range(6)]


OTHERS = {"frame.pull": {"pull": 1}, "strategy.warmup": {"warmup": 0}, "strategy.memory": {"memory": 0.9}}
OTHERS |= {"strategy.share": {"share": 0.4}}
OTHERS |= {"push.probability": {"probability": 0.5, "outlook": lambda limit: _splits(0.5)}}


@pytest.mark.parametrize("name", [name for name in STRATEGIES if hasattr(STRATEGIES.find(name), "uses")])
def test_strategies_use_exactly_the_fields_that_they_declare(name):
    cell = Cell(ues=9, slots=5, pull=3, contenders=4, warmup=2, outlook=lambda limit: _splits(1.0))
    uses = STRATEGIES.find(name).uses
    plain = _grants(name, cell)
    assert {key for key, other in OTHERS.items() if _grants(name, replace(cell, **other)) != plain} == {*uses} - {
        "push"
    }
    assert any(push for _, push, *_ in plain) == ("push" in uses)
    if "push" not in uses:
        assert _grants(name, replace(cell, contenders=1, probability=0.5)) == plain
