"""What is tracked of a run: the numbers of its rounds and the fields of its scenario."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any

from fedslot.rounds.round import Round
from fedslot.rounds.trace import Event
from fedslot.scenario import Scenario
from fedslot.support.errors import InputError, RefusedError
from fedslot.support.extras import lacking

AGAINST_SLOTS = ("test_accuracy", "test_score", "test_loss", "val_loss")  # these are tracked against slots too


def numbers(round: Round, frame: Sequence[Event]) -> dict[str, float]:
    """Return the numbers of a round by name: its columns in `rounds.csv` and, if the frame is known, its idle slots."""
    values = {name: float(number) for name, number in asdict(round).items() if name != "round" and number is not None}
    used = {event.slot for event in frame if event.event != "idle"} - {0}  # very long frames list not all idle slots
    return values | ({"idle_slots": float(round.slots - len(used))} if frame else {})


def flat_fields(scenario: Scenario) -> dict[str, Any]:
    """Return the fields of a scenario by dotted key.

    >>> flat_fields(Scenario())["frame.pull"]
    10
    """

    def flatten(fields: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, Any]]:
        for name, value in fields.items():
            if isinstance(value, dict) and value:
                yield from flatten(value, f"{prefix}{name}.")
            else:
                yield f"{prefix}{name}", value

    return dict(flatten(scenario.model_dump(), ""))


@contextmanager
def refusing(tool: str, extra: str) -> Iterator[None]:
    """Turn the errors of a tool, or its absence, into one line; the run can be continued."""
    try:
        yield
    except (InputError, RefusedError):
        raise
    except ModuleNotFoundError as error:
        raise lacking(f"tracking by {tool}", str(error.name), extra) from None
    except Exception as error:
        why = " ".join(str(error).split()) or type(error).__name__
        raise RefusedError(f"tracking by {tool} failed ({why}); the run can be continued with --resume") from error
