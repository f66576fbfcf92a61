"""Fields without effect: told where it is so, and a run without them is the same."""

from pathlib import Path

import numpy as np
import pytest

from fedslot.rounds.effects import base_of, notes, without_effect
from fedslot.rounds.simulation import Simulation
from fedslot.scenario import Scenario
from fedslot.strategies.fedavg import FedAvg

QUICK = {"rounds": 3, "data.ues": 12, "frame": {"slots": 4, "pull": 2}, "push.contenders": 3, "training.epochs": 1}


class Own:
    """A strategy of one's own says nothing of what it uses."""

    needs_values = False
    __init__, init, schedule, observe = FedAvg.__init__, FedAvg.init, FedAvg.schedule, FedAvg.observe


ADVICE = "average weighs noisy updates like clean ones; try aggregation.name=filtered"

JAM = "with push.arrivals and a fixed push.probability, collisions can jam the cell for ever; try auto"
READY = "push.retries has no effect with push.contenders=ready"


def _told(overrides):
    base = Scenario.load("quickstart")
    return notes([base.replace(overrides)], base)


@pytest.mark.parametrize(
    ("overrides", "lines"),
    [
        ({"frame.pull": 3}, []),
        ({"strategy.name": "fedavg"}, []),
        ({"strategy.name": "fedavg", "frame.pull": 5}, []),  # as in the preset
        ({"strategy.name": "fedavg", "frame.pull": 3}, ["frame.pull has no effect under fedavg"]),
        ({"strategy.name": "ucb", "strategy.warmup": 3}, ["strategy.warmup has no effect under ucb"]),
        ({"strategy.name": "only-pull", "push.channel": "irsa"}, ["push.channel.name has no effect under only-pull"]),
        ({"strategy.name": "fedavg", "valuation.samples": 3}, ["valuation.samples has no effect under fedavg"]),
        ({"strategy.name": "merit-push", "push.probability": 0.3}, ["push.probability has no effect under merit-push"]),
        ({"strategy.name": "planned", "push.probability": 0.3}, []),
        ({"rounds": 10, "frame.pull": 3}, ["frame.pull has no effect where all rounds are warm-up"]),
        ({"rounds": 11, "frame.pull": 3}, []),
        ({"strategy.name": "ps-alone", "training.epochs": 3}, ["training.epochs has no effect under ps-alone"]),
        ({"strategy.name": "ps-alone", "training.lr": 0.3}, []),
        ({"push.probability": 0.5, "frame.pull": 10}, ["push.probability has no effect without push slots"]),
        ({"push.probability": 0.5, "push.contenders": 0}, ["push.probability has no effect without contenders"]),
        (
            {"training.optimizer": "torch.optim:Adam", "training.momentum": 0.1},
            ["training.momentum has no effect with torch.optim:Adam"],
        ),
        (
            {"strategy.name": "centralized", "fleet.noise": 0.9},
            ["fleet.noise has no effect where the PS pools the data"],
        ),
        ({"fleet.noise": 0.0, "fleet.noise_law": "half"}, ["fleet.noise_law.name has no effect without fleet.noise"]),
        (
            {"fleet.noise_law": "equal", "fleet.noise_order": "index"},
            ["fleet.noise_order has no effect with equal noise", ADVICE],
        ),
        ({"fleet.noise": 0.9}, [ADVICE]),
        ({"fleet.noise": 0.9, "aggregation.name": "filtered"}, []),
        ({"push.arrivals": 0.5}, [JAM]),
        ({"push.arrivals": 0.5, "push.retries": 3}, []),
        ({"push.arrivals": 0.5, "push.probability": "auto"}, []),
        ({"push.arrivals": 0.1, "push.probability": 0.3}, []),
        ({"push.arrivals": 0.5, "push.channel": "capture", "push.channel.options": {"threshold_db": -20.0}}, []),
        ({"push.arrivals": 0.5, "strategy.name": "fedavg"}, ["push.arrivals has no effect under fedavg"]),
        ({"push.contenders": "ready", "push.retries": 2, "fleet.computing": {}}, [READY]),
        ({"strategy.name": f"{__name__}:Own", "frame.pull": 3, "strategy.share": 0.5}, []),
    ],
)
def test_fields_that_the_user_set_in_vain_are_told(overrides, lines):
    assert _told(overrides) == lines


def test_a_field_that_has_an_effect_for_one_strategy_is_fine():
    base = Scenario.load("quickstart")
    several = [base.replace({"frame.pull": 3, "strategy.name": name}) for name in ("fedavg", "push-pull")]
    assert notes(several, base) == []
    assert notes(several[:1], base) == ["frame.pull has no effect under fedavg"]


def test_a_partition_of_ones_own_leaves_nothing_to_divide(tmp_path: Path):
    x, y = np.zeros((9, 2)), np.arange(9) % 3
    np.savez(tmp_path / "own.npz", x_train=x, y_train=y, x_test=x, y_test=y, ue_train=y)
    base = Scenario.load("quickstart")
    changed = base.replace({"data": {"dataset": tmp_path / "own.npz", "alpha": 3.0}})
    assert notes([changed], base) == ["data.alpha has no effect beside ue_train"]


def test_what_a_user_starts_from(tmp_path: Path):
    file = tmp_path / "mine.yaml"
    file.write_text("frame: {pull: 3}\n")
    assert base_of("quickstart") == Scenario.load("quickstart")
    assert base_of(str(file)) == Scenario()
    file.write_text("scenario: quickstart\ngrid: {frame.pull: [3]}\n")
    assert base_of(str(file)) == Scenario.load("quickstart")


OTHER = {
    "rounds": 4,
    "time_budget": 500,
    "data.alpha": 0.3,
    "data.ues": 15,
    "frame.slots": 5,
    "training.batches": 3,
    "training.proximal": 0.1,
    "frame.pull": 1,
    "push.contenders": 1,
    "push.arrivals": 0.3,
    "push.probability": 0.5,
    "push.retries": 2,
    "push.channel.name": "capture",
    "push.channel.options": {"threshold_db": 1.0},
    "strategy.warmup": 2,
    "strategy.memory": 0.1,
    "strategy.share": 0.5,
    "training.momentum": 0.1,
    "training.epochs": 2,
    "training.epochs_by_strategy": {"round-robin": 3},
    "fleet.stragglers": 0.0,
    "fleet.noise": 0.0,
    "fleet.noise_law.name": "half",
    "fleet.noise_order": "index",
    "valuation.name": "cyclic",
    "valuation.utility": "accuracy",
    "valuation.samples": 5,
    "valuation.options": {"tolerance": 0.9},
}


@pytest.mark.parametrize(
    "name", ["fedavg", "ucb", "only-pull", "centralized", "power-of-choice", "merit-push", "ps-alone"]
)
def test_a_field_without_effect_changes_no_round(name):
    scenario = Scenario.load("quickstart", {**QUICK, "strategy.name": name, "fleet.noise": 0.1})

    def rounds(one: Scenario) -> list[tuple[object, ...]]:
        return [(r.test_loss, r.pulled, r.contenders, r.cost_max) for r, _, _ in Simulation(one).rounds()]

    plain = rounds(scenario)
    vain = [key for key in without_effect(scenario) if key in OTHER]
    assert len(vain) > 5
    together = {key: OTHER[key] for key in vain if key != "push.channel.options"}
    assert rounds(scenario.replace(together)) == plain
