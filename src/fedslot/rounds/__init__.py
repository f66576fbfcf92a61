"""A round: its steps, its loop, and what it leaves.

simulation.py      Algorithm 1
ps.py              the parameter server's side of a round, the same in the simulator and in every deployment
round.py           the record of a round, the state between rounds, what strategies know, backlogged UEs
links.py           the radio links of simulated UEs
local_training.py  the training of the received UEs
devices.py         the clock of a device: who trains from which version until when
ps_training.py     the PS's own training, which estimates what stale updates missed
liars.py           lying UEs: the samples on which they train, and what they send
held_out.py        the PS's samples: test, validation, values of updates
own_labels.py      the model that the PS trains alone, and how long it is reported
trace.py           what happened in each slot of a frame
states.py          states of strategies and aggregations as arrays
checks.py          checks of what strategies and aggregations return
memory.py          an estimate of the memory that a run takes
repetition.py      rounds that are computed twice, to find own parts that cannot be resumed
effects.py         fields of a scenario that have no effect
"""
