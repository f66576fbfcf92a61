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
    from fedslot.access.channels import Channel as Channel
    from fedslot.aggregation import Aggregate as Aggregate
    from fedslot.aggregation import Aggregation as Aggregation
    from fedslot.aggregation import Updates as Updates
    from fedslot.attacks import Attack as Attack
    from fedslot.attacks import Knowledge as Knowledge
    from fedslot.attacks import Poisoning as Poisoning
    from fedslot.compression import Codec as Codec
    from fedslot.deployment.server import ParameterServer as ParameterServer
    from fedslot.experiments.cluster import distributed_training as distributed_training
    from fedslot.experiments.comparison import Comparison as Comparison
    from fedslot.experiments.comparison import compare as compare
    from fedslot.experiments.loading import load as load
    from fedslot.experiments.sweeps import FailedRunsError as FailedRunsError
    from fedslot.experiments.sweeps import Sweep as Sweep
    from fedslot.experiments.sweeps import sweep as sweep
    from fedslot.learning.models import Model as Model
    from fedslot.learning.tasks import LearningTask as LearningTask
    from fedslot.learning.tasks import Score as Score
    from fedslot.messages import Grant as Grant
    from fedslot.messages import Measured as Measured
    from fedslot.messages import Merit as Merit
    from fedslot.messages import Receipt as Receipt
    from fedslot.rounds.effects import without_effect as without_effect
    from fedslot.rounds.held_out import HeldOut as HeldOut
    from fedslot.rounds.local_training import LocalTraining as LocalTraining
    from fedslot.rounds.local_training import make_model as make_model
    from fedslot.rounds.round import Round as Round
    from fedslot.rounds.trace import Event as Event
    from fedslot.runs.callbacks import Callback as Callback
    from fedslot.runs.execution import run as run
    from fedslot.runs.results import Result as Result
    from fedslot.scenario import Scenario as Scenario
    from fedslot.scenario import parse_overrides as parse_overrides
    from fedslot.scenario import presets as presets
    from fedslot.strategies import Cell as Cell
    from fedslot.strategies import Ledger as Ledger
    from fedslot.strategies import NoState as NoState
    from fedslot.strategies import Strategy as Strategy
    from fedslot.strategies import warm_up as warm_up
    from fedslot.support.errors import InputError as InputError
    from fedslot.support.errors import RefusedError as RefusedError
    from fedslot.updates import Arrived as Arrived
    from fedslot.updates import Link as Link
    from fedslot.updates import Outgoing as Outgoing
    from fedslot.updates import Sender as Sender
    from fedslot.updates import Staleness as Staleness
    from fedslot.valuation import Game as Game
    from fedslot.valuation import Valuation as Valuation
    from fedslot.valuation import ValuationMethod as ValuationMethod


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
    "learning.tasks": ["LearningTask", "Score"],
    "rounds.held_out": ["HeldOut"],
    "rounds.local_training": ["LocalTraining", "make_model"],
    "compression": ["Codec"],
    "updates": ["Arrived", "Link", "Outgoing", "Sender", "Staleness"],
    "attacks": ["Attack", "Knowledge", "Poisoning"],
    "deployment.server": ["ParameterServer"],
    "rounds.effects": ["without_effect"],
    "support.errors": ["InputError", "RefusedError"],
}
_HOMES = {name: home for home, names in _NAMES.items() for name in names}

__all__ = sorted(["__version__", *_HOMES])


def __getattr__(name: str) -> object:
    if name in _HOMES:
        return import_name("fedslot", name, f"fedslot.{_HOMES[name]}")
    # with name and object, the traceback suggests the nearest name
    raise AttributeError(f"module 'fedslot' has no attribute {name!r}", name=name, obj=sys.modules[__name__])


def __dir__() -> list[str]:
    return __all__
