"""`fedslot init`: write a scenario to start from, with every field explained."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Annotated

import typer

from fedslot.cli.options import complete_scenario


def init(
    file: Annotated[Path, typer.Argument(help="The file to write; it must not exist yet.")] = Path("mine.yaml"),
    source: Annotated[
        str, typer.Option("--from", help="The preset to start from.", autocompletion=complete_scenario)
    ] = "quickstart",
) -> None:
    """Write a YAML file to start from: the fields of a preset, and all other fields as comments with their defaults.

    Example: fedslot init mine.yaml --from paper && fedslot run mine.yaml
    """
    from fedslot.runs.folders import write_atomically
    from fedslot.support.errors import InputError, RefusedError

    if file.suffix not in {".yaml", ".yml"}:
        raise InputError("FILE", str(file), "a name that ends with .yaml")
    if file.exists():
        raise RefusedError(f"{file} exists already; choose another name, or delete it first")
    text = commented(source)
    file.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(file, text)
    typer.echo(f"{file} is written; change it, then type: fedslot run {file}")


def commented(preset: str) -> str:
    """Return a preset as YAML with a comment on each field; those that it leaves at their defaults are comments too."""
    from fedslot.scenario import keys, preset_text, presets, ranges, read_fields, split_sections
    from fedslot.support.errors import InputError, one_of
    from fedslot.support.yaml_text import write_yaml

    if preset not in presets():
        raise InputError("--from", preset, one_of(preset, presets()))
    given, limits, fields = split_sections(read_fields(preset)), ranges(), keys()
    lines = [line for line in preset_text(preset).splitlines() if line.startswith("#")]
    lines += ["#", "# Every field is here. Those behind a # have their defaults; remove the # to change one.", ""]
    filled = {section for key in given for section in _sections(key)}
    opened = set()
    for key, about in fields.items():
        sections, name, indent = _sections(key), key.rpartition(".")[2], "  " * key.count(".")
        default, _, values = limits[key].removeprefix("default ").partition("; ")
        # YAML has no section without a field; only one that may be null is left out
        active = key in given or not {*sections} <= filled | fields.keys()
        filled |= {*sections} if active else set()
        for section in sections:
            if section not in opened:
                opened.add(section)
                hidden, before = "" if section in filled else "# ", [] if section in fields else [""]
                lines += [*before, f"{'  ' * section.count('.')}{hidden}{section.rpartition('.')[2]}:"]
        is_section = any(other.startswith(f"{key}.") for other in fields)
        lines += [""] if is_section else []
        note = f"{' '.join(about.split())} ({values}; default {default})"
        mark = f"{indent}# "
        lines += textwrap.wrap(note, 100, initial_indent=mark, subsequent_indent=mark, break_on_hyphens=False)
        if is_section:
            continue
        written = write_yaml({name: given[key]}, one_line=True).strip()[1:-1] if key in given else f"{name}: {default}"
        start = indent if active else mark
        lines += textwrap.wrap(
            written, 100, initial_indent=start, subsequent_indent=f"{start}  ", break_long_words=False
        )
    return "\n".join(lines) + "\n"


def _sections(key: str) -> list[str]:
    """Return the sections around a key, from the outside in."""
    return [key[:end] for end, letter in enumerate(key) if letter == "."]
