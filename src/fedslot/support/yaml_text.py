"""YAML 1.2 in and out: numbers such as 1e9 are numbers, and a key may stand once in a mapping."""

from __future__ import annotations

import io
import re
import sys
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.events import AliasEvent, CollectionEndEvent, CollectionStartEvent
from ruamel.yaml.nodes import ScalarNode
from ruamel.yaml.representer import SafeRepresenter

__all__ = ["YAMLError", "parse_yaml", "write_yaml"]

MOST_ALIASES = 20  # which can make a text at most 3^(20/3), about 1500 times longer
MOST_LEVELS = 100  # of lists and mappings inside one another


def parse_yaml(text: str) -> Any:
    """Return the plain values that a YAML text describes; every defect is a YAMLError of one line."""
    try:
        _check_size(text)
        return YAML(typ="safe", pure=True).load(text)
    except MarkedYAMLError as error:
        line = "" if error.problem_mark is None else f", line {error.problem_mark.line + 1}"
        raise YAMLError(f"{error.problem or error.context}{line}") from None
    except YAMLError as error:
        raise YAMLError(" ".join(str(error).split())) from None
    except ValueError as error:  # a date with a 13th month, a number of 5000 digits
        raise YAMLError(str(error).partition(";")[0]) from None


def write_yaml(value: object, *, one_line: bool = False) -> str:
    """Return the YAML text of plain values, from which `parse_yaml` reads the same values."""
    yaml = YAML(typ="safe", pure=True)
    yaml.Representer = _Representer
    yaml.default_flow_style = one_line
    yaml.sort_base_mapping_type_on_output = False  # type: ignore[assignment]
    if one_line:
        yaml.width = sys.maxsize
    text = io.StringIO()
    yaml.dump(value, text)
    return text.getvalue()


def _check_size(text: str) -> None:
    """Refuse texts that grow without limit when aliases are resolved, and those nested too deeply to be read."""
    aliases, around = 0, list[str | None]()  # the anchors of the lists and mappings around an event
    for event in YAML(typ="safe", pure=True).parse(text):
        if isinstance(event, CollectionStartEvent):
            around.append(event.anchor)
        elif isinstance(event, CollectionEndEvent):
            around.pop()
        elif isinstance(event, AliasEvent):
            aliases += 1
            if event.anchor in around:
                raise YAMLError(f"*{event.anchor} stands within &{event.anchor}, which would contain itself")
        if aliases > MOST_ALIASES:
            raise YAMLError(f"more than {MOST_ALIASES} aliases")
        if len(around) > MOST_LEVELS:
            raise YAMLError(f"more than {MOST_LEVELS} levels of lists and mappings")


class _Representer(SafeRepresenter):
    """Writes some text in double quotes.

    All other styles fold line breaks into spaces, and in a list or mapping a word that begins with `?` or `:` is not
    read as a word.
    """

    def represent_str(self, data: str) -> ScalarNode:
        style = '"' if re.search(r"^[?:]|[\n\r\x85\u2028\u2029]", data) else None
        return self.represent_scalar("tag:yaml.org,2002:str", data, style)


_Representer.add_representer(str, _Representer.represent_str)
