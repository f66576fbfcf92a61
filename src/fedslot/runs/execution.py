"""Run a scenario, in memory or in a folder from which it can be resumed, and return a `Result`."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import chdir
from functools import partial
from pathlib import Path

import pandas as pd

from fedslot.rounds.round import Round, Snapshot
from fedslot.rounds.simulation import Distribute, Simulation
from fedslot.rounds.trace import Event
from fedslot.runs.callbacks import Callback, Callbacks, Report
from fedslot.runs.provenance import fingerprints
from fedslot.runs.records import RunFolder, frame_table, read_summary, round_table
from fedslot.runs.results import Result
from fedslot.scenario import Scenario, as_scenario
from fedslot.support import display
from fedslot.support.checks import check_whole
from fedslot.support.errors import InputError
from fedslot.support.threads import Threads

# between two checkpoints: as many seconds, and as many times what the last one took, which keeps their cost below 5%
LEAST_SECONDS, LEAST_TIMES = 5.0, 20.0


def run(
    scenario: Scenario | str | Path,
    out: str | Path | None = None,
    *,
    resume: bool = False,
    force: bool = False,
    threads: int = 1,
    distribute: Distribute | None = None,
    callbacks: Sequence[Callback] = (),
    frames: bool = True,
    progress: bool | None = None,
) -> Result:
    """Run a scenario to its end.

    scenario: a scenario, or the name of a preset or YAML file.
    out: folder for `scenario.yaml`, `rounds.csv`, `frames.csv`, `summary.json` and the checkpoint; None writes nothing.
    resume: continue the run in the folder, also to more rounds or a larger time budget; the result is the same as
        without the interruption.
    force: start over in a folder that holds a run, which is deleted.
    threads: threads that share the work of a round; the result does not depend on their number.
    distribute: wraps the local training; `fedslot.distributed_training` spreads it over a Dask cluster.
    callbacks: are told of the start, of each round and of the end, and may stop the run (`fedslot.Callback`).
    frames: whether to keep the trace of all frames (`Result.frames`); a run that is continued goes on as it began.
    progress: whether to show a bar; None: in a notebook only.

    >>> from fedslot import Scenario
    >>> result = run(Scenario.load("quickstart", {"rounds": 2}))
    >>> len(result.rounds)
    2
    """
    scenario = as_scenario(scenario)
    if out is not None and not isinstance(out, str | Path):
        raise InputError("out", out, "a folder; overrides go into Scenario.load(source, overrides)")
    if out is None and (resume or force):
        raise InputError("out", out, "a folder, if its run is to be continued or deleted")
    check_whole("threads", threads, least=1)
    if not isinstance(callbacks, Sequence):
        raise InputError("callbacks", callbacks, "a list of callbacks")
    folder = None if out is None else RunFolder(Path(out))
    # back to the current folder at the end, should a part of the user's own have left it
    with chdir("."), Threads(threads) as pool, display.progress(progress, [scenario.label], [scenario]) as show:
        listeners = Callbacks([*([Report(partial(show, 0))] if show else []), *callbacks])
        simulation = Simulation(scenario, distribute, pool)
        try:
            if folder is None:
                result = _in_memory(simulation, listeners, frames)
            else:
                result = _in_folder(simulation, folder, listeners, resume, force, frames)
        except BaseException as error:
            listeners.end(None, error)
            raise
        listeners.end(result)
    return result


def load(out: str | Path) -> Result:
    """Read scenario and rounds of a run folder, finished or not."""
    folder = RunFolder(Path(out))
    return Result(folder.scenario(), folder.rounds(), folder=folder.path, finished=is_finished(out))


def is_finished(out: str | Path) -> bool:
    """Return whether the run in a folder is complete."""
    return read_summary(Path(out)) is not None


def _in_memory(simulation: Simulation, listeners: Callbacks, frames: bool) -> Result:
    rows: list[Round] = []
    events: list[Event] = []
    now, stopped = simulation.start(), False
    listeners.start(simulation.scenario, now.round, None)
    for round, after, frame in simulation.rounds(now):
        now = after
        rows.append(round)
        events += frame if frames else []
        if stopped := listeners.round(round, frame) and simulation.goes_on(now):
            break
    return _result(simulation, round_table(rows), now, frame_table(events) if frames else None, None, stopped)


def _in_folder(
    simulation: Simulation, folder: RunFolder, listeners: Callbacks, resume: bool, force: bool, frames: bool
) -> Result:
    scenario, stopped = simulation.scenario, False
    made_of = fingerprints(scenario)
    now = folder.open(scenario, simulation.start(), made_of, resume=resume, force=force, frames=frames)
    try:
        try:
            listeners.start(scenario, now.round, folder.path)
            due = 0.0  # after the first round
            for round, after, frame in simulation.rounds(now):
                now = after
                folder.append(round, frame, now)
                if (began := time.monotonic()) >= due:
                    folder.save()
                    due = time.monotonic() + max(LEAST_SECONDS, LEAST_TIMES * (time.monotonic() - began))
                if stopped := listeners.round(round, frame) and simulation.goes_on(now):
                    break
        except Exception:
            if now.round == 0:  # there is nothing to continue, and the next try shall find no folder in its way
                folder.withdraw()
            raise
        finally:
            if folder.is_open:
                folder.save()  # also when interrupted, so that no finished round is lost
        result = _result(simulation, folder.rounds(), now, None, folder.path, stopped)
        if not stopped:
            folder.finish(result.summary())
    finally:
        folder.close()
    return result


def _result(
    simulation: Simulation,
    rounds: pd.DataFrame,
    now: Snapshot,
    trace: pd.DataFrame | None,
    folder: Path | None,
    stopped: bool,
) -> Result:
    parameters, engine = now.report.cpu().numpy(), simulation.trainer.engine
    return Result(simulation.scenario, rounds, parameters, now.state, engine, folder, trace, stopped, not stopped)
