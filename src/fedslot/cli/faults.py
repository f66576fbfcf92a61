"""What goes wrong on the command line, as one line on stderr and an exit code.

    2    the user can mend it: bad input, a mistyped option
    1    a fault of the system: a full disk, a folder that may not be written, want of memory
    3    a deployed training ended, but most of its updates are missing
    130  Ctrl-C
    141  the reader of the output went away, as in `fedslot plan | head -1`: silence, as of other tools

All other exceptions are defects, here or in a user's own part, and keep their traceback.
"""

from __future__ import annotations

import codecs
import logging
import os
import sys
import textwrap
import warnings
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any

import typer

from fedslot.support.errors import InputError, RefusedError, did_you_mean, ended
from fedslot.support.extras import explain

BAD_INPUT, SYSTEM_FAULT, UPDATES_MISSING, CLOSED_PIPE = 2, 1, 3, 128 + 13
PLAIN = {
    "▶": ">",
    "▷": ">",
    "⋮": ":",
    "±": "+-",
    "–": "-",
    "—": "-",
    "…": "...",
    "×": "x",
    "·": "-",
    "≤": "<=",
    "≥": ">=",
}
"""What to print where the output's encoding lacks a character."""
MOST_CHARACTERS = 400

_UsageError: Any = typer.BadParameter.__mro__[1]  # click's; Typer exports only this one subclass of it


def exit_code(command: Callable[[], object]) -> int:
    """Run a command and return its exit code; a fault is told in one line."""
    _prepare_output()
    try:
        code = command()
        if sys.stdout is not None:  # it is None if the process was started without one
            sys.stdout.flush()
        return code if isinstance(code, int) else 0
    except (InputError, RefusedError) as error:
        return _fail(str(error), BAD_INPUT)
    except ModuleNotFoundError as error:
        lack = explain("this command", error)
        if lack is None:
            raise
        return _fail(str(lack), BAD_INPUT)
    except _UsageError as error:
        if type(error).__name__ == "NoArgsIsHelpError":  # the help has been printed
            return _leave(BAD_INPUT)
        if type(error).__name__ == "MissingParameter" and error.param.name == "scenario":
            with suppress(OSError):
                _tell_what_to_do(error.ctx)
        return _fail(_usage(error), BAD_INPUT)
    except BrokenPipeError:
        return _leave(CLOSED_PIPE)
    except SystemExit as end:  # how rich and Typer end when the output is closed
        if isinstance(end.__context__, BrokenPipeError):
            return _leave(CLOSED_PIPE)
        return _fail(str(ended(end)), BAD_INPUT)
    except KeyboardInterrupt:
        return _leave(130)
    except OSError as error:
        where = f"{error.filename}: " if error.filename is not None else ""
        return _fail(f"{where}{error.strerror or error}", SYSTEM_FAULT)
    except (MemoryError, RuntimeError) as error:
        if not (isinstance(error, MemoryError) or "allocate memory" in str(error)):  # the latter is PyTorch's
            raise
        return _fail(f"not enough memory ({str(error).strip() or 'no more could be had'})", SYSTEM_FAULT)


def _prepare_output() -> None:
    """Print everything in any encoding, and no warnings of libraries, which a user can do nothing about."""
    os.environ["MPLBACKEND"] = "agg"  # figures are files; the user's backend may not exist here
    codecs.register_error("plain", _plain)
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="plain")
    if not sys.warnoptions:  # neither -W nor PYTHONWARNINGS
        warnings.simplefilter("ignore")
        logging.getLogger("matplotlib").setLevel(logging.ERROR)


def _plain(error: UnicodeError) -> tuple[str | bytes, int]:
    """Replace characters that cannot be encoded; others than `PLAIN` by their escape sequences."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    text = error.object[error.start : error.end]
    return "".join(PLAIN.get(c) or ascii(c)[1:-1] for c in text), error.end


def _fail(line: str, code: int) -> int:
    line = " ".join(line.split())
    if len(line) > MOST_CHARACTERS:
        line = f"{line[: MOST_CHARACTERS // 2]} ... {line[-MOST_CHARACTERS // 2 :]}"
    with suppress(OSError):  # where stderr cannot be written either, the exit code says it
        typer.secho(f"error: {line}", fg=typer.colors.RED, err=True)
    return _leave(code)


def _tell_what_to_do(context: Any) -> None:
    """Print to a user who named no scenario how to name one."""
    from fedslot.scenario import presets

    rows = {
        "presets": f"{', '.join(presets())} (`fedslot presets` describes them)",
        "your own": "`fedslot init mine.yaml` writes a scenario to change, with every field explained",
        "example": context.command.help.partition("Example: ")[2].strip(),
    }
    for title, text in rows.items():
        for line in textwrap.wrap(text, 70, break_on_hyphens=False):
            typer.echo(f"{title:<10}{line}", err=True)
            title = ""


def _leave(code: int) -> int:
    """Return the exit code; output that cannot be written is dropped, or Python would complain of it at its end."""
    for stream in (sys.stdout, sys.stderr):
        try:
            if stream is not None:
                stream.flush()
        except (OSError, ValueError):
            with suppress(OSError, ValueError):  # it may be no file
                os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
    return code


def _usage(error: Any) -> str:
    """Return what is wrong with the words of a command: the option, its value, what is allowed, near matches."""
    context, parameter, kind = error.ctx, getattr(error, "param", None), type(error).__name__
    message = _lower(str(error.message).strip())
    if context is None:
        return message
    command = context.command_path
    if kind == "NoSuchOption":
        options = [name for each in context.command.params for name in each.opts if name.startswith("-")]
        return f"{command} has no option {error.option_name}{_near(error.option_name, options)}"
    if kind == "NoSuchCommand" or error.message.startswith("No such command"):
        word = error.message.split("'")[1]
        return f"{command} has no command {word}{_near(word, context.command.commands)}"
    if parameter is None:
        return f"{command}: {message}"
    is_option = parameter.param_type_name == "option"
    name = parameter.opts[-1] if is_option else parameter.make_metavar(context)
    if kind == "MissingParameter":
        return f"{command} needs {name}: {_lower(parameter.help)}"
    choices = [str(choice) for choice in getattr(parameter.type, "choices", ())]
    word = message.partition("'")[2].partition("'")[0]
    return f"{name}: {message}{did_you_mean(word, choices)}"


def _lower(sentence: str) -> str:
    return sentence[:1].lower() + sentence[1:].rstrip(".")


def _near(word: str, names: Iterable[str]) -> str:
    return did_you_mean(word, names) or f", only {', '.join(names)}"
