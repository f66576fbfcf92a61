"""Every page of the documentation is a session that runs: its files, commands and Python, in their order.

CONTRIBUTING.md says how examples are written.
"""

from __future__ import annotations

import contextlib
import doctest
import io
import itertools
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import click
import pytest
from typer.main import get_command

from fedslot.cli import app, main
from fedslot.scenario import keys
from fedslot.support.yaml_text import parse_yaml

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
FENCE = re.compile(
    r"^(?:<!-- (?P<mark>(?:not run|exit): .*?) -->\n)?```(?P<language>\w*)(?P<info>[^\n]*)\n(?P<code>.*?)^```$",
    re.M | re.S,
)
NUMBER = re.compile(r"[-+−±]?\d[\d.,]*(?:e[-+]?\d+)?")
KEYS = keys()
each_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
SLOW = {"compare.md", "sweeps.md", "study-a-scheduler.md", "write-a-scheduler.md"}  # whole comparisons and sweeps
each_session = pytest.mark.parametrize(
    "page",
    [pytest.param(page, marks=pytest.mark.long) if page.name in SLOW else page for page in PAGES],
    ids=lambda page: str(page.relative_to(ROOT)),
)


@dataclass(frozen=True)
class Block:
    """A fenced block of a page.

    mark: the comment above it, `not run: REASON`, `exit: CODE` or nothing. title: the file that it is, if any.
    line: its first line in the page, from 0.
    """

    language: str
    title: str
    mark: str
    code: str
    line: int

    @property
    def runs(self) -> bool:
        return not self.mark.startswith("not run")

    def commands(self) -> list[tuple[str, str]]:
        """Return the commands of a console with the output that the page shows."""
        return re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", join_lines(self.code), re.M)


def join_lines(code: str) -> str:
    """Return commands without the line breaks that a backslash continues."""
    return re.sub(r"\\\n\s*", "", code)


def blocks(text: str) -> Iterator[Block]:
    for found in FENCE.finditer(text):
        title = re.search(r'title="([^"]+)"', found["info"])
        line = text.count("\n", 0, found.start("code"))
        yield Block(found["language"], title[1] if title else "", found["mark"] or "", found["code"], line)


@each_session
def test_the_session_of_a_page_runs(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))  # to which the command line adds
    monkeypatch.setenv("COLUMNS", "100")
    before = set(sys.modules)
    names: dict[str, object] = {"__name__": "__main__"}
    try:
        for block in blocks(page.read_text("utf-8")):
            if block.runs:
                run(block, names, page)
    finally:
        for module in set(sys.modules) - before:  # the pages' own, of which another page may have one of the same name
            if str(getattr(sys.modules[module], "__file__", "")).startswith(str(tmp_path)):
                del sys.modules[module]


def run(block: Block, names: dict[str, object], page: Path) -> None:
    """Run a block in the current folder: write a file, run commands, or execute Python in `names`."""
    if block.title:
        Path(block.title).parent.mkdir(parents=True, exist_ok=True)
        Path(block.title).write_text(block.code, "utf-8")
    elif block.language == "console":
        commands = block.commands()
        expected = [0] * (len(commands) - 1) + [int(block.mark.removeprefix("exit: ") or 0)]
        for (command, shown), code in zip(commands, expected, strict=True):
            run_command(command, shown, code)
    elif block.language == "pycon":
        test = doctest.DocTestParser().get_doctest(block.code, names, page.name, str(page), block.line)
        report = io.StringIO()
        runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
        runner.run(test, out=report.write, clear_globs=False)
        names.update(test.globs)  # it has a copy
        assert runner.failures == 0, report.getvalue()
    elif block.language == "python":
        with contextlib.redirect_stdout(io.StringIO()):
            exec(compile("\n" * block.line + block.code, page, "exec"), names)


def run_command(command: str, shown: str, code: int) -> None:
    """Run a line of bash; one command of fedslot alone runs in this process, which is quicker."""
    words = split(command)
    if words[0] == "fedslot" and not any(map(separates, words)):
        with contextlib.redirect_stdout(io.StringIO()) as printed, contextlib.redirect_stderr(printed):
            status = main(words[1:])
        output = printed.getvalue()
    else:
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
        done = subprocess.run(["bash", "-c", command], env=os.environ | {"PATH": path}, text=True, timeout=300, **pipes)
        status, output = done.returncode, done.stdout
    assert status == code, f"{command}\n{output}"
    assert shows(shown, output), f"{command}\n{output}\ndoes not have what the page shows:\n{shown}"


def split(line: str) -> list[str]:
    """Split a line of bash into words and separators."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    return list(lexer)


def separates(word: str) -> bool:
    """Return whether a word of bash separates commands."""
    return set(word) <= set("&|;<>()")


def shows(shown: str, output: str) -> bool:
    """Return whether an output has the shown text, apart from numbers, white space and `...`."""
    parts, text, place = [re.escape(part.strip()) for part in plain(shown).split("...")], plain(output), 0
    parts[0] = rf"(?:^|(?<= )){parts[0]}"
    parts[-1] = f"{parts[-1]}(?= |$)"
    for part in parts:  # one after the other: a single pattern with many gaps may take exponential time
        found = re.compile(part).search(text, place)
        if found is None:
            return False
        place = found.end()
    return True


def plain(text: str) -> str:
    """Return a text in one line, with any number as #, each rule of a table as one character, lines ended by ¶."""
    lines = [" ".join(line.split()) for line in re.sub(r"([─━═])\1+", r"\1", NUMBER.sub("#", text)).splitlines()]
    return " ¶ ".join(line for line in lines if line)


def test_shown_output_is_compared_apart_from_numbers() -> None:
    output = "first\nfedavg, seed 0: test accuracy 0.8123\n\n  a    1.5 ± 0.2\nlast\n"
    assert shows("fedavg, seed 3: test accuracy 0.9\n a 7\n", output.replace(" ± 0.2", ""))
    assert shows("first\n...\nlast\n", output)
    assert shows("fedavg, ... accuracy 0.8\n", output)
    assert not shows("push-pull, seed 0: test accuracy 0.8123\n", output)
    assert not shows("...\nfirst fedavg,\nseed 0: test\n...", output), "lines are compared as a whole"
    assert not shows("a 7 8\nlast\n", output.replace(" ± 0.2", "")), "so that a column that is not printed is noticed"
    assert not shows("first\nlast\n", output)
    assert not shows("irst\n", output)


@each_page
def test_code_that_is_not_run_is_checked(page: Path) -> None:
    for block in blocks(page.read_text("utf-8")):
        if block.language in ("python", "pycon") and not block.runs:
            compile(block.code, page, "exec")
        if block.language == "yaml":
            parse_yaml(block.code)
        if block.language == "console":
            assert block.commands(), "a console has commands, which begin with $"
            for command, _ in block.commands():
                check_command(command)
        if block.language == "bash":
            for command in re.findall(r"^(fedslot .*)$", join_lines(block.code), re.M):
                check_command(command)


@each_page
def test_commands_in_the_text_exist(page: Path) -> None:
    """Their options too, and the fields that they set; the values may be left out."""
    text = FENCE.sub("", page.read_text("utf-8"))
    for words in re.findall(r"(?<!`)`fedslot ([^`]+)`(?!`)", text):
        command: click.Command = get_command(app)
        options = {"-h", "--help"}
        for word in words.split():
            if isinstance(command, click.Group) and not word.startswith("-"):
                assert word in command.commands, f"fedslot {words}"
                command = command.commands[word]
            options |= {name for option in command.params for name in (*option.opts, *option.secondary_opts)}
            assert not word.startswith("--") or word.split("=")[0] in options, f"fedslot {words}"
    for key in re.findall(r"-o '?([\w.]+)=", text):
        check_key(key)


@each_page
def test_code_is_fenced(page: Path) -> None:
    """Code by indentation would not be run."""
    text = FENCE.sub("", page.read_text("utf-8"))
    assert not re.search(r"^\n {4}(?:\$ |fedslot |pip |python |import |from )", text, re.M)


def check_command(line: str) -> None:
    """Parse the commands of fedslot in a line of bash as fedslot itself does, without running them."""
    for _, group in itertools.groupby(split(line), separates):
        name, *words = group
        if name != "fedslot":
            continue
        parse(get_command(app), words)
        for option, value in itertools.pairwise(words):
            if option in ("-o", "--override", "--grid"):
                check_key(value.partition("=")[0])


def parse(command: click.Command, words: list[str], parent: click.Context | None = None) -> None:
    if isinstance(command, click.Group):
        context = click.Context(command, parent, info_name="fedslot")
        if words[0].startswith("-"):  # as in --version
            return
        name, found, rest = command.resolve_command(context, words)
        assert found is not None, name
        parse(found, rest, context)
    else:
        command.make_context(command.name, words, parent)


def check_key(key: str) -> None:
    """Assert that a key is a field of a scenario, a section of it, or an entry of a mapping that is a value."""
    parts = key.split(".")
    fields = {".".join(parts[:count]) for count in range(1, len(parts) + 1)} & KEYS.keys()
    assert fields or any(field.startswith(f"{key}.") for field in KEYS), key


@each_page
def test_links_lead_somewhere(page: Path) -> None:
    """Files exist, and their headings; links into the generated reference are checked when the site is built."""
    text = FENCE.sub("", page.read_text("utf-8"))
    for target, anchor in re.findall(r"\]\(([^)#\s]*)(?:#([^)\s]+))?\)", text):
        if "://" in target or (ROOT / "docs" / "reference") in (page.parent / target).resolve().parents:
            continue
        file = (page.parent / target).resolve() if target else page
        assert file.exists(), target
        assert not anchor or anchor in anchors(file), f"{target}#{anchor}"


def anchors(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.*)$", FENCE.sub("", page.read_text("utf-8")), re.M)
    return {re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", heading).strip().lower()) for heading in headings}
