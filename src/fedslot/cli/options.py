"""Arguments and options that several commands share, with shell completion."""

from __future__ import annotations

import inspect
import shlex
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

if TYPE_CHECKING:
    from fedslot.experiments.study import Study
    from fedslot.experiments.tasks import Listener, Task
    from fedslot.rounds.round import Round
    from fedslot.scenario import Scenario
    from fedslot.views.progress import Display


def complete_scenario(incomplete: str) -> list[str]:
    """Return the presets and YAML files whose names begin with `incomplete`."""
    from fedslot.scenario import presets

    files = [str(file) for file in Path().glob(f"{incomplete}*.y*ml")]
    return [name for name in presets() if name.startswith(incomplete)] + files


def complete_override(incomplete: str) -> list[str]:
    """Return the keys of a scenario that begin with `incomplete`; after `strategy.name=` and the like, names of parts.

    >>> complete_override("aggregation.name=fed")
    ['aggregation.name=fedavgm', 'aggregation.name=fedbuff', 'aggregation.name=fedadam', 'aggregation.name=fedyogi']
    """
    from fedslot.parts.kinds import KINDS
    from fedslot.scenario import keys

    key, equals, _ = incomplete.partition("=")
    if equals:
        kinds = (kind for kind in KINDS if key in (kind.section, f"{kind.section}.name"))
        parts = [f"{key}={name}" for kind in kinds for name in kind.names()]
        return [part for part in parts if part.startswith(incomplete)]
    return [f"{key}=" for key in keys() if key.startswith(incomplete)]


def complete_tracker(incomplete: str) -> list[str]:
    """Return the trackers whose names begin with `incomplete`."""
    return [name for name in ("tensorboard", "mlflow") if name.startswith(incomplete)]


ScenarioArgument = Annotated[
    str,
    typer.Argument(
        metavar="SCENARIO",
        help="A preset (see `fedslot presets`) or a YAML file.",
        autocompletion=complete_scenario,
    ),
]
OverrideOption = Annotated[
    list[str],
    typer.Option(
        "-o",
        "--override",
        metavar="KEY=VALUE",
        help="Change a field of the scenario, e.g. `-o frame.pull=5`; may be repeated. `fedslot schema --keys` "
        "lists the fields.",
        autocompletion=complete_override,
        show_default=False,
    ),
]
ResumeOption = Annotated[
    bool,
    typer.Option(
        "--resume",
        help="Continue what the folder holds, also to more rounds. The result is the same as without interruption.",
    ),
]
ForceOption = Annotated[
    bool,
    typer.Option("--force", help="Delete the results of this command in the folder, and start over."),
]
FramesOption = Annotated[
    bool,
    typer.Option("--frames/--no-frames", help="Write frames.csv, which has every slot of every frame."),
]
TrackOption = Annotated[
    list[str],
    typer.Option(
        metavar="TOOL",
        help="Track the rounds with `tensorboard` or `mlflow`; may be repeated.",
        autocompletion=complete_tracker,
        show_default=False,
    ),
]
CurvesOption = Annotated[
    Path | None,
    typer.Option(
        metavar="FOLDER",
        exists=True,
        file_okay=False,
        help="Folder with the curves of earlier runs, e.g. docs/explanation/curves; the page shows these too.",
        show_default=False,
    ),
]
WorkersOption = Annotated[int | None, typer.Option(help="Number of processes; by default one per core.", min=1)]
Against = Literal["slots", "rounds", "seconds", "joules"]
TargetsOption = Annotated[str, typer.Option(metavar="A,B,C", help="Target accuracies.")]
OpenOption = Annotated[bool, typer.Option("--open", help="Open the page in a browser.")]
PortOption = Annotated[
    int | None,
    typer.Option(
        "--port", min=1, max=65535, help="Port of the page; by default a free one from 5006 on.", show_default=False
    ),
]
SAME_AND_RESUME = "continue with the same command and --resume"
DaskOption = Annotated[
    str | None,
    typer.Option(
        metavar="ADDRESS",
        help="Compute on the Dask cluster whose scheduler is at this address, e.g. tcp://host:8786.",
        show_default=False,
    ),
]


@dataclass(frozen=True)
class Running:
    """Options of the commands that run scenarios here: how runs are computed, tracked and shown."""

    threads: Annotated[
        int, typer.Option(min=1, help="Threads of each run. For several runs, more processes are faster.")
    ] = 1
    dask: DaskOption = None
    resume: ResumeOption = False
    force: ForceOption = False
    frames: FramesOption = True
    track: TrackOption = ()  # type: ignore[assignment]
    live: Annotated[
        bool,
        typer.Option("--live", help="Show the run live in a browser; needs fedslot\\[live]. See also `fedslot watch`."),
    ] = False
    open: OpenOption = False
    port: PortOption = None

    @property
    def settings(self) -> dict[str, Any]:
        """The options that go to the function of the command by the same names."""
        return {name: getattr(self, name) for name in ("threads", "resume", "force", "frames")}


def takes_running(**defaults: object) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Add the options of `Running` to those of a command, whose last parameter gets them as one object.

    defaults: of options that have another default in this command.
    """
    fields = inspect.signature(Running, eval_str=True).parameters.values()
    shared = [field.replace(default=defaults.get(field.name, field.default)) for field in fields]

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        *own, _ = inspect.signature(command, eval_str=True).parameters.values()

        @wraps(command)
        def run(**options: Any) -> None:
            how = Running(**{field.name: options.pop(field.name) for field in shared})
            command(**options, how=how)

        run.__signature__ = inspect.Signature([*own, *shared])  # type: ignore[attr-defined]  # which Typer reads
        return run

    return decorate


def read_scenario(source: str, overrides: list[str]) -> Scenario:
    """Load the scenario that the arguments describe."""
    from fedslot.scenario import Scenario, parse_overrides

    scenario = Scenario.load(source, parse_overrides(overrides))
    note_old_keys(source, overrides)
    return scenario


def note_old_keys(source: str, words: Sequence[str]) -> None:
    """Say in a line each which keys of the user's file and of `key=value` words have a new name.

    The file of a run folder says nothing: an earlier version wrote it.
    """
    from fedslot.scenario import read_fields
    from fedslot.scenario.aliases import alias_notes, old_keys
    from fedslot.support.yaml_text import YAMLError, parse_yaml

    fields = {} if Path(source).with_name("rounds.csv").exists() else read_fields(source)
    given = old_keys(fields)
    for word in words:
        key, _, value = word.partition("=")
        try:
            given += old_keys({key.strip(): parse_yaml(value)})
        except YAMLError:  # values of a grid with commas between
            given += old_keys({key.strip(): value})
    for line in alias_notes(given):
        typer.secho(f"note: {line}", err=True)


def note_effects(source: str, scenarios: Sequence[Scenario]) -> None:
    """Say in a line each which fields that the user set have no effect in any of the scenarios."""
    from fedslot.rounds.effects import base_of, notes

    for line in notes(scenarios, base_of(source)):
        typer.secho(f"note: {line}", err=True)


def read_targets(words: str) -> tuple[float, ...]:
    """Parse target accuracies with commas between."""
    from fedslot.support.errors import InputError

    try:
        targets = tuple(float(word) for word in words.split(",") if word)
    except ValueError:
        targets = ()
    if not targets:
        raise InputError("targets", words, "numbers with commas between, e.g. 0.8,0.9")
    return targets


def say_more(folder: Path, *, shown: bool = False) -> None:
    """Say in one line how to see more of the results in a folder; shown: by `fedslot show`, which then goes unsaid."""
    name = shlex.quote(str(folder))
    ways = [f"fedslot watch {name} --open", f"fedslot.load({str(folder)!r}) in Python"]
    typer.echo(f"more: {', '.join(ways if shown else [f'fedslot show {name}', *ways])}")


@contextmanager
def watch(labels: Sequence[str], scenarios: Sequence[Scenario], again: str) -> Iterator[Display]:
    """Show the progress of runs; Ctrl-C ends the command with one line, which says how to continue (`again`)."""
    from fedslot.views.progress import Display

    with stoppable(again):
        if any(scenario.training.engine != "torch" and scenario.training.model.name == "mlp" for scenario in scenarios):
            warm_up()
    with stoppable(again), Display(labels, scenarios) as display:
        yield display


def warm_up() -> None:
    """Compile the training of perceptrons with a word and a bar, if Numba is installed and nothing is cached."""
    from fedslot.support.extras import is_installed

    if not is_installed("numba"):
        return
    from fedslot.learning.compiled_training import KERNELS, is_warm, warm

    if is_warm():
        return
    what = "compiling the training of perceptrons, once per machine"
    with typer.progressbar(warm(), length=len(KERNELS), label=what, file=sys.stderr) as kernels:
        list(kernels)


def compute_study(tasks: Mapping[str, Task], curves: Path, prefix: str, workers: int | None, dask: str | None) -> None:
    """Compute the runs that a study lacks, keep their curves and show their progress; prefix: of the names shown."""
    from fedslot.studies.frame import compute

    labels, scenarios = [f"{prefix}{name}" for name in tasks], [task.scenario for task in tasks.values()]
    with watch(labels, scenarios, "the same command continues") as display:
        compute(tasks, curves, workers=workers, dask=dask, listener=display)


def continue_with(context: typer.Context) -> str:
    """Return how to continue a run: its command with the options that were given, and with --resume."""
    words = ["fedslot", str(context.info_name)]
    for parameter in context.command.params:
        name = str(parameter.name)
        source = context.get_parameter_source(name)
        if name in ("resume", "force") or source is None or source.name != "COMMANDLINE":
            continue
        value = context.params[name]
        if parameter.param_type_name == "argument":
            words.append(str(value))
        elif isinstance(value, bool):
            words.append(parameter.opts[0] if value else parameter.secondary_opts[0])
        else:
            for each in value if parameter.multiple else [value]:
                words += [parameter.opts[0], str(each)]
    return f"continue with: {shlex.join([*words, '--resume'])}"


@contextmanager
def live_view(out: Path, how: Running) -> Iterator[None]:
    """Show a folder in a browser meanwhile, if any of the options is given.

    In a terminal the page stays after the end until Ctrl-C; elsewhere it ends with the command.
    """
    if not (how.live or how.open or how.port is not None):
        yield
        return
    from fedslot.views.live.beside import beside

    with beside(out, how.port, how.open, lambda address: typer.secho(f"live view: {address}", err=True)) as view:
        yield
        if sys.stdin.isatty() and sys.stderr.isatty():
            with suppress(KeyboardInterrupt):
                if view.comes_up():
                    typer.secho(f"the page stays at {view.address} until Ctrl-C", err=True)
                    view.wait()


def check_study(study: Study, source: str, dask: str | None) -> None:
    """Refuse a study that cannot be computed, before anything is written, and note what has no effect in it."""
    check_cluster(dask)
    study.check(data=dask is None)
    note_effects(source, study.scenarios)


@contextmanager
def computing(study: Study, out: Path, workers: int | None, how: Running) -> Iterator[dict[str, Any]]:
    """Yield the options of computing a study, with a listener that shows and tracks the rounds of all runs."""
    tasks, labels = study.tasks(out), study.run_labels
    with watch(labels, [task.scenario for task in tasks], SAME_AND_RESUME) as display, ExitStack() as stack:
        listeners: list[Listener] = [display]
        if how.track:
            from fedslot.tracking.trackers import RunTrackers

            listeners.append(stack.enter_context(closing(RunTrackers(how.track, tasks, labels, out))))

        def listen(index: int, round: Round | None) -> None:
            for listener in listeners:
                listener(index, round)

        yield {**how.settings, "dask": how.dask, "workers": workers, "listener": listen}


class Terminated(KeyboardInterrupt):
    """The process shall end, by SIGTERM."""


@contextmanager
def stoppable(again: str) -> Iterator[None]:
    """End the command at Ctrl-C with one line, which says how to continue (`again`)."""
    try:
        yield
    except KeyboardInterrupt as stop:
        typer.secho(f"stopped; {again}", err=True)
        raise typer.Exit(143 if isinstance(stop, Terminated) else 130) from None


def check_cluster(address: str | None) -> None:
    """Refuse a Dask cluster that cannot be used, before anything is written, and warn of one that will be slow."""
    if address is None:
        return
    from fedslot.experiments.cluster import find_workers

    threads = find_workers(address).values()
    if not threads:
        typer.secho(f"{address} has no workers yet; the work waits for them", err=True)
    elif max(threads) > 1:
        advice = "start one per core: dask worker ADDRESS --nworkers auto --nthreads 1"
        typer.secho(f"a worker has {max(threads)} threads, but runs one task at a time; {advice}", err=True)
