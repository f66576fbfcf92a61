"""The log of `fedslot serve` and `fedslot device` on stderr: lines with time and level, as text or as JSON."""

from __future__ import annotations

import datetime
import json
import logging
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any, Literal

import typer

from fedslot.cli.faults import BAD_INPUT
from fedslot.cli.options import Terminated
from fedslot.support.errors import InputError, RefusedError

LogForm = Literal["text", "json"]
LogOption = Annotated[
    LogForm, typer.Option("--log", help="How lines of the log on stderr are written: as text, or each as JSON.")
]
logger = logging.getLogger("fedslot")


class JsonLines(logging.Formatter):
    """Formats a record as one line of JSON: time (UTC), level, message, and what the record has as `fields`."""

    def format(self, record: logging.LogRecord) -> str:
        at = datetime.datetime.fromtimestamp(record.created, datetime.UTC).isoformat(timespec="milliseconds")
        line: dict[str, Any] = {"time": at, "level": record.levelname.lower(), "message": record.getMessage()}
        line |= getattr(record, "fields", {})
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


@contextmanager
def network_log(form: LogForm) -> Iterator[None]:
    """Show what happens on the network, a line each on stderr; SIGTERM ends the command with a line, as Ctrl-C does.

    As JSON, the line about why the command ended is JSON, too.
    """
    handler = logging.StreamHandler(sys.stderr)
    text = logging.Formatter("%(asctime)s %(levelname)s %(message)s", "%Y-%m-%d %H:%M:%S")
    handler.setFormatter(JsonLines() if form == "json" else text)
    logger.addHandler(handler)
    level, before = logger.level, signal.signal(signal.SIGTERM, _terminate)
    logger.setLevel(logging.INFO)
    try:
        yield
    except (InputError, RefusedError) as error:
        if form == "text":
            raise
        logger.error("%s", error)
        raise typer.Exit(BAD_INPUT) from None
    except KeyboardInterrupt as stop:
        if form == "text":
            raise
        logger.warning("stopped")
        raise typer.Exit(143 if isinstance(stop, Terminated) else 130) from None
    finally:
        signal.signal(signal.SIGTERM, before)
        logger.setLevel(level)
        logger.removeHandler(handler)


def say(form: LogForm, line: str, **fields: object) -> None:
    """Print the last line of a command to stdout; as JSON, write it to the log."""
    if form == "json":
        logger.info("%s", line, extra={"fields": fields})
    else:
        typer.echo(line)


def _terminate(number: int, frame: object) -> None:
    raise Terminated
