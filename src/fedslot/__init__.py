"""fedslot: whose model update should be on the air when uplink slots are scarce?"""

from importlib.metadata import version

__version__ = version("fedslot")
