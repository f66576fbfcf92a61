"""fedslot: whose model update should be on the air when uplink slots are scarce?

    import fedslot
    scenario = fedslot.Scenario.load("quickstart", {"frame.pull": 5})
    result = fedslot.run(scenario)
    result.rounds.plot(x="slots_spent", y="test_accuracy")

The public names below are imported on first use, so that `import fedslot` is quick.
"""

from __future__ import annotations

import importlib
from importlib.metadata import version
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fedslot.access.channels import Channel
    from fedslot.aggregation import Aggregate, Aggregation, Updates
    from fedslot.errors import InputError, RefusedError
    from fedslot.experiments.comparison import Comparison, compare
    from fedslot.experiments.sweeps import Sweep, sweep
    from fedslot.messages import Grant, Receipt
    from fedslot.runs import Result, load, run
    from fedslot.scenario import Scenario, presets
    from fedslot.strategies import Cell, Ledger, NoState

__version__ = version("fedslot")

_HOMES = {
    "Scenario": "scenario",
    "presets": "scenario",
    "run": "runs",
    "load": "runs",
    "Result": "runs",
    "compare": "experiments.comparison",
    "Comparison": "experiments.comparison",
    "sweep": "experiments.sweeps",
    "Sweep": "experiments.sweeps",
    "Channel": "access.channels",
    "Cell": "strategies",
    "Ledger": "strategies",
    "NoState": "strategies",
    "Aggregate": "aggregation",
    "Aggregation": "aggregation",
    "Updates": "aggregation",
    "Grant": "messages",
    "Receipt": "messages",
    "InputError": "errors",
    "RefusedError": "errors",
}

__all__ = [
    "Aggregate",
    "Aggregation",
    "Cell",
    "Channel",
    "Comparison",
    "Grant",
    "InputError",
    "Ledger",
    "NoState",
    "Receipt",
    "RefusedError",
    "Result",
    "Scenario",
    "Sweep",
    "Updates",
    "__version__",
    "compare",
    "load",
    "presets",
    "run",
    "sweep",
]


def __getattr__(name: str) -> object:
    if name in _HOMES:
        return getattr(importlib.import_module(f"fedslot.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'fedslot' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
