"""Merit push: short frames pull the cleanest of the known UEs, and the cleanest of the backlogged ones may push."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from fedslot.messages import Grant, Merit, Receipt
from fedslot.strategies.base import Cell, Uses
from fedslot.strategies.scout import first_frame
from fedslot.strategies.survey import Survey
from fedslot.support.errors import InputError

LESS = 1 / 1.1  # factor of the threshold on noise for each UE in excess
MORE = 1.05  # of one on losses or norms, which differ less
FIRST, HIGHEST = 1e-3, 1e9  # thresholds on losses or norms: the first one is soon raised
MOST_STEP = 50  # UEs in excess: more count as these
LEAST_SHARE = 1 / 2  # of the known UEs in a small pool: most of them were admitted by their low noise


@dataclass(frozen=True)
class PushSurvey(Survey):
    """A survey with the threshold of the attribute by which UEs push, and whether access barring follows the load."""

    threshold: float = math.inf
    barred: bool = False


class MeritPush:
    """Pull from a pool of clean UEs the number that makes the most progress per slot; open `push` slots by merit.

    UEs may push if their own noise is at most a threshold, which follows the load: the PS's estimate of the number of
    contenders lowers or raises it, so that the cleanest of the backlogged UEs contend, in the number that is best for
    the channel. It is cut to the noise of the noisiest UE received so far, and stays above the noise with which a UE
    would be welcome in the pool; there, access barring follows the load, as with `push.probability: auto`. Where all
    pulled UEs are ready, others become known only by their pushes, so some must be backlogged (`push.contenders` or
    `push.arrivals`). Where pulled UEs were not ready, further UEs are pulled before those wanted.

    With `attribute` set to `loss` or `norm`, UEs push by significance instead: if the loss of the global model on their
    own data, or the norm of their local update, is at least a threshold, which follows the load in the same way; access
    barring follows it, too. For a norm, all backlogged UEs must train before they know whether they push, which is also
    what the simulator's time is then spent on; a loss takes a pass over their data.

    The first frame pulls UEs at random with half of the slots; all frames have one slot at least for pulled UEs,
    however large `push` is. On channels with copies (`crdsa`, `irsa`), two slots can hardly resolve two UEs: there, set
    `push` to 4 or more. `horizon` is the number of updates over which noise averages out.
    """

    needs_values = False
    needs_measurements = True
    needs_load = True
    uses: ClassVar[Uses] = ("push",)

    def __init__(
        self,
        cell: Cell,
        *,
        horizon: Annotated[float, Field(ge=1, le=1e6)] = 1.0,
        push: Annotated[int, Field(ge=1, le=10**6)] = 2,
        attribute: Literal["noise", "loss", "norm"] = "noise",
    ) -> None:
        if cell.slots < 2:
            raise InputError("frame.slots", cell.slots, "at least 2 under merit-push: one to pull and one to push")
        self.cell, self.horizon, self.push = cell, horizon, min(push, cell.slots - 1)
        self.attribute = attribute

    def init(self) -> PushSurvey:
        blank = PushSurvey.blank(self.cell.ues)
        return blank if self.attribute == "noise" else replace(blank, threshold=FIRST, barred=True)

    def schedule(self, state: PushSurvey, round: int, rng: np.random.Generator) -> Grant:
        if not state.measured:
            return first_frame(self.cell, rng)
        pool = state.pool(self.horizon, LEAST_SHARE)
        pull = state.next_of(pool, state.best_updates(pool, self.cell.slots - self.push, self.cell.downlink))
        pull = np.concatenate([state.further(pull, self.cell.slots - self.push), pull])
        slots, merit = len(pull) + self.push, Merit("noise", most=state.threshold)
        if self.attribute != "noise":
            merit = Merit(self.attribute, least=state.threshold)
        return Grant(pull, push=True, probability="auto" if state.barred else 1.0, slots=slots, merit=merit)

    def observe(self, state: PushSurvey, receipt: Receipt, values: NDArray[np.float64]) -> PushSurvey:
        state = state.add(receipt)
        if not state.measured:
            return state
        excess = float(np.clip(receipt.excess, -MOST_STEP, MOST_STEP))
        if self.attribute != "noise":
            return replace(state, threshold=float(np.clip(state.threshold * MORE**excess, 1 / HIGHEST, HIGHEST)))
        welcome = state.welcome_noise(state.pool(self.horizon, LEAST_SHARE), self.horizon)
        noisiest = float(state.noise[state.seen > 0].max())
        threshold = min(state.threshold, noisiest) * LESS**excess
        return replace(state, threshold=max(threshold, welcome), barred=threshold <= welcome)
