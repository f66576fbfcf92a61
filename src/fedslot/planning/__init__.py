"""The planner: what frames are expected to yield and to cost, computed without any training.

Analysis:
    contenders.py   how many UEs contend: numbers and distributions, access barring
    collision.py    yield and last received slot on the collision channel, for equal slots
    period.py       the push slots of one frame on the collision channel, also with UEs that are ready late
    costs.py        expected cost of a frame, and the paper's approximation (eq. 5)
    backlog.py      the stationary cell, in which UEs stay backlogged until they are received
    backlog_frames.py   its frames, where they must be simulated
    trial.py        frames and runs of a cell, simulated
    readiness.py    whether UEs have finished computing by their slot
    latency.py      Theorem 1 and Hoeffding's bound on training times

Planning:
    cell.py         the description of a push cell
    pushes.py       yield of the push slots of a cell on any channel, computed or simulated
    limits.py       a limit on the cost of a frame, the number of frames in a time budget
    planner.py      the best split of a frame into pull and push slots
    bits.py         with how many bits updates make the most progress per slot
    goals.py        the shortest frame for a number of updates, the most contenders that push slots bear
    inputs.py       the cell of a scenario
    training.py     a whole training: lost packets, duty cycle, time, batteries
    sizing.py       the request of `fedslot plan` and its result: splits, seconds and joules, goals
"""

from fedslot.planning.bits import BestBits, best_bits
from fedslot.planning.cell import PushCell
from fedslot.planning.contenders import Binomial
from fedslot.planning.goals import least_slots, most_contenders
from fedslot.planning.latency import hoeffding_bound, printed_bound
from fedslot.planning.period import PushPeriod, TimedPushPeriod
from fedslot.planning.planner import FrameSplit, Plan, plan

__all__ = [
    "BestBits",
    "Binomial",
    "FrameSplit",
    "Plan",
    "PushCell",
    "PushPeriod",
    "TimedPushPeriod",
    "best_bits",
    "hoeffding_bound",
    "least_slots",
    "most_contenders",
    "plan",
    "printed_bound",
]
