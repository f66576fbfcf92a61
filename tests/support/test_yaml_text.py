"""YAML: values survive writing and reading, and texts that mean nothing definite are refused in one line."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedslot.support.yaml_text import YAMLError, parse_yaml, write_yaml

ODD = ["1e5", "yes", "null", "~", "0x1", "1:30", "<<", "=", "a\x85b", "a\u2028b", "a\r\nb", " a ", "- a", "a: b", "#"]
texts = st.text(st.characters(codec="utf-8", exclude_categories=["Cs"])) | st.sampled_from([*ODD, "?0", "?%"])
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)


@given(values, st.booleans())
def test_plain_values_survive(value, one_line):
    text = write_yaml([value], one_line=one_line)
    assert parse_yaml(text) == [value]
    assert not one_line or text.count("\n") == 1


@pytest.mark.parametrize(
    ("text", "value"),
    [("1e9", 1e9), ("-2E3", -2000.0), ("1.e5", 1e5), ("'1e9'", "1e9"), ("1e5x", "1e5x"), ("010", 10), ("", None)],
)
def test_numbers_are_read_as_users_write_them(text, value):
    read = parse_yaml(text)
    assert read == value
    assert type(read) is type(value)


LEVELS = [f"l{i}: &l{i} [{', '.join([f'*l{i - 1}'] * 9)}]" for i in range(1, 9)]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("frame: {pull: 3}\nframe: {pull: 4}", 'duplicate key "frame".*, line 2'),
        ("a: {b: 1, b: 1}", 'duplicate key "b"'),
        ("\n".join(["l0: &l0 [1]", *LEVELS]), "more than 20 aliases"),
        ("[" * 200 + "]" * 200, "more than 100 levels"),
        ("seed: " + "9" * 10_000, "4300 digits"),
        ("seed: 2020-99-99", "month"),
        ("a: [", "expected"),
        ("a: &a {x: *a}", "contain itself"),
        ("a: &a [1, {b: &b [*a]}]", "contain itself"),
        ("a: !!python/name:os.system", "constructor"),
        ("a: \x00", "special characters"),
    ],
    ids=[
        "duplicate section",
        "duplicate key",
        "alias bomb",
        "deep",
        "digits",
        "month",
        "open",
        "cycle",
        "inner cycle",
        "python",
        "control",
    ],
)
def test_defects_are_refused_in_one_line(text, told):
    with pytest.raises(YAMLError, match=told) as caught:
        parse_yaml(text)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 200


def test_an_alias_repeats_a_value():
    assert parse_yaml("a: &x {b: 1}\nc: *x") == {"a": {"b": 1}, "c": {"b": 1}}
