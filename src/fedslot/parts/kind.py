"""A kind of part: parts by name, their options, and how they are built.

A part is a class or function. The caller passes the first arguments; all other parameters are the part's options, with
their annotations as types and limits (`exploration: Annotated[float, Field(ge=0)] = 1.0`). A part is built in, comes
from an installed package by an entry point, or is the user's own: `package.module:Name`.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from importlib import metadata
from typing import Any, Generic, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, PydanticUserError, TypeAdapter, ValidationError, create_model

from fedslot.parts.registry import own_part, source_digest
from fedslot.support.errors import InputError, RefusedError, did_you_mean, one_of, reason, refusing_exit, say_allowed

T = TypeVar("T")

POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
NAMED = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


@dataclass(frozen=True)
class Kind(Generic[T]):
    """A kind of part, such as strategies.

    section: the section of the scenario that names a part and has its options, e.g. `strategy`.
    noun: what a part is called in messages. group: the entry-point group by which installed packages add parts.
    builtin: the import path `package.module:Name` of each built-in part, by name.
    arguments: names of the arguments that the caller passes, for messages; those of built-in parts may be more.
    needs: attributes that a part must have once it is built. entailed: attributes that it must have beside another one.
    base: import path of the class of which it must be an instance.
    """

    section: str
    noun: str
    group: str
    builtin: Mapping[str, str]
    arguments: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()
    entailed: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    base: str | None = None

    def __iter__(self) -> Iterator[str]:
        return iter(self.builtin)

    def __len__(self) -> int:
        return len(self.builtin)

    def __contains__(self, name: object) -> bool:
        return name in self.builtin

    @property
    def field(self) -> str:
        """The field of the scenario that names the part; a section inside another one may be just the name."""
        return self.section if "." in self.section else f"{self.section}.name"

    def names(self) -> list[str]:
        """Return the names of all parts: the built-in ones, then those of installed packages."""
        return list(dict.fromkeys([*self.builtin, *(point.name for point in self.entry_points())]))

    def entry_points(self) -> list[metadata.EntryPoint]:
        """Return the entry points by which installed packages add parts of this kind."""
        return sorted(metadata.entry_points(group=self.group), key=lambda point: point.name)

    def find(self, name: str, field: str | None = None) -> Callable[..., T]:
        """Return the class or function with a name; `field` is the scenario's key in error messages.

        >>> Kind("net", "a network", "none", {"cnn": "builtins:print"}).find("mlp")
        Traceback (most recent call last):
        fedslot.support.errors.InputError: net.name: 'mlp' is not allowed; it must be one of cnn, or package.module:Name
        """
        if name in self.builtin:  # without a look for entry points, which reads files
            builtin: Callable[..., T] = own_part(self.builtin[name])
            return builtin
        field = field or self.field
        path, allowed = name, f"one of {', '.join(self.names())}, or package.module:Name"
        if ":" not in name:
            point = self._entry_point(name)
            if point is None:
                raise InputError(field, name, one_of(name, self.names(), ", or package.module:Name"))
            path, allowed = point.value, f"a part that {origin(point)} can load"
        try:
            with refusing_exit():
                part: Callable[..., T] = own_part(path)
        except (ImportError, AttributeError, ValueError, TypeError) as error:
            raise InputError(field, name, f"{allowed} that can be imported ({error})") from None
        if not callable(part):
            raise InputError(field, name, f"{allowed} that can be called, not a {type(part).__name__}")
        return part

    def fingerprint(self, name: str) -> str | None:
        """Return a text that changes with the source of a part; None if it is built in, empty if there is no source."""
        if name in self.builtin:
            return None
        self.find(name)
        if ":" in name:
            return source_digest(name) or ""
        point = self._entry_point(name)
        assert point is not None
        return f"{origin(point)} {source_digest(point.value)}"

    def options(self, name: str) -> dict[str, inspect.Parameter]:
        """Return the options of a part by name, with Any as the annotation where that is missing or unusable."""
        return {option.name: option for option in self._parameters(name) if option.kind in NAMED}

    def takes(self, name: str, option: str) -> bool:
        """Return whether a part has an option."""
        return option in self.options(name) or self._takes_all(name)

    def bind(self, name: str, options: Mapping[str, Any]) -> Callable[..., T]:
        """Return the class or function with its options set; refuse options that it does not take."""
        part, checked = self.find(name), self._check(name, options)
        return partial(part, **checked) if checked else part

    def make(self, name: str, options: Mapping[str, Any], *arguments: Any) -> T:
        """Build a part with its options from the arguments of the caller, and check that it has what it needs."""
        bound = self.bind(name, options)
        try:
            part = bound(*arguments)
        except InputError as error:  # about an option, or about another field of the scenario
            field = error.field if "." in error.field else f"{self.section}.options.{error.field}"
            raise InputError(field, error.value, error.allowed) from error
        except ValidationError as error:
            raise self._refusal(name, error) from None
        except (MemoryError, RefusedError):  # the latter: a package of an extra is missing
            raise
        except Exception as error:  # the user's own code may raise anything
            given = f"({', '.join(self.arguments)}) and " if self.arguments else ""
            allowed = f"{self.noun} that can be built from {given}options {dict(options)} ({reason(error)})"
            raise InputError(self.field, name, allowed) from error
        needed = [*self.needs]
        for attribute, others in self.entailed.items():
            needed += others if hasattr(part, attribute) else ()
        missing = [attribute for attribute in needed if not hasattr(part, attribute)]
        if missing:
            allowed = f"{self.noun} with {', '.join(needed)}; it has no {missing[0]}"
            raise InputError(self.field, name, allowed)
        if self.base is not None and not isinstance(part, own_part(self.base)):
            allowed = f"{self.noun}, a {self.base.replace(':', '.')}, not a {type(part).__name__}"
            raise InputError(self.field, name, allowed)
        return part

    def _entry_point(self, name: str) -> metadata.EntryPoint | None:
        """Return the first entry point with a name."""
        return next((point for point in self.entry_points() if point.name == name), None)

    def _parameters(self, name: str) -> list[inspect.Parameter]:
        """Return the parameters of a part that the caller does not pass itself."""
        parameters = _signature(self.find(name))
        passed = [each.name for each in parameters if each.kind in POSITIONAL][: len(self.arguments)]
        return [each for each in parameters if each.name not in passed]

    def _takes_all(self, name: str) -> bool:
        return any(each.kind is each.VAR_KEYWORD for each in self._parameters(name))

    def _check(self, name: str, options: Mapping[str, Any]) -> dict[str, Any]:
        """Return options as a part takes them, with the types of its parameters."""
        if not options and name in self.builtin:
            return {}
        own = self.options(name)
        model = _model(own, "allow" if self._takes_all(name) else "forbid")
        try:
            checked = model.model_validate(dict(options))
        except ValidationError as error:
            try:  # YAML has no tuples, sets or paths; JSON mode takes what it has in their place
                checked = model.model_validate_json(json.dumps(dict(options)))
            except (ValidationError, TypeError, ValueError):
                raise self._refusal(name, error) from None
        given = {option: getattr(checked, f"option_{option}") for option in own if option in options}
        return {**given, **(checked.model_extra or {})}

    def _refusal(self, name: str, error: ValidationError) -> InputError:
        """Convert the first error of pydantic about options into an `InputError` of one line."""
        first = error.errors()[0]
        option = str(first["loc"][0]) if first["loc"] else ""
        field = ".".join([f"{self.section}.options", *([option] if option else [])])
        own = list(self.options(name))
        if first["type"] in {"extra_forbidden", "unexpected_keyword_argument"}:
            taken = f"takes {', '.join(own)}" if own else "takes no options"
            return InputError(field, first["input"], f"left out, since {name} {taken}{did_you_mean(option, own)}")
        if first["type"] == "missing":
            return InputError(field, None, f"given, since {name} has no default for it")
        if first["type"] == "invalid_key":
            return InputError(f"{self.section}.options", first["input"], "a word, as every option is")
        same = [each for each in error.errors() if str(each["loc"][0]) == option]
        return InputError(field, first["input"], say_allowed(same))


def origin(point: metadata.EntryPoint) -> str:
    """Return the name and version of the distribution that an entry point belongs to."""
    return "an unknown package" if point.dist is None else f"{point.dist.name} {point.dist.version}"


def _signature(part: Callable[..., Any]) -> list[inspect.Parameter]:
    """Return the parameters of a part, with Any as the annotation of those that pydantic cannot check."""
    try:
        signature = inspect.signature(part)
    except (ValueError, TypeError):  # of classes written in C, Python does not know them
        return [inspect.Parameter("options", inspect.Parameter.VAR_KEYWORD)]
    with suppress(Exception):  # names that exist only for type checkers, for example
        signature = inspect.signature(part, eval_str=True)
    parameters = signature.parameters.values()
    return [each if _is_checkable(each.annotation) else each.replace(annotation=Any) for each in parameters]


def _is_checkable(annotation: Any) -> bool:
    try:
        TypeAdapter(annotation)
    except (PydanticUserError, TypeError, RuntimeError):
        return False
    return not isinstance(annotation, str)


def _model(options: Mapping[str, inspect.Parameter], extra: Literal["allow", "forbid"]) -> type[BaseModel]:
    """Return a pydantic model of options; extra: whether others are allowed too."""
    fields: dict[str, Any] = {
        f"option_{name}": (option.annotation, Field(... if option.default is option.empty else None, alias=name))
        for name, option in options.items()
    }
    config = ConfigDict(extra=extra, strict=True, allow_inf_nan=False, protected_namespaces=())
    return create_model("Options", __config__=config, **fields)
