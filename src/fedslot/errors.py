"""The one kind of error that is the user's to mend."""

from __future__ import annotations


class InputError(ValueError):
    """Bad input, said in one line that names the field, the value and what is allowed.

    The command line prints the line and exits with code 2; in Python it is an ordinary `ValueError`.

    >>> raise InputError("frame.pull", 30, "at most frame.slots (20)")
    Traceback (most recent call last):
    fedslot.errors.InputError: frame.pull: 30 is not allowed; it must be at most frame.slots (20)
    """

    def __init__(self, field: str, value: object, allowed: str) -> None:
        self.field, self.value, self.allowed = field, value, allowed
        # field and reasons may come from the user or from other libraries, with line breaks
        super().__init__(" ".join(f"{field}: {_short(value)} is not allowed; it must be {allowed}".split()))

    def __reduce__(self) -> tuple[type[InputError], tuple[str, object, str]]:
        return InputError, (self.field, self.value, self.allowed)  # comes whole from another process


class RefusedError(RuntimeError):
    """Something other than a value stands in the way, say a folder in use; one line says what to do."""


def reason(error: BaseException) -> str:
    """What went wrong, in one line.

    >>> reason(KeyError("x"))
    "KeyError: 'x'"
    """
    text = " ".join(str(error).split())
    return text if isinstance(error, InputError | RefusedError) else f"{type(error).__name__}: {text}"


def _short(value: object, limit: int = 60) -> str:
    text = " ".join(repr(value).split())
    return text if len(text) <= limit else text[: limit - 3] + "..."
