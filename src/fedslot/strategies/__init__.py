"""Strategies decide who is granted the slots of a frame; each is one small file, found by name.

base.py             what a strategy is (`Strategy`, `Asking`) and what it may know (`Cell`)
ledger.py           smoothed Shapley values, shared by the strategies that go by value; warm-up
selection.py        the UEs of highest score, and weighted draws without replacement
push_pull.py        pull the most valued UEs, leave the other slots open (the paper's Algorithm 1)
planned.py          the best split for the received set within a limit per frame (a reading of problem P)
load_split.py       push-pull with a number of push slots that follows the load
only_pull.py        push-pull with idle push slots
greedy_shap.py      all slots pull the most valued UEs
ucb.py              all slots pull by an upper confidence bound on values
s_fedavg.py         all slots pull at random, by a softmax of values
power_of_choice.py  all slots pull the highest losses among candidates that are asked
oort.py             all slots pull by reported losses, data and lateness, or explore
survey.py           noise and spread of the UEs' updates, shared by the strategies that go by these
scout.py            short frames pull the cleanest UEs and look for more of them
merit_push.py       short frames pull the cleanest UEs; the cleanest of the others may push
fedavg.py           all slots pull at random
round_robin.py      all slots pull in turn
ps_alone.py         none: the PS trains on its own labelled samples
centralized.py      the same share of the UEs in every round, which sends its data
"""

from __future__ import annotations

from typing import Any

from fedslot.messages import NoState
from fedslot.parts import kinds
from fedslot.parts.kind import Kind
from fedslot.strategies.base import Asking, Cell, Split, Strategy
from fedslot.strategies.ledger import Ledger, warm_up

__all__ = [
    "STRATEGIES",
    "Asking",
    "Cell",
    "Ledger",
    "NoState",
    "Split",
    "Strategy",
    "warm_up",
]

STRATEGIES: Kind[Strategy[Any]] = kinds.STRATEGIES
