"""Which device stands for which UE, with keys and without."""

from __future__ import annotations

import numpy as np
import pytest

from fedslot import RefusedError
from fedslot.deployment.roster import Roster


def roster(keyed: bool = False) -> Roster:
    """UEs 0 and 2 of three are a and c."""
    made = Roster(3, keyed)
    assert made.bind([("a", 0), ("c", 2)], {"a", "c"}, 0) == []
    return made


def test_only_reachable_nodes_are_online() -> None:
    assert roster().online({"c", "x"}) == {2: "c"}


@pytest.mark.parametrize("claim", [-1, 3, "1", True, 1.0, None, [1]])
def test_a_node_that_names_no_ue_is_turned_away(claim: object) -> None:
    made = roster()
    (fault,) = made.bind([("x", claim)], {"x"}, 4)
    assert (fault.round, fault.ue, fault.node, fault.reason) == (4, -1, "x", "claim")
    assert "x" not in made.nodes.values()


@pytest.mark.parametrize("keyed", [False, True])
def test_a_ue_changes_hands_only_without_keys_and_when_its_node_is_gone(keyed: bool) -> None:
    made = roster(keyed)
    (fault,) = made.bind([("x", 0)], {"a", "x"}, 1)
    assert (fault.ue, fault.node, fault.reason) == (0, "x", "taken")
    made.bind([("y", 0)], {"y"}, 2)
    assert made.nodes[0] == ("a" if keyed else "y")


def test_a_node_is_one_ue_only() -> None:
    made = roster()
    assert [fault.reason for fault in made.bind([("a", 1), ("a", 0)], {"a"}, 1)] == ["taken"]
    assert made.nodes == {0: "a", 2: "c"}


def test_the_first_to_claim_a_ue_gets_it_and_faults_are_noted_once() -> None:
    made = roster()
    claims = [("x", 1), ("y", 1)]
    assert [fault.node for fault in made.bind(claims, {"x", "y"}, 1)] == ["y"]
    assert made.bind(claims, {"x", "y"}, 2) == []
    assert made.nodes[1] == "x"


def test_a_roster_is_saved_and_restored() -> None:
    again = Roster(3, keyed=True)
    again.restore(roster().to_array())
    assert again.nodes == {0: "a", 2: "c"}
    for wrong in (np.array(["a"]), np.zeros(3)):
        with pytest.raises(RefusedError, match="not one name per UE"):
            again.restore(wrong)
