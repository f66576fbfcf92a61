"""The fleet: the UEs with their data shares, stragglers, update noise and computing times.

fleet.py       the UEs of a scenario, drawn once from its seed
computing.py   how long their training takes
noise.py       laws of the noise on their updates
rates.py       laws of the rates of their links, and of losses
rates_file.py  rates and losses from a file of one's own
"""

from fedslot.fleet.computing import Computing, law_scale, workload
from fedslot.fleet.fleet import Fleet, check_owners, link_rates

__all__ = ["Computing", "Fleet", "check_owners", "law_scale", "link_rates", "workload"]
