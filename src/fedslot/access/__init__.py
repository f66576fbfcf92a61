"""The access layer: who is received in the uplink slots of a frame, and what that costs.

Simulation:
    frame.py        one frame: pull slots, then contention in the push slots
    channels.py     random-access channels: collision, capture, CRDSA and IRSA

Analysis, without simulation:
    analysis.py     yield and cost of the push slots on the collision channel, exactly
    counting.py     the closed forms behind it, in integers
    contenders.py   how many UEs contend: numbers and distributions, access barring
    costs.py        expected cost of a frame, and the paper's approximation (eq. 5)
    latency.py      Theorem 1 and Hoeffding's bound on training times
    planner.py      the best split of a frame into pull and push slots
    checks.py       checks of arguments
"""
