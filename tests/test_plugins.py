import json

import pytest

from fedslot.errors import InputError
from fedslot.plugins import find

KNOWN = {"mine": len}


def test_known_names_come_first():
    assert find("x", "mine", KNOWN) is len


def test_anything_that_can_be_imported_and_called():
    assert find("x", "json:dumps", KNOWN) is json.dumps


@pytest.mark.parametrize(
    "name",
    [
        "",
        "mime",
        ":",
        ":x",
        "json:",
        "json:nothing",
        "no.such.module:x",
        ".:x",
        ".json:x",
        "..a:b",
        "json.:x",
        "math:pi",
    ],
)
def test_all_else_is_refused_with_one_line_that_lists_what_there_is(name):
    with pytest.raises(InputError) as caught:
        find("some.field", name, KNOWN)
    assert str(caught.value).startswith(
        f"some.field: {name!r} is not allowed; it must be one of mine, or package.module:Name"
    )
    assert "\n" not in str(caught.value)


def test_reasons_of_several_lines_become_one(tmp_path, monkeypatch):
    (tmp_path / "grumpy_module.py").write_text("raise ImportError('first line\\nsecond line')")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(InputError, match="first line second line") as caught:
        find("x", "grumpy_module:x", KNOWN)
    assert "\n" not in str(caught.value)
