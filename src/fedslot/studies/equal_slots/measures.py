"""What is measured at equal slots, paired seed by seed with the reference strategy, and the aims."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from fedslot import Comparison, Result
from fedslot.experiments import ACCURACY, ACCURACY_DIFFERENCE, SLOTS, Estimate
from fedslot.studies.curves import TRAININGS
from fedslot.studies.equal_slots.settings import CONTROL, FIRST_SEED, REFERENCE, WINNERS, Setting

Rule = Literal["max", "frame"]
RULES: tuple[Rule, ...] = ("max", "frame")


@dataclass(frozen=True)
class Measures:
    """A comparison of a setting.

    Shares are on the log scale, like slots.
    """

    setting: Setting
    comparison: Comparison

    @property
    def names(self) -> list[str]:
        """Labels of the strategies."""
        return self.comparison.strategies

    @property
    def seeds(self) -> str:
        """The seeds in words."""
        seeds = self.comparison.seeds
        if len(seeds) == 1:
            return f"seed {seeds[0]}"
        if len(seeds) == 2:
            return f"seeds {seeds[0]} and {seeds[1]}"
        if seeds == list(range(seeds[0], seeds[-1] + 1)):
            return f"seeds {seeds[0]} to {seeds[-1]}"
        return f"seeds {', '.join(map(str, seeds))}"

    @property
    def is_older(self) -> bool:
        """Whether the runs were made by an earlier `filtered`; compressed updates came later."""
        return min(self.comparison.seeds) < FIRST_SEED and self.setting.group != "airtime"

    def beside(self, other: Measures) -> Measures:
        """Return the reference and the first winner of another comparison, and after them the runs of this one.

        Of the seeds that both have; by the budget of the other.
        """
        seeds = [seed for seed in other.comparison.seeds if seed in self.comparison.seeds]
        best = {name: other.comparison.runs[name] for name in (REFERENCE, WINNERS[0])}
        runs = {
            name: [results[one.comparison.seeds.index(seed)] for seed in seeds]
            for one, own in ((other, best), (self, self.comparison.runs))
            for name, results in own.items()
        }
        return Measures(other.setting, replace(self.comparison, seeds=seeds, runs=runs))

    def trainings(self, name: str) -> float:
        """Return the mean number of trainings in a run, NaN where the curves do not have it."""
        runs = self.comparison.runs[name]
        return float(np.mean([run.rounds[TRAININGS].sum() if TRAININGS in run.rounds else math.nan for run in runs]))

    def accuracy(self, name: str, slots: int | None = None, rule: Rule = "max") -> Estimate:
        """Return the accuracy after some slots, by default after all."""
        runs = self.comparison.runs[name]
        return Estimate.of([run.accuracy_at(slots or self.setting.budget, rule) for run in runs], ACCURACY)

    def gain(self, name: str, rule: Rule = "max", reference: str = REFERENCE) -> Estimate:
        """Return the difference of the accuracy after all slots from that of the reference."""
        own, other = (np.array(self.accuracy(each, None, rule).values) for each in (name, reference))
        return Estimate.of(own - other, ACCURACY_DIFFERENCE)

    def loss(self, name: str, slots: int) -> Estimate:
        """Return how much lower the accuracy after some announced slots is than that of the first winner."""
        own, best = (np.array(self.accuracy(each, slots, "frame").values) for each in (name, WINNERS[0]))
        return Estimate.of(best - own, ACCURACY_DIFFERENCE)

    def slots(self, name: str, target: float, rule: Rule = "max") -> Estimate:
        """Return the slots until a target accuracy is first reached."""
        return Estimate.of([self._slots_to(run, target, rule) for run in self.comparison.runs[name]], SLOTS)

    def share(self, name: str, target: float, rule: Rule = "max", reference: str = REFERENCE) -> Estimate:
        """Return the slots to a target accuracy as a share of those of the reference.

        A reference that does not get there would need more than all slots; it counts with all, so the share is an upper
        bound.
        """
        others = np.nan_to_num(self.slots(reference, target, rule).values, nan=self.setting.budget)
        return Estimate.of(np.array(self.slots(name, target, rule).values) / others, SLOTS)

    def catch_up(self, name: str, rule: Rule = "max") -> Estimate:
        """Return the share of all slots after which the accuracy is first that of the reference after all slots."""
        budget, goals = self.setting.budget, self.accuracy(REFERENCE, None, rule).values
        pairs = zip(self.comparison.runs[name], goals, strict=True)
        return Estimate.of([self._slots_to(run, goal, rule) / budget for run, goal in pairs], SLOTS)

    def waiting(self, slots: int) -> Measures:
        """Return the measures if every frame took some more slots, in which the PS waits for UEs to train."""

        def delayed(run: Result) -> Result:
            rounds, wait = run.rounds, slots * (run.rounds["cost_frame"] > 0)  # `ps-alone` has no frames
            later = {rule: rounds[rule] + wait for rule in ("cost_max", "cost_frame")}
            return replace(run, rounds=rounds.assign(**later))

        return self._changed(delayed)

    def smoothed(self, slots: int) -> Measures:
        """Return the measures of accuracies that are averaged over the rounds of the last `slots` slots."""

        def averaged(run: Result) -> Result:
            ends = run.rounds["cost_max"].cumsum().to_numpy()
            first = np.searchsorted(ends, ends - slots, side="right")
            sums = np.concatenate([[0.0], run.rounds["test_accuracy"].cumsum()])
            last = np.arange(1, len(ends) + 1)
            return replace(run, rounds=run.rounds.assign(test_accuracy=(sums[last] - sums[first]) / (last - first)))

        return self._changed(averaged)

    def _changed(self, change: Callable[[Result], Result]) -> Measures:
        runs = {name: [change(run) for run in results] for name, results in self.comparison.runs.items()}
        return Measures(self.setting, replace(self.comparison, runs=runs))

    def _slots_to(self, run: Result, target: float, rule: Rule) -> float:
        """Return the slots to a target accuracy, NaN beyond the budget: runs end by the clock, some announce more."""
        slots = run.slots_to(target, rule)
        return slots if slots <= self.setting.budget else math.nan

    def seconds(self, name: str) -> float:
        """Return the mean computing time of a run in seconds."""
        return float(np.mean([run.rounds["seconds"].sum() for run in self.comparison.runs[name]]))


@dataclass(frozen=True)
class Aim:
    """An aim of a strategy under a cost rule, and what was measured: the mean should be at most or at least a limit."""

    setting: str
    what: str
    name: str
    rule: Rule
    measured: Estimate
    limit: float
    at_most: bool

    @property
    def reached(self) -> bool:
        """Whether the mean is within the limit."""
        return self.measured.mean <= self.limit if self.at_most else self.measured.mean >= self.limit

    @property
    def verdict(self) -> str:
        """The result in a few words."""
        if self.reached:
            return "reached"
        if not self.measured.complete:
            return f"missed: {self.measured.reached} runs get there"
        return f"missed by {abs(self.measured.mean - self.limit) * 100:.1f}"

    @property
    def text(self) -> str:
        """What was measured, in percent or percentage points."""
        return self.measured.text(".0f" if self.at_most else "+.2f", factor=100)


def aims(settings: Mapping[str, Measures]) -> list[list[Aim]]:
    """Return the aims in the settings that were measured: each a row, with both winners and both costs."""
    return [
        [
            Aim(measures.setting.title, what, name, rule, measure(name, rule), limit, at_most)
            for name in WINNERS
            for rule in RULES
        ]
        for key, measures in settings.items()
        for what, measure, limit, at_most in _aims_of(key, measures)
    ]


def _aims_of(key: str, measures: Measures) -> Iterator[tuple[str, Callable[[str, Rule], Estimate], float, bool]]:
    """Yield the aims in a setting: in words, what is measured, the limit, and whether it is an upper one."""
    budget = measures.setting.budget
    if key in {"mnist-200", "mnist-5000"}:
        what = "slots to 0.90, % of greedy-shap's: at most 25"
        yield what, lambda name, rule: measures.share(name, 0.9, rule), 0.25, True
        yield f"points above {REFERENCE} after {budget} slots: at least 2.5", measures.gain, 0.025, False
    elif key in {"fashion-200", "fashion-5000", "cifar10-200", "cifar10-5000"}:
        yield f"slots to greedy-shap's accuracy after {budget}, %: at most 33", measures.catch_up, 1 / 3, True
    elif key.endswith("-clean"):
        peers = [name for name in measures.names if name not in {*WINNERS, CONTROL}]
        best = max(peers, key=lambda peer: measures.accuracy(peer).mean)
        what = f"points above {best}, the best of the others: at least 0"
        yield what, lambda name, rule: measures.gain(name, rule, best), 0.0, False
