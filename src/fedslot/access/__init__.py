"""The access layer: which UEs are received in the uplink slots of a frame, and at what cost.

Simulation:
    frame.py        one frame: pull slots, then contention in the push slots
    channels.py     random-access channels: collision, capture, CRDSA and IRSA
    clock.py        what a frame costs in slots, seconds and joules

Analysis, without simulation:
    analysis.py     yield and cost of the push slots on the collision channel, exactly
    counting.py     the closed forms behind it, in integers
    generating.py   the same by generating functions, quickly for any number of slots
    pushes.py       yield of the push slots on any channel, computed or simulated
    contenders.py   how many UEs contend: numbers and distributions, access barring
    readiness.py    whether UEs have finished computing by their slot
    costs.py        expected cost of a frame, and the paper's approximation (eq. 5)
    latency.py      Theorem 1 and Hoeffding's bound on training times
    planner.py      the best split of a frame into pull and push slots
    limits.py       a limit on the cost of a frame
    renewal.py      the number of frames in a time budget
    goals.py        the shortest frame for a number of updates, the most contenders that push slots bear
"""

from fedslot.access.analysis import PushPeriod, TimedPushPeriod
from fedslot.access.channels import CHANNELS, Capture, Channel, Coded, Collision, crdsa, irsa, make_channel
from fedslot.access.clock import Radio, Usage
from fedslot.access.contenders import Binomial
from fedslot.access.goals import least_slots, most_contenders
from fedslot.access.latency import hoeffding_bound, printed_bound
from fedslot.access.planner import FrameSplit, Plan, plan

__all__ = [
    "CHANNELS",
    "Binomial",
    "Capture",
    "Channel",
    "Coded",
    "Collision",
    "FrameSplit",
    "Plan",
    "PushPeriod",
    "Radio",
    "TimedPushPeriod",
    "Usage",
    "crdsa",
    "hoeffding_bound",
    "irsa",
    "least_slots",
    "make_channel",
    "most_contenders",
    "plan",
    "printed_bound",
]
