"""Event files of TensorBoard: every number of a round against rounds, accuracies and losses against slots too."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from fedslot.rounds.round import Round
from fedslot.rounds.trace import Event
from fedslot.runs.callbacks import Callback
from fedslot.runs.results import Result
from fedslot.scenario import Scenario
from fedslot.support.errors import InputError
from fedslot.tracking.numbers import AGAINST_SLOTS, numbers, refusing

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter

FOLDER, BY_SLOTS = "tensorboard", "by_slots"


class TensorBoard(Callback):
    """Writes event files, which `tensorboard --logdir FOLDER` shows.

    The steps of a run are its rounds, those of the run `by_slots` beside it are slots spent. What a killed run wrote
    ahead of its checkpoint is superseded when it goes on.

    folder: for the event files; None: `tensorboard` in the folder of the run.
    """

    def __init__(self, folder: str | Path | None = None) -> None:
        with refusing("TensorBoard", "tensorboard"):  # now, before the first round is lost
            from torch.utils.tensorboard import SummaryWriter
        self._make, self._given = SummaryWriter, None if folder is None else Path(folder)
        self._writers: list[SummaryWriter] = []

    def on_start(self, scenario: Scenario, done: int, folder: Path | None) -> None:
        if self._given is None and folder is None:
            raise InputError("folder", None, "given to TensorBoard, for a run that is not saved")
        self._scenario, self._folder = scenario, self._given or Path(folder or "") / FOLDER

    def on_round(self, round: Round, frame: Sequence[Event]) -> None:
        values = numbers(round, frame)
        with refusing("TensorBoard", "tensorboard"):
            if not self._writers:  # from here on, which is what `purge_step` says
                by_round = self._make(str(self._folder), purge_step=round.round)
                self._writers = [by_round, self._make(str(self._folder / BY_SLOTS), purge_step=int(round.slots_spent))]
                by_round.add_text("scenario", f"```yaml\n{self._scenario.to_yaml()}```", round.round)
            by_round, by_slots = self._writers
            for name, number in values.items():
                by_round.add_scalar(name, number, round.round)
            for name in values.keys() & set(AGAINST_SLOTS):
                by_slots.add_scalar(name, values[name], int(round.slots_spent))

    def on_end(self, result: Result | None) -> None:
        with refusing("TensorBoard", "tensorboard"):
            while self._writers:
                self._writers.pop().close()
