"""Writes the reference of the documentation site from the code, each time the site is built (a hook of MkDocs)."""

from __future__ import annotations

import ast
import importlib
import inspect
import json
import re
import tempfile
import textwrap
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import click
import griffe
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from typer.main import get_command

import fedslot
from fedslot.cli import app
from fedslot.parts.kind import Kind
from fedslot.parts.kinds import AGGREGATIONS, CHANNELS, KINDS, STRATEGIES, VALUATIONS
from fedslot.scenario import keys, preset_text, presets, ranges

PACKAGES = {  # pages of the Python reference
    "fedslot": "fedslot",
    "access": "fedslot.access",
    "planning": "fedslot.planning",
    "compression": "fedslot.compression",
    "aggregation": "fedslot.aggregation",
    "strategies": "fedslot.strategies",
    "valuation": "fedslot.valuation",
    "data": "fedslot.data",
    "tracking": "fedslot.tracking",
    "mqtt": "fedslot.deployment.mqtt",
    "flower": "fedslot.deployment.flower",
}
SUMMARY = {  # of summary.json
    "strategy": "name of the strategy",
    "seed": "seed of the run",
    "rounds": "number of rounds",
    "stopped_by": "`rounds`, `time_budget`, `seconds_budget`, `joules_budget` or `callback`: what ended the run",
    "final_accuracy": "test accuracy after the last round",
    "best_accuracy": "highest test accuracy of all rounds",
    "slots_spent": "slots spent, by the scenario's `cost_rule`",
    "cost_max": "sum of `cost_max` over the rounds",
    "cost_frame": "sum of `cost_frame` over the rounds",
    "cost_sum": "sum of `cost_sum` over the rounds",
    "air_seconds": "seconds on the air; null if the length of a slot is not given",
    "joules": "energy of all UEs; null if the scenario's `radio` gives no energies",
    "push_received": "number of pushed updates that were received",
    "collided": "number of pushed updates that were not received",
    "seconds": "computing time of all rounds, in seconds",
    "engine": "`torch` or `compiled`: what trained the UEs",
    "scenario_digest": "hash of the scenario",
    "fedslot_version": "version of fedslot",
    "rounds_sha256": "hash of `rounds.csv`",
    "frames_sha256": "hash of `frames.csv`",
    "made_of": "hashes of your own data and of the sources of your own parts",
}
OTHERS = [kind for kind in KINDS if kind not in (STRATEGIES, AGGREGATIONS, CHANNELS, VALUATIONS)]
NAMES = r"[a-z_]\w*(?:, [a-z_]\w*)*"  # of arguments, as in `sent, slots: ...`


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages of the reference to the site."""
    pages = {
        "scenario": scenario_page(),
        "presets": presets_page(),
        "commands": commands_page(),
        "strategies": strategies_page(),
        "aggregations": aggregations_page(),
        "channels": channels_page(),
        "valuation": valuation_page(),
        "others": others_page(),
        "files": files_page(),
        **{f"api/{page}": package_page(name) for page, name in PACKAGES.items()},
    }
    for name, text in pages.items():
        files.append(File.generated(config, f"reference/{name}.md", content=text))
    return files


class Arguments(griffe.Extension):
    """Writes the docstrings of the Python reference as Markdown."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Rewrite the docstring of an object."""
        if obj.docstring is not None:
            obj.docstring.value = markdown(obj.docstring.value)


def markdown(docstring: str) -> str:
    r"""Return a docstring as Markdown: arguments as a list, examples as code.

    >>> markdown("A frame.\n\nslots: M. pull: Q.")
    'A frame.\n\n- **slots**: M.\n- **pull**: Q.'
    """
    return "\n\n".join(map(_paragraph, re.split(r"\n\s*\n", inspect.cleandoc(docstring))))


def _paragraph(text: str) -> str:
    if text.startswith(">>>"):
        return f"```pycon\n{text}\n```"
    if not re.match(rf"{NAMES}: ", text):
        return text
    line = " ".join(text.split())
    parts = re.split(rf"(?:^|(?<=[.;]) )(?={NAMES}: )", line)
    return "\n".join(re.sub(rf"^({NAMES}): ", r"- **\1**: ", part) for part in parts if part)


def scenario_page() -> str:
    """Return the fields of a scenario: meaning, default and allowed values."""
    lines = [
        "# Scenario fields",
        "A scenario is a YAML file with these fields in sections. `-o frame.pull=5` changes a field by its dotted key, "
        "and in Python `{'frame.pull': 5}` does. `fedslot schema --keys` prints the same list, `fedslot schema` prints "
        "the JSON schema for editors, and `fedslot init` writes a file to start from.",
    ]
    fields, limits = keys(), ranges()
    for section in dict.fromkeys(key.rpartition(".")[0] for key in fields):
        lines += [f"## {section} {{ #{section} }}", _section_text(section)] if section else ["## The run { #run }"]
        for key in (key for key in fields if key.rpartition(".")[0] == section):
            default, _, allowed = limits[key].removeprefix("default ").partition("; ")
            limit = _limits(f"Default `{default}`; {allowed}.")
            lines += [f"### `{key}` {{ #{key} .field }}", one_line(fields[key]), limit]
    return _page(lines)


def _limits(text: str) -> str:
    return f"{text}\n{{ .limits }}"


def _section_text(path: str) -> str:
    kind: Any = fedslot.Scenario
    for name in path.split("."):
        annotation = kind.model_fields[name].annotation
        kind = next(iter(getattr(annotation, "__args__", (annotation,))))
    return one_line(kind.__doc__)


def presets_page() -> str:
    """Return the presets as YAML."""
    lines = [
        "# Presets",
        "`fedslot run NAME` runs a preset, `fedslot init mine.yaml --from NAME` copies it to change it.",
    ]
    for name in presets():
        lines += [f"## {name}", f"```yaml\n{preset_text(name)}```"]
    return _page(lines)


def commands_page() -> str:
    """Return all commands with their arguments and options."""
    root = get_command(app)
    lines = [
        "# Commands",
        "Every command has `--help`. `fedslot --version` prints the version, and `fedslot --install-completion` sets "
        "up completion in your shell. The exit code is 0 for success, 1 for a failure, 2 for bad input, 3 for a "
        "deployed training of which most updates are missing, and 130 after Ctrl-C.",
    ]
    for path, command in walk(root, "fedslot"):
        lines.append(f"## {path} {{ #{path.replace(' ', '-')} }}")
        lines += _command(path, command)
    return _page(lines)


def walk(command: click.Command, path: str) -> Iterator[tuple[str, click.Command]]:
    """Yield all commands below a group, with the words that call them."""
    if not isinstance(command, click.Group):
        yield path, command
        return
    for name, inner in command.commands.items():
        yield from walk(inner, f"{path} {name}")


def _command(path: str, command: click.Command) -> Iterator[str]:
    context = click.Context(command, info_name=path)
    about, _, example = inspect.cleandoc(command.help or "").partition("Example: ")
    yield about.strip()
    usage = " ".join([path, *command.collect_usage_pieces(context)])
    yield f"```text\n{usage}\n```"
    if example:
        yield f"For example:\n\n```text\n{one_line(example)}\n```"
    for option in command.params:
        if not getattr(option, "hidden", False) and option.name != "help":
            yield _option(option, context)


def _option(option: click.Parameter, context: click.Context) -> str:
    """Return an argument or option as an entry of a definition list."""
    value = option.make_metavar(context)
    if isinstance(option, click.Option):
        names = ", ".join(option.opts) + "".join(f" / {name}" for name in option.secondary_opts)
        value = names if option.is_flag else f"{names} {value}"
    default = option.default
    told = getattr(option, "show_default", True) is not False and default not in (None, [], (), ..., False)
    if getattr(option, "is_flag", False) and option.secondary_opts:
        told, default = True, option.opts[0] if default else option.secondary_opts[0]
    needed = option.required and isinstance(option, click.Option)
    notes = [" Required."] if needed else [f" Default: `{default}`."] if told and not callable(default) else []
    text = one_line(getattr(option, "help", None) or "").replace("\\[", "[")
    return f"`{value}`\n:   {text}{''.join(notes)}"


def strategies_page() -> str:
    """Return the built-in strategies with their options."""
    lines = ["# Strategies", "`strategy.name` chooses one. [Strategies](../explanation/strategies.md) explains them."]
    for name in STRATEGIES:
        kind: Any = STRATEGIES.find(name)
        lines += [*_part(STRATEGIES, name), _options(STRATEGIES, name)]
        measures = "measurements of the updates" if hasattr(kind, "needs_measurements") else "no values"
        fields = ", ".join(f"`{field}`" for field in ("data.ues", "frame.slots", *getattr(kind, "uses", ())))
        lines.append(_limits(f"Needs {'Shapley values' if kind.needs_values else measures}. Uses {fields}."))
    return _page(lines)


def aggregations_page() -> str:
    """Return the built-in aggregations with their options."""
    lines = [
        "# Aggregations",
        "`aggregation.name` chooses one. [Aggregation](../explanation/aggregation.md) compares them.",
    ]
    for name in AGGREGATIONS:
        heading, text = _part(AGGREGATIONS, name)
        module = importlib.import_module(AGGREGATIONS.find(name).__module__)
        lines += [heading, markdown(module.__doc__ or ""), text, _options(AGGREGATIONS, name)]
    return _page(lines)


def channels_page() -> str:
    """Return the built-in channels with their options."""
    return _page(
        [
            "# Channels",
            "`push.channel` chooses one. [Access](../explanation/access.md#other-channels) compares them.",
            *_parts(CHANNELS),
            "A channel of your own is a subclass of [`fedslot.Channel`](api/fedslot.md#fedslot.Channel).",
        ]
    )


def valuation_page() -> str:
    """Return the built-in valuation methods with their options."""
    return _page(
        [
            "# Valuation methods",
            "`valuation.name` chooses one. [Valuation](../explanation/valuation.md) explains them.",
            *_parts(VALUATIONS),
        ]
    )


def others_page() -> str:
    """Return the built-in parts of the kinds that have no page of their own."""
    lines = [
        "# Other parts",
        "Every part is named in the scenario as `name` or `{name, options}`; "
        "[Your own parts](../how-to/own-parts.md) explains how to write one.",
    ]
    for kind in OTHERS:
        given = f" It is called with ({', '.join(kind.arguments)})." if kind.arguments else ""
        lines += [f"## {kind.section}", f"The field of {kind.noun}.{given}", *_parts(kind, level=3)]
    return _page(lines)


def _parts(kind: Kind[Any], level: int = 2) -> list[str]:
    """Return the descriptions of all built-in parts of a kind."""
    return [line for name in kind for line in (*_part(kind, name, level), _options(kind, name))]


def _part(kind: Kind[Any], name: str, level: int = 2) -> list[str]:
    """Return the heading and the description of a built-in part."""
    return [f"{'#' * level} {name} {{ #{name} }}", markdown(kind.find(name).__doc__ or "")]


def _options(kind: Kind[Any], name: str) -> str:
    """Return a sentence with the options of a built-in part."""
    defaults = {option.name: option.default for option in kind.options(name).values()}
    plain = {option: dict(value) if hasattr(value, "items") else value for option, value in defaults.items()}
    said = ", ".join(f"`{option}: {json.dumps(value)}`" for option, value in plain.items())
    return f"Options and their defaults (`{kind.section}.options`): {said}." if said else "No options."


def files_page() -> str:
    """Return the files of a run folder, with the meaning of every column."""
    with tempfile.TemporaryDirectory() as folder:
        fedslot.run(fedslot.Scenario.load("quickstart", {"rounds": 1}), f"{folder}/run")
        found = json.loads(Path(folder, "run", "summary.json").read_text("utf-8"))
    assert list(found) == list(SUMMARY), f"docs/reference.py must explain the keys of summary.json: {list(found)}"
    return _page(
        [
            "# Files",
            "A run writes these files into its folder. `fedslot.load(folder)` reads them.",
            "## scenario.yaml",
            "The complete scenario, every field included.",
            "## rounds.csv",
            "One row per round; the same columns are in `Result.rounds`. Costs are in slots.",
            *_table(field_docs(fedslot.Round).items()),
            "## frames.csv",
            "One row per slot and UE; the same columns are in `Result.frames`. "
            "[Trace and track a run](../how-to/tracking.md) has examples.",
            *_table(field_docs(fedslot.Event).items()),
            "## summary.json",
            "Written when the run is finished.",
            *_table(SUMMARY.items()),
            "## checkpoint.npz",
            "The state from which `--resume` continues: the model, the states of the strategy and of the aggregation, "
            "and hashes of the rows so far.",
            "## Of deployments",
            "[Run it for months](../how-to/operations.md) explains `changes.csv`, with a row per changed field, and "
            "`presence.json`, which says who is here while the parameter server runs. "
            "[Deploy on devices](../how-to/deployment.md#faults-and-trust) explains `faults.csv`.",
            "## Comparisons and sweeps",
            "[Compare strategies](../how-to/compare.md) lists the files of a comparison, and "
            "[Sweep over fields](../how-to/sweeps.md) those of a sweep.",
        ]
    )


def field_docs(kind: type) -> dict[str, str]:
    """Return the docstrings below the fields of a class, by field."""
    (node,) = ast.parse(textwrap.dedent(inspect.getsource(kind))).body
    assert isinstance(node, ast.ClassDef)
    found = {}
    for field, text in zip(node.body, node.body[1:], strict=False):
        if isinstance(field, ast.AnnAssign) and isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant):
            found[ast.unparse(field.target)] = one_line(str(text.value.value))
    return found


def _table(rows: Iterable[tuple[str, str]]) -> list[str]:
    return ["\n".join(["| name | meaning |", "|---|---|", *(f"| `{name}` | {about} |" for name, about in rows)])]


def package_page(name: str) -> str:
    """Return the public names of a package; names that `fedslot` also exports are on its page."""
    package = importlib.import_module(name)
    lines = [f"# {name}", _map(package)]
    for public in sorted(package.__all__, key=lambda public: (public.startswith("_"), public.lower())):
        if public == "__version__":
            lines.append(
                f'<h2 id="{name}.{public}"><code>{name}.{public}</code></h2>\n\nThe version of fedslot, as text.'
            )
        elif name != "fedslot" and public in fedslot.__all__ and getattr(package, public) is getattr(fedslot, public):
            lines.append(f"`{public}` is [`fedslot.{public}`](fedslot.md#fedslot.{public}).\n{{ #{name}.{public} }}")
        else:
            lines.append(f"::: {name}.{public}")
    return _page(lines)


def _map(package: ModuleType) -> str:
    """Return the first sentence of a package's docstring."""
    return one_line((package.__doc__ or "").split("\n\n")[0])


def one_line(text: str) -> str:
    """Return text without line breaks."""
    return " ".join(text.split())


def _page(parts: Iterable[str]) -> str:
    return "\n\n".join(parts) + "\n"
