"""A round: its steps, its loop, and what it leaves.

simulation.py      Algorithm 1
round.py           the steps that the simulator and every deployment share, and the state between rounds
local_training.py  the training of the received UEs
held_out.py        the PS's samples: test, validation, values of updates
trace.py           what happened in each slot of a frame
checks.py          checks of what strategies and aggregations return
effects.py         fields of a scenario that have no effect
"""
