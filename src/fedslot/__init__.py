"""fedslot: whose model update should be on the air when uplink slots are scarce?

    import fedslot
    scenario = fedslot.Scenario.load("quickstart", {"frame.pull": 5})
    result = fedslot.run(scenario)
    result.plot()

The public names below are imported on first use, so that `import fedslot` is quick. The packages `fedslot.access`
(channels, clock), `fedslot.planning` (closed forms, planner), `fedslot.valuation`, `fedslot.aggregation`,
`fedslot.data`, `fedslot.tracking`, `fedslot.deployment.flower` and `fedslot.deployment.mqtt` have public names of their
own.
"""

from __future__ import annotations

import sys
from importlib.metadata import version
from typing import TYPE_CHECKING

from fedslot.support.extras import import_name

if TYPE_CHECKING:
    from fedslot.access.channels import Channel
    from fedslot.aggregation import Aggregate, Aggregation, Updates
    from fedslot.deployment.server import ParameterServer
    from fedslot.experiments.cluster import distributed_training
    from fedslot.experiments.comparison import Comparison, compare
    from fedslot.experiments.loading import load
    from fedslot.experiments.sweeps import FailedRunsError, Sweep, sweep
    from fedslot.learning.models import Model
    from fedslot.messages import Grant, Measured, Merit, Receipt
    from fedslot.rounds.effects import without_effect
    from fedslot.rounds.held_out import HeldOut
    from fedslot.rounds.local_training import LocalTraining, make_model
    from fedslot.rounds.round import Round
    from fedslot.rounds.trace import Event
    from fedslot.runs.callbacks import Callback
    from fedslot.runs.execution import run
    from fedslot.runs.results import Result
    from fedslot.scenario import Scenario, parse_overrides, presets
    from fedslot.strategies import Cell, Ledger, NoState, Strategy, warm_up
    from fedslot.support.errors import InputError, RefusedError
    from fedslot.updates import Link, Outgoing, Sender
    from fedslot.valuation import Game, Valuation, ValuationMethod

__version__ = version("fedslot")

_NAMES = {  # by module
    "scenario": ["Scenario", "parse_overrides", "presets"],
    "runs.execution": ["run"],
    "runs.results": ["Result"],
    "runs.callbacks": ["Callback"],
    "rounds.round": ["Round"],
    "rounds.trace": ["Event"],
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
    "rounds.held_out": ["HeldOut"],
    "rounds.local_training": ["LocalTraining", "make_model"],
    "updates": ["Link", "Outgoing", "Sender"],
    "deployment.server": ["ParameterServer"],
    "rounds.effects": ["without_effect"],
    "support.errors": ["InputError", "RefusedError"],
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
    "Link",
    "LocalTraining",
    "Measured",
    "Merit",
    "Model",
    "NoState",
    "Outgoing",
    "ParameterServer",
    "Receipt",
    "RefusedError",
    "Result",
    "Round",
    "Scenario",
    "Sender",
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
        return import_name("fedslot", name, f"fedslot.{_HOMES[name]}")
    # with name and object, the traceback suggests the nearest name
    raise AttributeError(f"module 'fedslot' has no attribute {name!r}", name=name, obj=sys.modules[__name__])


def __dir__() -> list[str]:
    return __all__
