"""UEs on slow links: how many of them fit into a frame, and how their bursts contend."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedslot.access import Capture, Collision
from fedslot.access.frame import COLLIDED, SILENT, contend, play, resolve
from fedslot.access.reach import fit_bursts
from fedslot.messages import Grant


def _rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def _received_by_enumeration(bursts: list[int], slots: int) -> float:
    """Return the mean number of received bursts, over all slots in which they may begin."""
    starts = [range(slots - burst + 1) for burst in bursts]
    total = count = 0
    for first in product(*starts):
        used = [set(range(begin, begin + burst)) for begin, burst in zip(first, bursts, strict=True)]
        total += sum(all(a.isdisjoint(b) for j, b in enumerate(used) if j != i) for i, a in enumerate(used))
        count += 1
    return total / count


@pytest.mark.parametrize(("bursts", "slots"), [([1, 1, 1], 4), ([2, 1, 3], 5), ([2, 2], 3), ([3, 1, 1, 2], 6)])
def test_bursts_collide_where_they_overlap(bursts: list[int], slots: int) -> None:
    own, rng, frames = np.array(bursts), _rng(), 4000
    received = []
    for _ in range(frames):
        sent = contend(np.zeros(len(own)), slots, 1.0, Collision(), rng, own)
        assert (np.count_nonzero(sent, axis=1) == own).all()
        assert ((np.diff(sent, axis=1) == 1) | (sent[:, 1:] == 0)).all()  # consecutive slots
        assert sent.max() <= slots
        received.append(np.count_nonzero(resolve(sent, slots, Collision(), rng, own) > 0))
    error = np.std(received) / frames**0.5
    assert abs(np.mean(received) - _received_by_enumeration(bursts, slots)) < 4 * error + 1e-9


def test_bursts_of_one_slot_are_slots() -> None:
    """The same draws and outcomes as where no burst is given."""
    for channel in (Collision(), Capture()):
        sent = contend(np.zeros(5), 4, 0.7, channel, _rng(3))
        as_bursts = contend(np.zeros(5), 4, 0.7, channel, _rng(3), np.ones(5, dtype=np.int64))
        assert (as_bursts == sent).all()
        outcomes = [resolve(sent, 4, channel, _rng(4), bursts) for bursts in (None, np.ones(5, dtype=np.int64))]
        assert (outcomes[0] == outcomes[1]).all()


def test_a_burst_that_does_not_fit_is_not_sent() -> None:
    sent = contend(np.array([0.0, 2.0]), 3, 1.0, Collision(), _rng(), np.array([4, 2]))
    assert not sent.any()
    assert (resolve(sent, 3, Collision(), _rng(), np.array([4, 2])) == SILENT).all()


def test_a_frame_with_slow_ues_by_hand() -> None:
    """UE 0 takes slots 1 and 2, UE 1 slot 3, UE 2 slots 4 to 6 but is lost, and UE 3 pushes in slots 7 and 8."""
    bursts = np.array([2, 1, 3, 2])
    grant = Grant(np.array([0, 1, 2]), push=True, bursts=bursts)
    lossy = play(grant, 8, np.array([3]), None, Collision(), _rng(), _rng(), fails=lambda ues: ues == 2)
    assert (lossy.pulled.tolist(), lossy.pull_slots.tolist()) == ([0, 1], [2, 3])
    assert (lossy.lost.tolist(), lossy.lost_slots.tolist(), lossy.wasted.tolist()) == ([2], [6], [])
    assert (lossy.pushed.tolist(), lossy.push_slots.tolist(), lossy.open_slots) == ([3], [8], 2)
    assert sorted(lossy.senders.tolist()) == [0, 0, 1, 2, 2, 2, 3, 3]
    late = play(grant, 8, np.array([3]), np.array([0.0, 2.5, 3.0, 0.0]), Collision(), _rng(), _rng())
    assert (late.wasted.tolist(), late.wasted_slots.tolist()) == ([1], [3])  # slot 3 begins after 2
    assert late.pulled.tolist() == [0, 2]


def test_a_lost_push_counts_as_collided() -> None:
    lost = play(
        Grant(np.empty(0, np.int64), push=True), 1, np.array([4]), None, Collision(), _rng(), _rng(), fails=_all
    )
    assert (lost.collided.tolist(), lost.collided_slots, lost.pushed.tolist()) == ([4], 1, [])
    assert COLLIDED == 0


def _all(ues: np.ndarray) -> np.ndarray:
    return np.ones(len(ues), dtype=bool)


@given(
    st.lists(st.integers(1, 5), min_size=1, max_size=8),
    st.integers(1, 12),
    st.sampled_from(["fixed", "sized"]),
    st.integers(0, 3),
)
def test_what_fits(bursts: list[int], most: int, kind: str, push: int) -> None:
    """Pulled UEs fit into the frame; those that are owed a pull come first; a frame of a fixed length keeps it."""
    count = min(len(bursts), most)
    push = min(push, most - count)
    slots = None if kind == "fixed" else count + push
    grant = Grant(np.arange(count), push=True, slots=slots)
    owed = np.zeros(len(bursts), dtype=bool)
    owed[-1] = True
    fitted = fit_bursts(grant, np.array(bursts), owed, most)
    assert fitted.left_out is not None
    assert fitted.pull_slots <= fitted.uplink_slots(most) <= most
    candidates = {*range(count), len(bursts) - 1}
    assert {*fitted.pull.tolist(), *fitted.left_out.tolist()} == candidates
    if kind == "fixed":
        assert fitted.slots is None
        assert fitted.pull_slots <= max(count, bursts[len(bursts) - 1 if len(bursts) > count else 0])
    else:
        assert fitted.uplink_slots(most) - fitted.pull_slots == push
    if len(bursts) > count and len(fitted.pull):
        assert fitted.pull[0] == len(bursts) - 1
