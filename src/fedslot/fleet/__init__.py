"""The fleet: the UEs with their data shares, stragglers, update noise and computing times.

fleet.py       the UEs of a scenario, drawn once from its seed
noise.py       laws of the noise on their updates
rates.py       laws of the rates of their links, and of losses
rates_file.py  rates and losses from a file of one's own
"""

from fedslot.fleet.fleet import Fleet, check_owners, computing_times, link_rates, workload

__all__ = ["Fleet", "check_owners", "computing_times", "link_rates", "workload"]
