"""Settings drawn at random, and the strategies that are compared in each.

The laws and the seeds were fixed before anything was tuned on drawings. A drawing in `FIRST_SEEDS` judges: no default
was chosen after a look at its runs, until they were published. Others are for tuning.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from fedslot import InputError
from fedslot.studies.equal_slots.settings import Setting

SETTINGS = 30
FIRST_SEEDS = {0: 50, 2: 100}  # by drawing: setting i has this seed + i; those of other drawings have the seeds 0 to 29
DRAWING = 2  # of the page
BUDGET = 1050  # slots
RECOMMENDED = "merit-push+filtered"
CONTROL = "ps-alone"
OPPONENTS = (  # with the slots of their frames, None: full ones
    *(("fedavg+fedyogi", slots) for slots in (2, 5, None)),
    *(("greedy-shap+fedyogi", slots) for slots in (5, None)),
    *((name, None) for name in ("greedy-shap+average", "greedy-shap+median", "fedavg+average")),
)
PULLING = "only-pull+fedyogi"  # pulls in half of the full frame
TRAINING_SAMPLES = {"digits": 1000, "mnist": 60_000, "fashion-mnist": 60_000}  # rounded
LABELS = {"digits": 398, "mnist": 5000, "fashion-mnist": 5000}  # at most
LEAST_SAMPLES = 10  # per UE; where there are fewer, UEs have samples in common
CYCLES = 20.0  # mean per bit: shape times scale of `fleet.computing`
BITS = 6272.0
ITERATIONS = 10 * math.log(10)


def drawn(index: int, drawing: int = DRAWING) -> Setting:
    """Return a setting of a drawing."""
    if not 0 <= index < SETTINGS:
        raise InputError("setting", index, f"from 0 to {SETTINGS - 1}")
    rng = np.random.default_rng([drawing, index])
    dataset = str(rng.choice(list(TRAINING_SAMPLES)))
    ues = _integer(rng, 30, 1000)
    slots = _integer(rng, 5, min(50, ues // 2))
    samples = TRAINING_SAMPLES[dataset] / ues
    fields: dict[str, Any] = {
        "seed": index + FIRST_SEEDS.get(drawing, 0),
        "data.dataset": dataset,
        "data.ues": ues,
        "data.alpha": _rounded(_between(rng, 0.05, 10)),
        "data.samples_per_ue": None if samples >= LEAST_SAMPLES else LEAST_SAMPLES,
        "data.validation_samples": min(_integer(rng, 50, 5000), LABELS[dataset]),
        "training.epochs": _integer(rng, 1, 20),
        "training.lr": _rounded(_between(rng, 0.002, 0.1)),
        "fleet.noise_law": str(rng.choice(["linear", "half", "equal"])),
        "fleet.noise": round(0.5 * rng.random() ** 2, 3),
        "frame.slots": slots,
        "frame.pull": slots // 2,
    }
    if rng.random() < 0.5:
        fields["push.contenders"] = int(rng.integers(1, slots, endpoint=True))
    else:
        fields["push.arrivals"] = _rounded(rng.uniform(0.05, 0.5))
    if rng.random() < 0.5:
        seconds = ITERATIONS * max(samples, LEAST_SAMPLES) * BITS * CYCLES / 1e9
        fields["frame.order"] = False
        fields["fleet.computing"] = {"slot": _rounded(seconds / _between(rng, 1, 20))}  # 1 to 20 slots on average
    return Setting(_title(fields), "paper", fields, (RECOMMENDED, CONTROL, *opponents(slots)), (), BUDGET, "drawn")


def opponents(slots: int) -> list[str]:
    """Return the strategies that the recommended one is compared with; slots: of full frames.

    Of 21 plain ones (`greedy-shap` and `fedavg` in frames of 2 slots, of 5 and of full length, and `only-pull`, each
    with `average`, `fedyogi` and `median`), these are the eight of the highest mean accuracy on drawing 0, and
    `fedavg+fedyogi` in frames of 2.
    """
    lengths = [(name, length or slots) for name, length in OPPONENTS]
    whole = [
        f"{name}{{frame.slots: {n}, frame.pull: {n}, strategy.warmup: null}}" for name, n in dict.fromkeys(lengths)
    ]
    return [*whole, f"{PULLING}{{strategy.warmup: null}}"]


def names(label: str, slots: int) -> list[str]:
    """Return the names of a strategy that all settings share; slots: of the full frames of the setting.

    >>> names("fedavg+fedyogi{frame.slots: 2, frame.pull: 2, strategy.warmup: null}", slots=5)
    ['fedavg+fedyogi, frames of 2']
    >>> names("fedavg+fedyogi{frame.slots: 5, frame.pull: 5, strategy.warmup: null}", slots=5)
    ['fedavg+fedyogi, frames of 5', 'fedavg+fedyogi, full frames']
    >>> names("only-pull+fedyogi{strategy.warmup: null}", slots=5)
    ['only-pull+fedyogi']
    """
    name, _, options = label.partition("{")
    if "frame.slots" not in options:
        return [name]
    length = int(options.partition("frame.slots: ")[2].partition(",")[0])
    shared = [of for own, of in OPPONENTS if own == name and (of or slots) == length]
    return [f"{name}, full frames" if of is None else f"{name}, frames of {of}" for of in shared]


def _between(rng: np.random.Generator, low: float, high: float) -> float:
    """Draw a number between two others, uniform on the log scale."""
    return float(low * (high / low) ** rng.random())


def _integer(rng: np.random.Generator, low: int, high: int) -> int:
    return round(_between(rng, low, high))


def _rounded(number: float) -> float:
    return float(f"{number:.2g}")


def _title(fields: dict[str, Any]) -> str:
    """Describe a setting in a line."""
    contention = (
        f"{fields['push.contenders']} contenders"
        if "push.contenders" in fields
        else f"{fields['push.arrivals']} arrivals a slot"
    )
    words = [
        fields["data.dataset"],
        f"{fields['data.ues']} UEs",
        f"{fields['data.validation_samples']} labels",
        f"alpha {fields['data.alpha']}",
        f"{fields['training.epochs']} epochs",
        f"lr {fields['training.lr']}",
        f"{fields['fleet.noise_law']} noise {fields['fleet.noise']}",
        f"{fields['frame.slots']} slots",
        contention,
        *(["computing times"] if "fleet.computing" in fields else []),
    ]
    return ", ".join(words)
