"""The log of the commands of a deployment: a time, a level and a line, as text or as JSON."""

from __future__ import annotations

import json
import logging
import re

import pytest
import typer

from fedslot import RefusedError
from fedslot.cli.network_log import network_log, say
from fedslot.cli.options import Terminated

logger = logging.getLogger("fedslot.deployment")


def test_lines_of_text(capsys: pytest.CaptureFixture[str]) -> None:
    with network_log("text"):
        logger.warning("the broker is %s", "lost")
    say("text", "over")
    output = capsys.readouterr()
    assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d WARNING the broker is lost\n", output.err)
    assert output.out == "over\n"
    with pytest.raises(RefusedError), network_log("text"):
        raise RefusedError("for the command line to tell")
    assert capsys.readouterr().err == ""


def test_lines_of_json(capsys: pytest.CaptureFixture[str]) -> None:
    with network_log("json"):
        logger.warning('a "quoted"\nline', extra={"fields": {"round": 3, "reason": "late"}})
        try:
            raise ValueError("mine")
        except ValueError:
            logger.exception("training failed")
        say("json", "over", sent=7)
    with pytest.raises(typer.Exit) as refused, network_log("json"):
        raise RefusedError("no broker")
    with pytest.raises(typer.Exit) as stopped, network_log("json"):
        raise Terminated
    output = capsys.readouterr()
    lines = [json.loads(line) for line in output.err.splitlines()]
    assert [(line["level"], line["message"]) for line in lines] == [
        ("warning", 'a "quoted"\nline'),
        ("error", "training failed"),
        ("info", "over"),
        ("error", "no broker"),
        ("warning", "stopped"),
    ]
    assert (lines[0]["round"], lines[0]["reason"], lines[2]["sent"]) == (3, "late", 7)
    assert "ValueError: mine" in lines[1]["traceback"]
    assert all(re.fullmatch(r"\d{4}-\d\d-\d\dT[\d:.]+\+00:00", line["time"]) for line in lines)
    assert (refused.value.exit_code, stopped.value.exit_code) == (2, 143)
    assert output.out == ""
