"""The fleet: the UEs with their data shares, stragglers, update noise, computing times and availability.

fleet.py              the UEs of a scenario, drawn once from its seed
computing.py          how long their training takes
availability.py       laws of when they are there
availability_file.py  when they are there from a file of one's own
noise.py              laws of the noise on their updates
rates.py              laws of the rates of their links, and of losses
rates_file.py         rates and losses from a file of one's own
"""

from fedslot.fleet.availability import Availability
from fedslot.fleet.computing import Computing, law_scale, workload
from fedslot.fleet.fleet import Fleet, check_owners, link_rates

__all__ = ["Availability", "Computing", "Fleet", "check_owners", "law_scale", "link_rates", "workload"]
