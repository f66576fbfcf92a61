"""Which device stands for which UE, with keys and without."""

from __future__ import annotations

import numpy as np
import pytest

from fedslot import RefusedError
from fedslot.deployment.roster import Roster


def two_nodes(keyed: bool = False) -> Roster:
    """UEs 0 and 2 of three are a and c."""
    roster = Roster(3, keyed)
    assert roster.bind([("a", 0), ("c", 2)], {"a", "c"}, 0) == []
    return roster


def test_only_reachable_nodes_are_online() -> None:
    assert two_nodes().online({"c", "x"}) == {2: "c"}


@pytest.mark.parametrize("claim", [-1, 3, "1", True, 1.0, None, [1]])
def test_a_node_that_names_no_ue_is_turned_away(claim: object) -> None:
    roster = two_nodes()
    (fault,) = roster.bind([("x", claim)], {"x"}, 4)
    assert (fault.round, fault.ue, fault.node, fault.reason) == (4, -1, "x", "claim")
    assert "x" not in roster.nodes.values()


@pytest.mark.parametrize("keyed", [False, True])
def test_a_ue_changes_hands_only_without_keys_and_when_its_node_is_gone(keyed: bool) -> None:
    roster = two_nodes(keyed)
    (fault,) = roster.bind([("x", 0)], {"a", "x"}, 1)
    assert (fault.ue, fault.node, fault.reason) == (0, "x", "taken")
    roster.bind([("y", 0)], {"y"}, 2)
    assert roster.nodes[0] == ("a" if keyed else "y")


def test_a_node_is_one_ue_only() -> None:
    roster = two_nodes()
    assert [fault.reason for fault in roster.bind([("a", 1), ("a", 0)], {"a"}, 1)] == ["taken"]
    assert roster.nodes == {0: "a", 2: "c"}


def test_the_first_to_claim_a_ue_gets_it_and_faults_are_noted_once() -> None:
    roster = two_nodes()
    claims = [("x", 1), ("y", 1)]
    assert [fault.node for fault in roster.bind(claims, {"x", "y"}, 1)] == ["y"]
    assert roster.bind(claims, {"x", "y"}, 2) == []
    assert roster.nodes[1] == "x"


def test_a_roster_is_saved_and_restored() -> None:
    again = Roster(3, keyed=True)
    again.restore(two_nodes().to_array())
    assert again.nodes == {0: "a", 2: "c"}
    for wrong in (np.array(["a"]), np.zeros(3)):
        with pytest.raises(RefusedError, match="not one name per UE"):
            again.restore(wrong)
