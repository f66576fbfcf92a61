"""The result of a run: its scenario, rounds, frames and model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import nn

from fedslot import __version__
from fedslot.access.clock import Clock
from fedslot.data.sources import load as load_data
from fedslot.fleet import Fleet
from fedslot.learning.tasks import ACCURACY, Score, score_of
from fedslot.messages import Time, tidy
from fedslot.planning.bits import BestBits, best_bits
from fedslot.planning.inputs import model_shapes
from fedslot.rounds.links import Links
from fedslot.rounds.local_training import make_model
from fedslot.rounds.trace import COLLIDED, LOST, PULLED, PUSHED, WASTED
from fedslot.runs.privacy import DELTA, Privacy, clip_norm, privacy_of
from fedslot.runs.records import RunFolder
from fedslot.scenario import Scenario
from fedslot.strategies.survey import Survey
from fedslot.support import display
from fedslot.support.errors import InputError, RefusedError, one_of, say_time

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from fedslot.runs.value_ratio import ValueRatio

Rule = Literal["max", "frame", "sum"]
X = Literal["slots", "rounds", "seconds", "joules"]
MOST_OF_THEM = 1 / 2  # least share of the UEs received so far whose updates count
NEEDED = {"seconds": "radio.slot_seconds", "joules": "radio.send_joules"}


def spent(table: pd.DataFrame, x: X) -> NDArray[np.float64]:
    """Return what a run had spent after each of its rounds: slots, seconds on the air or joules; or the rounds."""
    if x == "rounds":
        return np.arange(len(table), dtype=float)
    if x == "slots":
        return table["slots_spent"].to_numpy(float)
    numbers = table.get("air_seconds" if x == "seconds" else "joules")
    if numbers is None or numbers.isna().any():
        raise InputError("against", x, f"slots or rounds for a run without {NEEDED[x]} in its scenario")
    return numbers.cumsum().to_numpy(float)


def scores(table: pd.DataFrame) -> NDArray[np.float64]:
    """Return the scores in a table of rounds: the accuracies, or, in other tasks, the column `test_score`."""
    others = table.get("test_score")
    accuracy = table["test_accuracy"] if others is None or others.isna().all() else others
    return accuracy.to_numpy(np.float64)


@dataclass(frozen=True, repr=False)
class Result:
    """The result of a run.

    scenario: the scenario that was run.
    rounds: one row per round, the columns of `rounds.csv`.
    parameters: (P,) the last global model, if it is in memory. state: the last state of the strategy.
    engine: `torch` or `compiled`, which trained the UEs.
    folder: where the run is saved, if it is. trace: the trace of all frames, if it is in memory.
    stopped: whether a callback stopped the run. finished: whether the run came to its end; `resume` continues others.

    `load` reads scenario and rounds, and model and frames when they are asked for; state and engine are then None.
    """

    scenario: Scenario
    rounds: pd.DataFrame
    parameters: NDArray[np.float32] | None = None
    state: Any = None
    engine: str | None = None
    folder: Path | None = None
    trace: pd.DataFrame | None = None
    stopped: bool = False
    finished: bool = True

    @property
    def frames(self) -> pd.DataFrame | None:
        """The trace of all frames, a row per `fedslot.Event`, the columns of `frames.csv`; None if it was not kept."""
        if self.trace is None and self.folder is not None:
            trace = RunFolder(self.folder).frames()
            return None if trace is None else trace[trace["round"] < len(self.rounds)]
        return self.trace

    @property
    def model(self) -> NDArray[np.float32] | None:
        """The last global model (P,); of a loaded run, that of its last checkpoint, and None if there is none."""
        if self.parameters is None and self.folder is not None:
            return RunFolder(self.folder).model()
        return self.parameters

    def module(self) -> nn.Module:
        """Return the network with the parameters of the last global model, on the CPU, for evaluation."""
        flat = self.model
        if flat is None:
            raise RefusedError(f"{self.folder or 'the result'} has no model; a run saves the first after some rounds")
        network = make_model(self.scenario.replace({"training.device": "cpu"}), load_data(self.scenario.data.dataset))
        return network.module_with(torch.tensor(flat))

    def in_memory(self) -> Result:
        """Return the same result without its folder, which may then be deleted."""
        return replace(self, parameters=self.model, trace=self.frames, folder=None)

    @property
    def score(self) -> Score:
        """The number by which models are reported: the accuracy, or the other score of `training.task`."""
        return score_of(self.scenario)

    @property
    def scores(self) -> NDArray[np.float64]:
        """The scores of the global model on the test set, (rounds,)."""
        return scores(self.rounds)

    @property
    def final_score(self) -> float:
        """Score on the test set after the last round, which is the accuracy in most tasks; NaN before the first."""
        return float(self.scores[-1]) if len(self.rounds) else float("nan")

    @property
    def best_score(self) -> float:
        """The best score of all rounds; NaN before the first."""
        best = np.max if self.score.higher else np.min
        return float(best(self.scores)) if len(self.rounds) else float("nan")

    @property
    def final_accuracy(self) -> float:
        """Test accuracy after the last round; NaN before the first, and in tasks with another score."""
        return self.final_score if self.score == ACCURACY else float("nan")

    @property
    def slots_spent(self) -> Time:
        """Number of slots that the run spent, by the scenario's cost rule."""
        return _total_time(self.rounds["slots_spent"][-1:])

    def accuracy_at(self, slots: Time, rule: Rule | None = None) -> float:
        """Return the test accuracy, or the other score of the task, of the last round that was complete after `slots`
        slots; NaN if none was.

        rule: the cost rule by which slots count; None: the scenario's.
        """
        spent = self.rounds["slots_spent"] if rule is None else self._costs(rule).cumsum()
        done = self.scores[(spent <= slots).to_numpy()]
        return float(done[-1]) if len(done) else float("nan")

    def slots_to(self, accuracy: float, rule: Rule | None = None) -> float:
        """Return the slots until the test accuracy, or the other score of the task, first reached a target; NaN if it
        never did.

        rule: the cost rule by which slots count; None: the scenario's.
        """
        label = rule or self.scenario.rule_label
        spent = self.rounds["slots_spent"] if label == "own" else self._costs(label).cumsum()
        reached = np.flatnonzero(self.scores >= accuracy if self.score.higher else self.scores <= accuracy)
        return float(spent.iloc[reached[0]]) if len(reached) else float("nan")

    def _costs(self, rule: str) -> pd.Series[int]:
        """Return the cost of each round by a rule."""
        if rule not in get_args(Rule):
            raise InputError("rule", rule, one_of(rule, get_args(Rule)))
        return self.rounds[f"cost_{rule}"]

    def _total(self, column: str) -> float | None:
        """Return the sum of a column over all rounds; None if a round has no number, or the run is an older one."""
        numbers = self.rounds.get(column)
        return None if numbers is None or numbers.isna().any() else float(numbers.sum())

    def joules_by_ue(self) -> NDArray[np.float64] | None:
        """Return the energy that each UE spent in the run, (K,), from its trace; None without energies or a trace.

        A trace lists at most 100 UEs of a slot. Where more sent, the run is refused.
        """
        total, frames = self._total("joules"), self.frames
        if total is None or frames is None:
            return None
        clock = Clock.of(self.scenario, model_shapes(self.scenario))
        acted = frames[frames["event"].isin([PULLED, WASTED, LOST, PUSHED, COLLIDED])]
        if self.scenario.fleet.availability is None and self.scenario.radio.joules_per_ue is None:
            joules = self._joules(clock, acted, int((self.rounds["slots"] > 0).sum()), None)
        else:  # not all listen in each frame
            links, joules = self._links(clock), np.zeros(clock.ues)
            began = self.rounds["slots_spent"].shift(fill_value=0)
            for round, start, slots in zip(self.rounds["round"], began, self.rounds["slots"], strict=True):
                absent = links.absent(start, joules)
                joules = joules + self._joules(clock, acted[acted["round"] == round], int(slots > 0), absent)
        if not np.isclose(joules.sum(), total, rtol=1e-6):
            raise RefusedError(f"the trace of {self.folder or 'the run'} does not list all UEs that sent")
        return joules

    def _links(self, clock: Clock) -> Links:
        """Return the links of the run's UEs."""
        data = load_data(self.scenario.data.dataset)
        return Links.of(self.scenario, Fleet.draw(self.scenario, data.y_train, data.ue_train), clock.radio)

    def _joules(
        self, clock: Clock, acted: pd.DataFrame, downlinks: int, absent: NDArray[np.bool_] | None
    ) -> NDArray[np.float64]:
        """Return the energy (K,) of downlinks and of those that acted in their frames. absent: (K,) do not listen."""
        sent = acted.loc[acted["event"] != WASTED, "ue"].to_numpy(np.int64)
        joules = clock.joules_by_ue(downlinks, sent, self._computed(clock, acted), absent)
        assert joules is not None
        return joules

    def _computed(self, clock: Clock, acted: pd.DataFrame) -> NDArray[np.float64]:
        """Return the time that each UE computed, (K,) in slots, of those that acted in frames; (0,) if not counted."""
        if not clock.compute_joules:
            return np.zeros(0)
        if self.scenario.is_asynchronous:
            raise RefusedError("the trace of asynchronous runs does not list all UEs that trained")
        data, computed = load_data(self.scenario.data.dataset), np.zeros(clock.ues)
        fleet = Fleet.draw(self.scenario, data.y_train, data.ue_train)
        assert fleet.computing is not None
        for round in acted["round"].unique().tolist():
            ues = acted.loc[acted["round"] == round, "ue"].unique().astype(np.int64)
            computed[ues] += fleet.computing.times(round)[ues]
        return computed

    def privacy(self, delta: float = DELTA) -> Privacy | None:
        """Return the epsilon of each UE by the updates that were received from it; None without `clip` before `noise`.

        It is None, too, for a run without a trace, which says who was received.
        """
        norm, frames = clip_norm(self.scenario), self.frames
        if norm is None or frames is None:
            return None
        if not 0 < delta < 1:
            raise InputError("delta", delta, "above 0 and below 1")
        received = frames[frames["event"].isin([PULLED, PUSHED])].drop_duplicates(
            ["round", "ue"]
        )  # a row for each slot
        ues = received["ue"].to_numpy(np.int64)
        data = load_data(self.scenario.data.dataset)
        noise = Fleet.draw(self.scenario, data.y_train, data.ue_train).noise
        return privacy_of(norm, noise, np.bincount(ues, minlength=len(noise)), delta)

    def value_ratio(self) -> ValueRatio:
        """Estimate the value of a pushed update relative to a pulled one, from the trace of the run."""
        from fedslot.runs.value_ratio import estimate_value_ratio  # slow to import

        return estimate_value_ratio(self.scenario, self.frames, self.folder or "the run")

    def update_bits(self) -> BestBits | None:
        """Return the bits per parameter with which updates would make the most progress per slot.

        It follows from what `scout` or `merit-push` measured up to the end of the run; None with other strategies. In a
        run with compression, its error counts as noise, too.
        """
        survey = self.state if self.folder is None else RunFolder(self.folder).survey(self.scenario.data.ues)
        if not isinstance(survey, Survey) or not survey.paired:
            return None
        return best_bits(survey.noise_share(survey.pool(horizon=1.0, share=MOST_OF_THEM)))

    def plot(self, x: X = "slots", axes: Axes | None = None, size: Literal["screen", "column"] = "screen") -> Axes:
        """Draw the test accuracy over slots, rounds, seconds or joules, in given axes or in a new figure.

        size: of a new figure, for a screen or for a column of a two-column paper.
        """
        drawn: Axes = display.plot(self, x, axes, size)
        return drawn

    def plot_frames(self, rounds: Sequence[int]) -> Axes:
        """Draw the frames of some rounds slot by slot: who was pulled, who pushed, and where updates collided."""
        drawn: Axes = display.plot_frames(self.frames, rounds)
        return drawn

    def __repr__(self) -> str:
        if not len(self.rounds):
            return f"Result({self.scenario.label}: no rounds)"
        score = f"test {self.score.label} {self.final_score:.3f}"
        length = f"{len(self.rounds)} rounds, {say_time(self.slots_spent)} slots, {score}"
        return f"Result({self.scenario.label}: {length}{f', {self.ending}' if self.ending else ''})"

    def _repr_html_(self) -> str:
        return display.html(self)

    def summary(self) -> dict[str, Any]:
        """Return the content of `summary.json`, apart from its hashes of rows, data and own parts."""
        rounds, privacy = self.rounds, self.privacy()
        spent = {} if privacy is None else {"epsilon": tidy(privacy.largest) if np.isfinite(privacy.largest) else None}
        return {
            "strategy": self.scenario.strategy.name,
            "seed": self.scenario.seed,
            "rounds": len(rounds),
            "stopped_by": self._stopped_by,
            f"final_{self.score.name}": self.final_score,
            f"best_{self.score.name}": self.best_score,
            "slots_spent": self.slots_spent,
            "cost_max": _total_time(rounds["cost_max"]),
            "cost_frame": _total_time(rounds["cost_frame"]),
            "cost_sum": _total_time(rounds["cost_sum"]),
            "air_seconds": self._total("air_seconds"),
            "joules": self._total("joules"),
            **spent,
            "push_received": int(rounds["push_received"].sum()),
            "collided": int(rounds["collided"].sum()),
            "seconds": float(rounds["seconds"].sum()),
            "engine": self.engine,
            "scenario_digest": self.scenario.digest,
            "fedslot_version": __version__,
        }

    @property
    def ending(self) -> str:
        """A remark on a run that did not come to its end; empty for others."""
        return "" if self.finished else "stopped" if self.stopped else "not finished"

    @property
    def _stopped_by(self) -> str | None:
        if not self.finished:
            return "callback" if self.stopped else None
        if len(self.rounds) == self.scenario.most_rounds:
            return "rounds"
        used = self.scenario.used(self.slots_spent, self._total("air_seconds") or 0.0, self._total("joules") or 0.0)
        return max(used, key=lambda name: used[name], default="time_budget")


def _total_time(slots: pd.Series[Any]) -> Time:
    """Return the sum of numbers of slots, whole if they are."""
    return tidy(np.asarray(slots).sum().item()) if len(slots) else 0
