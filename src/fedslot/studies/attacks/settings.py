"""The attacks, the strategies that they meet, and the cells."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from fedslot import InputError
from fedslot.studies.equal_slots.settings import FORMER_SEED, Setting
from fedslot.support import one_of

SHARE = 0.2  # of the UEs
RECOMMENDED = "merit-push+filtered"
ROBUST = ("greedy-shap+average", "fedavg+median", "fedavg+krum")  # the recommended one shall never do worse than these
STRATEGIES = (RECOMMENDED, "scout+filtered", "merit-push+median", *ROBUST)
SHORT_FRAMES = ("merit-push", "scout")
TURN, TURN_FULL = 50, 20  # rounds before liars turn, in short frames and in full ones
FEW = 200  # labelled samples of the PS

ATTACKS: dict[str, Mapping[str, Any] | None] = {
    "none": None,
    "sign flips": {"name": "sign-flip"},
    "sign flips x10": {"name": "sign-flip", "options": {"scale": 10.0}},
    "sign flips at the norm limit": {"name": "sign-flip", "at_limit": True},
    "label flips": {"name": "label-flip"},
    "a fixed random direction": {"name": "direction"},
    "a fixed random direction x10": {"name": "direction", "options": {"scale": 10.0}},
    "gaussian x10": {"name": "gaussian", "options": {"scale": 10.0}},
    "a little is enough": {"name": "little-is-enough"},
    "a little is enough, of updates as trained": {"name": "little-is-enough", "options": {"updates": "trained"}},
    "inner product": {"name": "inner-product"},
    "inner product, of updates as trained": {"name": "inner-product", "options": {"updates": "trained"}},
    "backdoor": {"name": "backdoor"},
    "backdoor x10": {"name": "backdoor", "options": {"scale": 10.0}},
    "free riders": {"name": "free-rider"},
    "free riders with noise": {"name": "free-rider", "options": {"noise": 0.03}},
    "honest at first, then sign flips": {"name": "sign-flip", "from_round": TURN},
    "sign flips that claim no noise": {"name": "sign-flip", "claimed_noise": 0.0},
}
BACKDOORS = ("backdoor", "backdoor x10")
SETTINGS: dict[str, Setting] = {
    "digits": Setting(
        "digits, 50 labelled samples",
        "quickstart",
        {"data.validation_samples": 50},
        STRATEGIES,
        (),
        budget=660,
        first_seed=FORMER_SEED,
    ),
    "mnist": Setting(
        "MNIST, 200 labelled samples",
        "paper",
        {"data.validation_samples": FEW},
        STRATEGIES,
        (),
        budget=1050,
        first_seed=FORMER_SEED,
    ),
    "fashion-mnist": Setting(
        "Fashion-MNIST, 200 labelled samples",
        "paper",
        {"data.dataset": "fashion-mnist", "data.validation_samples": FEW},
        STRATEGIES,
        (),
        budget=1050,
        first_seed=FORMER_SEED,
    ),
}
MOST_SEEDS = {"fashion-mnist": 1}


def attack_on(strategy: str, title: str) -> dict[str, Any] | None:
    """Return the fields of an attack on a strategy, for `fleet.attack`; None if all UEs are honest."""
    attack = ATTACKS[title]
    if attack is None:
        return None
    fields = {"share": SHARE, **attack}
    if "from_round" in fields and not strategy.startswith(SHORT_FRAMES):
        fields["from_round"] = TURN_FULL
    return fields


def chosen(kind: str, names: Iterable[str] | None, known: Iterable[str]) -> list[str]:
    """Return names of settings or attacks, all known ones if there are none."""
    known = list(known)
    for name in names or ():
        if name not in known:
            raise InputError(kind, name, one_of(name, known))
    return list(names or known)
