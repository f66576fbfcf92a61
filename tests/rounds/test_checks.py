"""What a user's own strategy or aggregation returns is used as it is meant, or refused in one line."""

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
import torch

from fedslot.aggregation import Aggregate
from fedslot.messages import Grant, Merit, NoState
from fedslot.rounds.checks import check_aggregate, check_grant, check_state
from fedslot.rounds.states import restore_state, state_arrays
from fedslot.scenario import Scenario
from fedslot.support.errors import RefusedError

SCENARIO = Scenario(data={"ues": 12}, frame={"slots": 5, "pull": 2}, push={"contenders": 4})
PART = "round 3: strategy mine:Own"


@dataclass(frozen=True)
class State:
    counts: Any = field(default_factory=lambda: np.zeros(4))
    turn: Any = 0


@dataclass(frozen=True)
class Derived:
    turn: int = 0
    double: int = field(init=False, default=0)


@pytest.mark.parametrize("pull", [[3, 1], (3, 1), np.array([3, 1], dtype=np.int32), range(3, 0, -2)])
def test_whole_numbers_of_any_kind_name_ues(pull):
    grant = check_grant(PART, Grant(pull, np.bool_(True), np.float32(0.5)), SCENARIO)  # type: ignore[arg-type]
    assert (grant.pull.dtype, grant.pull.tolist()) == (np.int64, [3, 1])
    assert (grant.push, grant.probability) == (True, 0.5)
    assert type(grant.push) is bool
    assert type(grant.probability) is float


def test_a_grant_may_pull_no_one():
    assert check_grant(PART, Grant([]), SCENARIO).pull.dtype == np.int64  # type: ignore[arg-type]


UES = "must grant pull slots to at most 5 different UEs, from 0 to 11, not"
WRONG_PULLS = [
    *([0.5, 1.0], [0.0, 1.0], [True, False], ["1"], [[1, 2]], [[1, 2], [3]], 3, None),
    *([1, 1], [12], [-1], [10**30], np.arange(6)),
]


@pytest.mark.parametrize(
    ("grant", "told"),
    [
        (None, "must return a Grant from schedule\\(\\), not None"),
        (np.arange(3), "must return a Grant from schedule\\(\\), not int64 of shape"),
        *[(Grant(pull), UES) for pull in WRONG_PULLS],
        (Grant([1], slots=6), "must grant 0 to 5 uplink slots, or None for all, not the int 6"),
        (Grant([1], slots=2.5), "must grant 0 to 5 uplink slots, or None for all, not the float 2.5"),
        (Grant([1], slots=True), "must grant 0 to 5 uplink slots"),
        (Grant([1, 2, 3], slots=2), "must grant pull slots to at most 2 different UEs"),
        (Grant([1], merit=0.5), "must announce a Merit or None, not the float 0.5"),
        (
            Grant([1], merit=Merit("luck")),
            "must announce a merit by noise, samples, loss, norm, age, value, not the str 'luck'",
        ),
        (Grant([1], merit=Merit("age")), "announced a merit by age, which needs `told`"),
        (Grant([1], merit=Merit("noise", told=np.zeros(12))), "announced a merit by noise, which takes no `told`"),
        (Grant([1], merit=Merit("noise", most=math.nan)), "must announce a merit from one number to another"),
        (Grant([1], merit=Merit("age", told=np.zeros(3))), "must announce a merit with one number told to each UE"),
        (Grant([1], merit=Merit("age", told=["a"] * 12)), "must announce a merit with one number told to each UE"),
        (Grant([1], push="yes"), "must grant push as True or False, not the str 'yes'"),
        (Grant([1], probability=1.7), "must grant a probability from 0 to 1, not the float 1.7"),
        (Grant([1], probability=float("nan")), "must grant a probability from 0 to 1, not the float nan"),
        (Grant([1], probability="best"), "must grant a probability from 0 to 1, auto or None, not the str 'best'"),
        (Grant([1], probability=np.array([0.5, 0.5])), "must grant a probability from 0 to 1, not float64 of shape"),
        (Grant([1], probability=True), "must grant a probability from 0 to 1, not the bool True"),
    ],
)
def test_grants_that_no_frame_can_hold_are_refused(grant, told):
    with pytest.raises(RefusedError, match=f"^{PART} {told}") as caught:
        check_grant(PART, grant, SCENARIO)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 250


@pytest.mark.parametrize(
    "state", [State(), NoState(), State(torch.zeros(3)), State(np.array(0)), State(True, 0.5), State(np.int8(3))]
)
def test_states_of_arrays_and_numbers_can_be_saved(state):
    check_state(PART, "init", state)
    check_state(PART, "observe", state, state)


@pytest.mark.parametrize("number", [np.float32(0.1), np.int8(3), np.bool_(True), np.array(2.0), 0.1, 3, True])
def test_a_number_comes_back_from_a_checkpoint_as_it_was(number):
    state = State(turn=number)
    restored = restore_state(state, state_arrays(state))
    assert (type(restored.turn), restored.turn) == (type(number), number)
    check_state(PART, "observe", state, restored)


def test_a_number_may_become_one_of_numpy():
    check_state(PART, "observe", State(turn=np.int64(3)), State(turn=0))
    check_state(PART, "observe", State(turn=np.int64(3)), State(turn=np.array(0)))


NUMBERS = "must return from init\\(\\) a state with counts as an array of numbers or a number"


@pytest.mark.parametrize(
    ("state", "told"),
    [
        (None, "must return from init\\(\\) a dataclass of arrays and numbers, not None"),
        ({"counts": 1}, "must return from init\\(\\) a dataclass of arrays and numbers, not the dict"),
        (State, "must return from init\\(\\) a dataclass of arrays and numbers, not the type"),
        (State([1, 2]), NUMBERS),
        (State("word"), NUMBERS),
        (State(None), NUMBERS),
        (State(np.array(["a"])), NUMBERS),
        (State(np.array([None])), NUMBERS),
        (State(10**30), NUMBERS),
        (Derived(), "must return from init\\(\\) a dataclass whose constructor takes all fields, unlike double"),
    ],
)
def test_states_that_a_checkpoint_cannot_save_are_refused(state, told):
    with pytest.raises(RefusedError, match=f"^{PART} {told}") as caught:
        check_state(PART, "init", state)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("state", "told"),
    [
        (NoState(), "a State, as before, not the NoState"),
        (None, "a dataclass of arrays and numbers, not None"),
        (State(np.zeros(5)), "a state with counts as float64 of shape \\(4,\\), as before.* not float64 of shape"),
        (State(np.zeros(4, dtype=int)), "a state with counts as float64 .* not int64"),
        (State(torch.zeros(4)), "a state with counts as float64 .* not torch.float32"),
        (State(turn=0.5), "a state with turn as int64 .* not float64"),
    ],
)
def test_states_of_another_form_are_refused(state, told):
    with pytest.raises(RefusedError, match=rf"^{PART} must return from observe\(\) {told}"):
        check_state(PART, "observe", state, State())


@pytest.mark.parametrize(
    ("new", "told"),
    [
        (torch.zeros(3), "an Aggregate from apply"),
        (Aggregate([0.0] * 3, torch.zeros(3), NoState()), "models as tensors"),
        (Aggregate(torch.zeros(3), torch.zeros(2), NoState()), "models as tensors"),
        (Aggregate(torch.zeros(3).double(), torch.zeros(3), NoState()), "models as tensors"),
        (Aggregate(torch.zeros(3, requires_grad=True), torch.zeros(3), NoState()), "models as tensors"),
        (Aggregate(torch.zeros(3), torch.zeros(3), NoState(), "0.5"), "val_loss as a float or None"),
        (Aggregate(torch.zeros(3), torch.zeros(3), None), "from apply\\(\\) a dataclass"),
        (Aggregate(torch.zeros(3), torch.zeros(3), State()), "from apply\\(\\) a NoState"),
    ],
)
def test_aggregates_unlike_the_broadcast_model_are_refused(new, told):
    with pytest.raises(RefusedError, match=f"^round 3: aggregation mine:Own must return {told}"):
        check_aggregate("round 3: aggregation mine:Own", new, torch.zeros(3), NoState())
