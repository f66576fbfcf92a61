"""Errors that the user can correct, each with a message of one line."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from typing import Any


class InputError(ValueError):
    """Bad input; the message names the field, its value and the allowed values in one line.

    The command line prints the line and exits with code 2; in Python it is an ordinary `ValueError`.

    >>> raise InputError("frame.pull", 30, "at most frame.slots (20)")
    Traceback (most recent call last):
    fedslot.support.errors.InputError: frame.pull: 30 is not allowed; it must be at most frame.slots (20)
    """

    def __init__(self, field: str, value: object, allowed: str) -> None:
        self.field, self.value, self.allowed = field, value, allowed
        # fields and reasons come from users and from other libraries, and may have line breaks
        super().__init__(" ".join(f"{field}: {shorten(value)} is not allowed; it must be {allowed}".split()))

    def __reduce__(self) -> tuple[type[InputError], tuple[str, object, str]]:
        return InputError, (self.field, self.value, self.allowed)  # pickle needs all three


class RefusedError(RuntimeError):
    """A problem that is no bad value, such as a folder in use; the message says what to do in one line."""


class SystemFault(str):
    """The reason of a failure that is the system's, such as a full disk, and not the user's to mend."""


def ended(end: SystemExit) -> RefusedError:
    """Return the error of one line about a part of the user's own that would end the program."""
    return RefusedError(f"a part of your own called sys.exit({shorten(end.code)}); let it raise an error instead")


@contextmanager
def refusing_exit() -> Iterator[None]:
    """Turn into an error what would end a program in silence in a part of the user's own.

    After `sys.exit` with code 0 it would seem to have worked, after a broken pipe that nobody reads its output.
    """
    try:
        yield
    except SystemExit as end:
        raise ended(end) from end
    except BrokenPipeError as error:
        raise RefusedError("a part of your own wrote into a pipe or a connection that is closed") from error


def reason(error: BaseException) -> str:
    """Return the reason of a failure as one line.

    >>> reason(KeyError("x"))
    "KeyError: 'x'"
    """
    text = " ".join(str(error).split())
    if isinstance(error, InputError | RefusedError):
        return text
    named = f"{type(error).__name__}: {text}"
    return SystemFault(named) if isinstance(error, OSError | MemoryError) else named


def counted(number: int, thing: str) -> str:
    """Return a number of things as text.

    >>> counted(1, "round"), counted(3, "round")
    ('1 round', '3 rounds')
    """
    return f"{number} {thing}{'' if number == 1 else 's'}"


def say_time(time: float) -> str:
    """Return a number of slots as text, with a decimal unless it is whole.

    >>> say_time(21), say_time(48.627586196)
    ('21', '48.6')
    """
    return f"{time:.1f}" if isinstance(time, float) else f"{time}"


def first_names(names: Sequence[str]) -> str:
    """Return the first three names of a list, and the number of the others.

    >>> first_names(["a", "b", "c", "d", "e"])
    'a, b, c and 2 more'
    """
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return ", ".join(names[:3]) + more


def say_number(number: float) -> str:
    """Return a number as text.

    >>> say_number(1e6), say_number(0.5)
    ('1,000,000', '0.5')
    """
    return f"{int(number):,}" if float(number).is_integer() else f"{number:,}"


def one_of(name: str, allowed: Iterable[str], otherwise: str = "") -> str:
    """Return the allowed names as text, and the one nearest to a name that is not allowed.

    otherwise: what else is allowed.

    >>> one_of("fed-avg", ["push-pull", "fedavg"])
    'one of push-pull, fedavg; did you mean fedavg?'
    """
    names = list(allowed)
    return f"one of {', '.join(names)}{otherwise}{did_you_mean(name, names)}"


def did_you_mean(name: str, names: Iterable[str]) -> str:
    """Return the question whether the nearest of the known names was meant; empty if none is near.

    >>> did_you_mean("--slot", ["--slots", "--seed"]), did_you_mean("--bogus", ["--out"])
    ('; did you mean --slots?', '')
    """
    near = nearest(name, names)
    return f"; did you mean {near}?" if near else ""


def nearest(name: str, names: Iterable[str]) -> str | None:
    """Return the known name that is most similar to a name; None if none is near.

    Capitals and the hyphens before options do not count.

    >>> nearest("MNIST", ["digits", "mnist"])
    'mnist'
    """
    plain = {each.lower().lstrip("-"): each for each in names}
    near = get_close_matches(name.lower().lstrip("-"), plain, n=1)
    return plain[near[0]] if near else None


def whole_number(value: object) -> str:
    """Describe the expected integer, with its spelling if the value equals one.

    >>> whole_number(1e3), whole_number("5"), whole_number(0.5)
    ('a whole number, written 1000', 'a whole number, written 5', 'a whole number')
    """
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        return f"a whole number, written {int(value)}"
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 16:
        return f"a whole number, written {int(value)}"
    return "a whole number"


def say_allowed(errors: Sequence[Any]) -> str:
    """Return what is allowed in a field according to the errors that pydantic lists about it, at least one."""
    allowed = " or ".join(dict.fromkeys(error["msg"].removeprefix("Input should be ") for error in errors))
    return allowed.replace("a valid integer", whole_number(errors[0]["input"])).replace("a valid ", "a ")


def shorten(value: object, limit: int = 60) -> str:
    """Return a value as text of one line and at most `limit` characters; of a long one, its beginning and its end.

    >>> shorten(list(range(100)), limit=20)
    '[0, 1, 2... 98, 99]'
    """
    try:
        text = " ".join(repr(value).split())
    except ValueError:  # Python writes no whole numbers of more than 4300 digits
        text = f"{type(value).__name__} with thousands of digits"
    except RecursionError:
        text = f"{type(value).__name__} with hundreds of levels"
    half = (limit - 3) // 2
    return text if len(text) <= limit else f"{text[:half]}...{text[-half:]}"
