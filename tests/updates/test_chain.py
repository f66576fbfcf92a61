"""The update chain: its links against definitions, its states, and what comes back from links of one's own."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from fedslot import RefusedError
from fedslot.updates import Chain, Link, Outgoing, Sender
from fedslot.updates.clip import Clip
from fedslot.updates.noise import Noise

SENDER = Sender(ue=3, round=5, seed=7, noise=0.5, samples=20)
START = torch.arange(4.0)


class Rounded(Link):
    """Sends whole numbers, 8 bits each, and adds what rounding left out to the next update."""

    def init(self, model: Tensor) -> Tensor:
        return torch.zeros_like(model)

    def apply(self, update: Outgoing, sender: Sender, state: Tensor) -> tuple[Outgoing, Tensor]:
        step = update.model - update.start + state
        return replace(update, model=update.start + step.round(), bits=8 * len(step)), step - step.round()


@given(st.lists(st.floats(-100, 100, width=32), min_size=2, max_size=9), st.floats(0.01, 100))
def test_clipping_keeps_the_direction_and_limits_the_norm(step: list[float], norm: float) -> None:
    start = torch.ones(len(step), dtype=torch.float64)
    moved = start + torch.tensor(step, dtype=torch.float64)
    sent = Clip(norm=norm).apply(Outgoing(start, moved.clone(), 0), SENDER, torch.empty(0))[0].model - start
    length = math.hypot(*(moved - start).tolist())
    assert torch.allclose(sent, (moved - start) * min(1.0, norm / max(length, 1e-300)), rtol=1e-6, atol=1e-6)
    assert math.hypot(*sent.tolist()) <= norm * (1 + 1e-6)


def test_noise_has_the_standard_deviation_of_the_ue_and_differs_by_ue_and_round() -> None:
    zeros = torch.zeros(20_000)
    drawn = [
        Noise().apply(Outgoing(zeros, zeros.clone(), 0), sender, torch.empty(0))[0].model.numpy()
        for sender in (SENDER, replace(SENDER, ue=4), replace(SENDER, round=6))
    ]
    assert [abs(noise.std() / 0.5 - 1) < 4 / math.sqrt(2 * 20_000) for noise in drawn] == [True] * 3
    assert np.abs(np.corrcoef(drawn) - np.eye(3)).max() < 5 / math.sqrt(20_000)
    assert not Noise().apply(Outgoing(zeros, zeros.clone(), 0), replace(SENDER, noise=0.0), zeros)[0].model.any()


def test_links_are_applied_in_their_order() -> None:
    """A step of norm 5, clipped to 1 and then rounded, is 0; rounded and then clipped, it keeps its direction."""
    model = START + torch.tensor([3.0, 4.0, 0.0, 0.0])
    first = Chain([Clip(norm=1.0), Rounded()], ["clip", "rounded"]).send(START, model.clone(), SENDER, None)[0]
    last = Chain([Rounded(), Clip(norm=1.0)], ["rounded", "clip"]).send(START, model.clone(), SENDER, None)[0]
    assert (first.model - START).tolist() == [1.0, 1.0, 0.0, 0.0]  # 0.6 and 0.8, rounded
    assert (last.model - START).tolist() == pytest.approx([0.6, 0.8, 0.0, 0.0])
    assert (first.bits, last.bits) == (32, 32)


def test_a_state_is_carried_from_one_update_of_a_ue_to_the_next() -> None:
    """Steps of 0.4 are sent as 0, 1, 0, 1, 0: what rounding leaves out comes later, and nothing is lost."""
    chain, state, sent = Chain([Noise(), Rounded()], ["noise", "rounded"]), None, []
    for round in range(5):
        update, state = chain.send(START, START + 0.4, replace(SENDER, round=round, noise=0.0), state)
        sent.append(float((update.model - START)[0]))
    assert sent == [0.0, 1.0, 0.0, 1.0, 0.0]
    assert float(state[0]) == pytest.approx(5 * 0.4 - sum(sent), abs=1e-5)


def test_without_links_an_update_has_32_bits_a_parameter() -> None:
    update, state = Chain([], []).send(START, START + 1, SENDER, None)
    assert (update.bits, len(state)) == (128, 0)
    assert torch.equal(update.model, START + 1)


@pytest.mark.parametrize(
    ("result", "message"),
    [
        ((None, None), r"link mine must return from apply\(\) an Outgoing with a model \(4,\)"),
        ((Outgoing(START, START[:2], 1), torch.empty(0)), "an Outgoing with a model"),
        ((Outgoing(START, START, 1.5), torch.empty(0)), "whole number of bits, not 1.5"),
        ((Outgoing(START, START, 1), torch.zeros(3)), r"a state \(0,\) of torch.float32, as before"),
    ],
)
def test_what_a_link_returns_is_checked(result: tuple[object, object], message: str) -> None:
    class Mine(Link):
        def apply(self, update: Outgoing, sender: Sender, state: Tensor) -> tuple[Outgoing, Tensor]:
            return result  # type: ignore[return-value]

    with pytest.raises(RefusedError, match=message):
        Chain([Mine()], ["mine"]).send(START, START.clone(), SENDER, None)
