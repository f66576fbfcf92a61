"""fedslot: whose model update should be on the air when uplink slots are scarce?

    import fedslot
    scenario = fedslot.Scenario.load("quickstart", {"frame.pull": 5})
    result = fedslot.run(scenario)
    result.plot()

The public names below are imported on first use, so that `import fedslot` is quick. The packages `fedslot.access`
(closed forms, planner), `fedslot.valuation`, `fedslot.aggregation`, `fedslot.data`, `fedslot.tracking`,
`fedslot.deployment.flower` and `fedslot.deployment.mqtt` have public names of their own.
"""

from __future__ import annotations

import importlib
import sys
from importlib.metadata import version
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fedslot.access.channels import Channel
    from fedslot.aggregation import Aggregate, Aggregation, Updates
    from fedslot.callbacks import Callback
    from fedslot.deployment.server import ParameterServer
    from fedslot.effects import without_effect
    from fedslot.errors import InputError, RefusedError
    from fedslot.experiments.cluster import distributed_training
    from fedslot.experiments.comparison import Comparison, compare
    from fedslot.experiments.loading import load
    from fedslot.experiments.sweeps import FailedRunsError, Sweep, sweep
    from fedslot.held_out import HeldOut
    from fedslot.learning.models import Model
    from fedslot.local_training import LocalTraining, make_model
    from fedslot.messages import Grant, Measured, Merit, Receipt
    from fedslot.results import Result
    from fedslot.round import Round
    from fedslot.runs import run
    from fedslot.scenario import Scenario, parse_overrides, presets
    from fedslot.strategies import Cell, Ledger, NoState, Strategy, warm_up
    from fedslot.trace import Event
    from fedslot.valuation import Game, Valuation, ValuationMethod

__version__ = version("fedslot")

_NAMES = {  # by module
    "scenario": ["Scenario", "parse_overrides", "presets"],
    "runs": ["run"],
    "results": ["Result"],
    "callbacks": ["Callback"],
    "round": ["Round"],
    "trace": ["Event"],
    "experiments.loading": ["load"],
    "experiments.comparison": ["Comparison", "compare"],
    "experiments.sweeps": ["FailedRunsError", "Sweep", "sweep"],
    "experiments.cluster": ["distributed_training"],
    "strategies": ["Cell", "Ledger", "NoState", "Strategy", "warm_up"],
    "messages": ["Grant", "Measured", "Merit", "Receipt"],
    "access.channels": ["Channel"],
    "aggregation": ["Aggregate", "Aggregation", "Updates"],
    "valuation": ["Game", "Valuation", "ValuationMethod"],
    "learning.models": ["Model"],
    "held_out": ["HeldOut"],
    "local_training": ["LocalTraining", "make_model"],
    "deployment.server": ["ParameterServer"],
    "effects": ["without_effect"],
    "errors": ["InputError", "RefusedError"],
}
_HOMES = {name: home for home, names in _NAMES.items() for name in names}

__all__ = [
    "Aggregate",
    "Aggregation",
    "Callback",
    "Cell",
    "Channel",
    "Comparison",
    "Event",
    "FailedRunsError",
    "Game",
    "Grant",
    "HeldOut",
    "InputError",
    "Ledger",
    "LocalTraining",
    "Measured",
    "Merit",
    "Model",
    "NoState",
    "ParameterServer",
    "Receipt",
    "RefusedError",
    "Result",
    "Round",
    "Scenario",
    "Strategy",
    "Sweep",
    "Updates",
    "Valuation",
    "ValuationMethod",
    "__version__",
    "compare",
    "distributed_training",
    "load",
    "make_model",
    "parse_overrides",
    "presets",
    "run",
    "sweep",
    "warm_up",
    "without_effect",
]


def __getattr__(name: str) -> object:
    if name in _HOMES:
        return getattr(importlib.import_module(f"fedslot.{_HOMES[name]}"), name)
    # with name and object, the traceback suggests the nearest name
    raise AttributeError(f"module 'fedslot' has no attribute {name!r}", name=name, obj=sys.modules[__name__])


def __dir__() -> list[str]:
    return __all__
