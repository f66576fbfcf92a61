import functools
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedslot.scenario import MOST_EXACT_PLAYERS, Scenario, keys, parse_overrides, preset_text, presets, ranges
from fedslot.support.errors import InputError
from fedslot.support.yaml_text import parse_yaml, write_yaml


def _refusal(fields: dict[str, Any]) -> InputError:
    with pytest.raises(InputError) as caught:
        Scenario(**fields)
    return caught.value


def _nested(key: str, value: object) -> dict[str, Any]:
    for part in reversed(key.split(".")):
        value = {part: value}
    return value  # type: ignore[return-value]


def _value(scenario: Scenario, key: str) -> object:
    value: object = scenario
    for part in key.split("."):
        value = getattr(value, part)
    return value


WRONG = [
    # field, value, words that say what is allowed
    ("seed", -1, "greater than or equal to 0"),
    ("seed", 1.0, "whole number"),
    ("seed", True, "whole number"),
    ("seed", "one", "whole number"),
    ("rounds", 0, "greater than or equal to 1"),
    ("rounds", 5.0, "a whole number, written 5"),
    ("rounds", "5", "a whole number, written 5"),
    ("time_budget", "long", "whole number"),
    ("time_budget", 20, "at least one frame, 1 + frame.slots (21)"),
    ("data", 3, "a section with keys such as data.dataset"),
    ("data", None, "a section with keys such as data.dataset"),
    ("data.dataset", 3, "string"),
    ("data.ues", 0, "greater than or equal to 1"),
    ("data.ues", "50", "whole number"),
    ("data.ues", 10**20, "less than or equal to 1000000000"),
    ("data.samples_per_ue", 10**20, "less than or equal to 1000000000"),
    ("data.alpha", 0, "greater than 0"),
    ("data.alpha", float("nan"), "finite"),
    ("data.alpha", float("inf"), "finite"),
    ("data.alpha", True, "number"),
    ("data.sizes", "big", "'power-law' or 'equal'"),
    ("data.validation", 1, "less than 1"),
    ("fleet.stragglers", 1.01, "less than or equal to 1"),
    ("fleet.noise", -0.1, "greater than or equal to 0"),
    ("fleet.noise", 1e39, "less than or equal to 1000000"),
    ("fleet.noise_order", "up", "'shuffled' or 'index'"),
    ("fleet.computing", 5, "a section with keys such as fleet.computing.mean_slots"),
    ("fleet.computing.shape", 0, "greater than 0"),
    ("fleet.computing.accuracy", 1, "less than 1"),
    ("fleet.computing.redraw", "yes", "boolean"),
    ("frame.slots", 0, "greater than or equal to 1"),
    ("frame.slots", 10**20, "less than or equal to 1000000"),
    ("frame.pull", 10**20, "at most frame.slots (20)"),
    ("frame.pull", -1, "greater than or equal to 0"),
    ("frame.pull", 21, "at most frame.slots (20)"),
    ("frame.pull", None, "whole number"),
    ("push.contenders", -1, "greater than or equal to 0 or 'ready'"),
    ("push.contenders", 10**20, "less than or equal to 1000000000 or 'ready'"),
    ("push.contenders", "all", "whole number or 'ready'"),
    ("push.contenders", 41, "at most data.ues - frame.pull (50 - 10 = 40)"),
    ("push.contenders", "ready", "a number, unless fleet.computing gives times"),
    ("push.probability", 0, "greater than 0 or 'auto'"),
    ("push.probability", 1.5, "less than or equal to 1 or 'auto'"),
    ("push.probability", "never", "number or 'auto'"),
    ("push.channel", 1, "a name or a section"),
    ("push.channel.options", [1], "dictionary"),
    ("training.epochs", 0, "greater than or equal to 1"),
    ("training.epochs_by_strategy", [3], "dictionary"),
    ("training.batches", 2.5, "whole number"),
    ("training.batches", None, "a number, unless training.batch_size is given"),
    ("training.batch_size", 0, "greater than or equal to 1"),
    ("training.lr", 0, "greater than 0"),
    ("training.lr", 1e39, "less than or equal to 1000000"),
    ("training.momentum", 1, "less than 1"),
    ("strategy.name", None, "string"),
    ("strategy.warmup", -1, "greater than or equal to 0"),
    ("strategy.memory", 1, "less than 1 or 'mean'"),
    ("strategy.memory", "median", "number or 'mean'"),
    ("strategy.share", 0, "greater than 0"),
    ("valuation.name", 3, "string"),
    ("valuation.name", "exact", "kriging, cyclic or gtg where more than 16 UEs"),
    ("valuation.samples", 0, "greater than or equal to 1"),
]


@pytest.mark.parametrize(("field", "value", "allowed"), WRONG, ids=[f"{field}={value}" for field, value, _ in WRONG])
def test_one_line_names_the_field_the_value_and_what_is_allowed(field, value, allowed):
    error = _refusal(_nested(field, value))
    assert error.field == field
    assert str(error).startswith(f"{field}: {value!r} is not allowed; it must be ")
    assert allowed in str(error)
    assert "\n" not in str(error)


HUGE = [2**128, -(2**64), 10**4000, 10**5000, -(10**5000)]  # Python writes no number of 5000 digits
COMPLETE = Scenario(fleet={"computing": {}, "attack": {}, "availability": {}}, compression={}, broadcast_compression={})
OPTIONAL = {
    "fleet.computing",
    "fleet.attack",
    "fleet.availability",
    "compression",
    "broadcast_compression",
}  # its sections that may be null
FLOATS = [key for key in keys() if isinstance(_value(COMPLETE, key), float)]


@pytest.mark.parametrize("key", keys())
def test_whole_numbers_of_any_size_are_refused_in_one_line(key):
    values = [number for huge in HUGE for number in (huge, {"a": huge}, [huge])]
    for value in values:
        if key in FLOATS and value == 2**128:
            continue
        with pytest.raises(InputError) as caught:
            Scenario().replace({key: value})
        assert "\n" not in str(caught.value)
        assert len(str(caught.value)) < 300


def test_errors_inside_mappings_and_across_sections_name_the_field():
    inside = _refusal({"training": {"epochs_by_strategy": {"fedavg": 0}}})
    assert (inside.field, inside.value) == ("training.epochs_by_strategy", 0)
    error = _refusal({"data": {"ues": 5}, "push": {"contenders": 0}})
    assert (error.field, error.value) == ("frame.pull", 10)
    assert "data.ues (5)" in str(error)


def test_bounds_that_depend_on_other_fields_are_tight():
    assert Scenario(frame={"slots": 20, "pull": 20}, push={"contenders": 30}).push.contenders == 30
    assert Scenario(time_budget=21).time_budget == 21
    assert Scenario(data={"ues": 10}, frame={"pull": 10}, push={"contenders": 0}).data.ues == 10
    slots = {"slots": MOST_EXACT_PLAYERS, "pull": 5}
    assert Scenario(frame=slots, valuation={"name": "exact"}).valuation.name == "exact"
    assert Scenario(push={"contenders": "ready"}, fleet={"computing": {}}).fleet.computing is not None


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"frame": {"slotz": 3}}, "frame.slotz: 3 is not allowed; it must be left out: there is no such key; did you"),
        ({"fram": {"pull": 3}}, "did you mean frame.pull?"),
        ({"strateg": {"memory": 0.5}}, "did you mean strategy.memory?"),
        ({"stategy": {"name": "ucb", "memory": 0.5}}, "did you mean strategy?"),
        ({"fleet": {"slots": 3}}, "did you mean frame.slots?"),
        ({"epoch": 3}, "did you mean training.epochs?"),
        ({"lr": 3}, "did you mean training.lr?"),
        ({"valuation": {"names": "exact"}}, "did you mean valuation.name?"),
        ({"valuation": {"utility": "accurracy"}}, "did you mean accuracy?"),
        ({"data": {"name": "mnist"}}, "did you mean data.dataset?"),
        ({"channel": {"name": "irsa"}}, "did you mean push.channel?"),
        ({"data": {"users": 3}}, "did you mean data.ues?"),
        ({"qqqqqq": 3}, "`fedslot schema --keys` lists them"),
        ({"fleet": {"computing": {"shapes": 3}}}, "did you mean fleet.computing.shape?"),
    ],
)
def test_unknown_keys_come_with_a_hint(fields, message):
    error = _refusal(fields)
    assert message in str(error)
    assert "\n" not in str(error)


@pytest.mark.parametrize(
    "word",
    [
        "seed=2020-99-99",  # a month that is none
        "seed=" + "9" * 5000,
        "seed=0x" + "f" * 10_000,
        "data.alpha=1" + "0" * 400,
        "strategy.options={a: 0x" + "f" * 10_000 + "}",
        "seed=" + "[" * 5000,
        "seed=&a [*a]",
        "seed=[",
        "seed=\x00",
        "seed",
        "=3",
        "a\nb=1",
        "seed=2020-01-01",
        "frame={1: 2}",
        "seed.x=1",
        "frame.slots.x=1",
        "strategy.options={when: 2020-01-01}",
        "strategy.options={some: !!set {1}}",
        "strategy.options={x: .nan}",
        "strategy.options={x: {1: 2, a: 3}}",
        "push.channel.options={x: !!binary aGk=}",
        "strategy.options={x: " + "[" * 40 + "]" * 40 + "}",
    ],
)
def test_odd_overrides_are_refused_with_one_line(word):
    with pytest.raises(InputError) as caught:
        Scenario.load("quickstart", parse_overrides([word]))
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize("name", ["nope", "quickstat", "x" * 5000 + ".yaml", "x\0.yaml", "", ".", "/"])
def test_unknown_scenarios_are_refused_with_one_line(name):
    with pytest.raises(InputError, match="a preset") as caught:
        Scenario.load(name)
    assert "\n" not in str(caught.value)
    assert ("did you mean quickstart?" in str(caught.value)) == (name == "quickstat")


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"frame: [", "valid YAML"),
        (b"- 1\n- 2", "a YAML mapping"),
        *[(text, "a YAML mapping of sections") for text in (b"3", b"", b"# nothing\n", b"{}", b"---\n", b"null")],
        (b"\xff\xfe\xfa", "UTF-8"),
        (b"frame:\n  pull: 2020-99-99", "valid YAML"),
    ],
)
def test_broken_files_are_refused_with_one_line(tmp_path: Path, content, complaint):
    file = tmp_path / "mine.yaml"
    file.write_bytes(content)
    with pytest.raises(InputError, match=complaint) as caught:
        Scenario.load(file)
    assert caught.value.field == "scenario"
    assert "\n" not in str(caught.value)


def test_a_file_is_named_relative_to_the_yaml_that_names_it(tmp_path: Path, monkeypatch):
    """In the YAML file itself; the run folder's copy finds the same file from anywhere."""
    (tmp_path / "there").mkdir()
    monkeypatch.chdir(tmp_path)
    file, copy = tmp_path / "there" / "mine.yaml", tmp_path / "copy.yaml"
    file.write_text("data: {dataset: sub/own.npz}\n")
    own = str(tmp_path / "there" / "sub" / "own.npz")
    assert Scenario.load("there/mine.yaml").data.dataset == Scenario.load(file).data.dataset == own
    copy.write_text(Scenario.load(file).to_yaml())
    assert Scenario.load(copy) == Scenario.load(file)
    here = str(tmp_path / "own.npz")
    assert Scenario.load(file, {"data.dataset": "own.npz"}).data.dataset == here
    assert Scenario(data={"dataset": "own.npz"}).data.dataset == here
    assert Scenario.load(file, {"data.dataset": "mnist"}).data.dataset == "mnist"


def test_a_file_of_rates_is_named_as_one_of_data_is(tmp_path: Path, monkeypatch):
    (tmp_path / "there").mkdir()
    monkeypatch.chdir(tmp_path)
    file, there = tmp_path / "there" / "mine.yaml", str(tmp_path / "there" / "own.csv")
    dotted = "radio.rates.name: csv\nradio.rates.options.path: own.csv\n"
    for text in ("radio: {rates: {name: csv, options: {path: own.csv}}}", dotted):
        file.write_text(text)
        assert Scenario.load("there/mine.yaml").radio.rates.options == {"path": there}
    here = Scenario.load(file, {"radio.rates.options.path": "own.csv"})
    assert here.radio.rates.options == {"path": str(tmp_path / "own.csv")}
    assert Scenario.load("quickstart", {"radio.rates": "csv"}).radio.rates.options == {}


def test_every_field_has_its_default_and_range():
    found = ranges()
    assert set(found) == set(keys())
    assert found["frame.pull"] == "default 10; whole number, at least 0"
    assert found["data.alpha"] == "default 1.0; number, above 0"
    assert found["push.probability"] == "default 1.0; number, above 0 and at most 1, or auto"
    assert found["data.sizes"] == "default power-law; power-law or equal"
    assert found["fleet.computing"] == "default null; section, or null"
    assert found["fleet.computing.redraw"] == "default false; true or false"


def test_numbers_as_users_write_them(tmp_path: Path):
    file = tmp_path / "mine.yaml"
    file.write_text("training: {lr: 1e-3}\nfleet: {computing: {frequency: 2E9}}\ndata: {alpha: 1}\n")
    scenario = Scenario.load(file)
    assert (scenario.training.lr, scenario.fleet.computing.frequency, scenario.data.alpha) == (0.001, 2e9, 1.0)
    words = parse_overrides(["a=1e5", "b=-2e3", "c='1e5'", "d=1e5x", "e=mean", "f=", "g=a=b"])
    assert words == {"a": 1e5, "b": -2e3, "c": "1e5", "d": "1e5x", "e": "mean", "f": None, "g": "a=b"}


def test_minibatches_have_a_size_or_an_epoch_has_a_number_of_them():
    sized = Scenario(training={"batch_size": 64})
    assert (sized.training.batches, sized.training.batch_size) == (None, 64)
    assert Scenario.load(parse_yaml(sized.to_yaml())) == sized
    assert Scenario().training.batches == 5
    error = _refusal({"training": {"batches": 5, "batch_size": 64}})
    assert str(error) == "training.batches: 5 is not allowed; it must be null with training.batch_size"


def test_presets_are_complete():
    assert set(presets()) >= {"quickstart", "paper", "paper-as-published"}
    for name, summary in presets().items():
        assert len(summary) > 20, name
        assert preset_text(name).startswith(f"# {summary}")


def test_the_papers_preset_is_the_papers_cell():
    """K, M, Q, N, E, B, sigma, alpha and r_th as decoded from the paper."""
    paper = Scenario.load("paper")
    assert (paper.data.dataset, paper.data.ues, paper.data.alpha, paper.data.sizes) == ("mnist", 200, 1.0, "power-law")
    assert (paper.frame.slots, paper.frame.pull, paper.push.contenders) == (20, 10, 10)
    training = paper.training
    assert (training.model.name, training.epochs, training.batches) == ("mlp", 5, 5)
    assert (training.lr, training.momentum) == (0.01, 0.5)
    assert (paper.fleet.stragglers, paper.fleet.noise, paper.strategy.warmup) == (0.5, 0.1, 20)
    published = Scenario.load("paper-as-published")
    names = ("fedavg", "push-pull", "greedy-shap")
    epochs = [[scenario.replace({"strategy.name": name}).epochs for name in names] for scenario in (paper, published)]
    assert epochs == [[5, 5, 5], [5, 30, 30]]
    assert published.replace({"training.epochs_by_strategy": {}}) == paper


@pytest.mark.parametrize("name", list(presets()))
def test_presets_survive_yaml(tmp_path: Path, name):
    scenario = Scenario.load(name)
    file = tmp_path / "again.yaml"
    file.write_text(scenario.to_yaml(), "utf-8")
    again = Scenario.load(file)
    assert again == scenario
    assert again.digest == scenario.digest
    assert set(parse_yaml(scenario.to_yaml())) == set(Scenario.model_fields)


@settings(max_examples=150)
@given(st.data())
def test_drawn_scenarios_survive_yaml_or_are_refused_with_one_line(tmp_path_factory, scenario_fields, data):
    try:
        scenario = Scenario(**data.draw(scenario_fields))
    except InputError as error:
        assert re.fullmatch(r"[^\n]+: [^\n]+ is not allowed; it must be [^\n]+", str(error))  # noqa: PT017
        return
    file = tmp_path_factory.getbasetemp() / "drawn.yaml"
    file.write_text(scenario.to_yaml(), "utf-8")
    again = Scenario.load(file)
    assert again == scenario
    assert again.digest == scenario.digest
    assert Scenario(**again.model_dump()).digest == scenario.digest


def test_the_digest_tells_scenarios_apart_and_nothing_else(tmp_path: Path):
    file = tmp_path / "mine.yaml"
    file.write_text("push: {contenders: 5}\ntraining: {lr: 1}\nseed: 3\n")
    read = Scenario.load(file)
    made = Scenario(seed=3, training={"lr": 1.0}, push={"contenders": 5})
    assert read.digest == made.digest == made.replace({}).digest
    changed = {
        "seed": 4,
        "rounds": 61,
        "time_budget": 100,
        "data.alpha": 2.0,
        "fleet.computing": {},
        "frame.pull": 9,
        "push.channel.options": {"x": 1},
        "training.epochs_by_strategy": {"fedavg": 9},
        "strategy.warmup": 0,
        "valuation.options": {"within": 0.0},
    }
    digests = {made.replace({key: value}).digest for key, value in changed.items()}
    assert len(digests | {made.digest}) == len(changed) + 1
    options = ({"a": 1, "b": 2}, {"b": 2, "a": 1})
    one, other = (made.replace({"push.channel.options": each}) for each in options)
    assert one.digest == other.digest


@pytest.mark.parametrize(
    ("key", "value"),
    [("seed", 7), ("frame.pull", 3), ("fleet.computing.slot", 0.5), ("push.channel.options", {"threshold_db": 3.0})],
)
def test_an_override_changes_its_field_and_no_other(key, value):
    base = Scenario.load("quickstart")
    for changed in (Scenario.load("quickstart", {key: value}), base.replace({key: value})):
        assert _value(changed, key) == value
        others = {key.split(".")[0]}
        assert changed.model_dump(exclude=others) == base.model_dump(exclude=others)
    assert base == Scenario.load("quickstart")


def test_overrides_add_to_a_section_and_leave_the_source_as_it_is():
    base = Scenario(push={"channel": {"options": {"a": 1}}})
    changed = base.replace({"push.channel.options.b": 2})
    assert changed.push.channel.options == {"a": 1, "b": 2}
    assert base.push.channel.options == {"a": 1}


@pytest.mark.parametrize(
    ("overrides", "same"),
    [
        ({"frame": {"pull": 3}}, {"frame.pull": 3}),
        ({"frame": {"pull": 3}, "frame.slots": 12}, {"frame.pull": 3, "frame.slots": 12}),
        ({"frame.slots": 12, "frame": {"slots": 13}}, {"frame.slots": 13}),
        ({"frame": {}}, {}),
        ({"fleet": {"computing": {"shape": 2}}}, {"fleet.computing.shape": 2}),
        ({"fleet": {"noise": 0.2, "computing": None}}, {"fleet.noise": 0.2, "fleet.computing": None}),
        ({"fleet.computing.shape": 2, "fleet.computing": None}, {"fleet.computing": None}),
        ({"fleet.computing": {}}, {}),
        ({"strategy": {"options": {"b": 2}}}, {"strategy.options": {"b": 2}}),
        ({"strategy": {"options.b": 2}}, {"strategy.options": {"a": 1, "b": 2}}),
    ],
)
def test_an_override_of_a_section_changes_the_fields_that_it_names(tmp_path, overrides, same):
    source = {
        "data": {"ues": 80},
        "fleet": {"computing": {"scale": 2.0}},
        "frame": {"slots": 15, "pull": 4},
        "strategy": {"memory": 0.3, "options": {"a": 1}},
    }
    file = tmp_path / "mine.yaml"
    file.write_text(write_yaml(source))
    expected = Scenario(**source).replace(same)
    assert expected.frame.slots in {12, 13, 15}
    for base in (source, file):
        assert Scenario.load(base, overrides) == expected
    assert Scenario(**source).replace(overrides) == expected


def test_a_section_given_as_an_object_names_all_its_fields():
    base = Scenario(frame={"slots": 15, "pull": 4})
    assert base.replace({"frame": Scenario().frame}).frame == Scenario().frame


def test_words_that_override_one_section_add_up():
    words = ["frame={slots: 12}", "frame={pull: 3}", "frame.pull=4", "strategy.options={a: 1}", "strategy.options.b=2"]
    scenario = Scenario.load("quickstart", parse_overrides(words))
    assert (scenario.frame.slots, scenario.frame.pull) == (12, 4)
    assert scenario.strategy.options == {"a": 1, "b": 2}


def test_numbers_of_numpy_are_plain_numbers(tmp_path):
    given = {
        "seed": np.int64(3),
        "data": {"alpha": np.float32(0.5), "dataset": Path("digits")},
        "frame.pull": np.array(4),
        "strategy.options": {"a": np.arange(3), "b": range(2), "c": (1, np.bool_(True)), "d": np.float64(0.1)},
    }
    scenario = Scenario.load("quickstart", given)
    options = {"a": [0, 1, 2], "b": [0, 1], "c": [1, True], "d": 0.1}
    same = {"seed": 3, "data": {"alpha": 0.5}, "frame.pull": 4, "strategy.options": options}
    assert scenario == Scenario.load("quickstart", same)
    assert type(scenario.seed) is type(scenario.frame.pull) is int
    file = tmp_path / "mine.yaml"
    file.write_text(scenario.to_yaml())
    assert Scenario.load(file).digest == scenario.digest


def test_a_scenario_cannot_be_changed_in_place():
    with pytest.raises(ValueError, match="frozen"):
        Scenario().seed = 3  # type: ignore[misc]


def test_every_key_is_documented():
    documented = keys()
    assert {"seed", "data.ues", "fleet.computing", "fleet.computing.slot", "push.contenders"} <= set(documented)
    assert all(len(text) > 15 for text in documented.values())
    # the keys are just those that a complete scenario writes
    complete = COMPLETE.model_dump()

    def leaves(fields: dict[str, Any], prefix: str = "") -> set[str]:
        found = set()
        for name, value in fields.items():
            inner = isinstance(value, dict) and name not in {"options", "epochs_by_strategy"}
            found |= leaves(value, f"{prefix}{name}.") if inner else {prefix + name}
        return found

    assert set(documented) == leaves(complete) | OPTIONAL


def test_the_json_schema_describes_every_field():
    schema = Scenario.model_json_schema()
    json.dumps(schema)
    sections = {"Scenario": schema, **schema["$defs"]}
    assert len(sections) == 25
    for name, section in sections.items():
        assert section["description"], name
        assert section["additionalProperties"] is False, name
        for field, content in section["properties"].items():
            described = content.get("description") or schema["$defs"][content["$ref"].split("/")[-1]]["description"]
            assert len(described) > 15, (name, field)


@pytest.mark.parametrize(
    ("fields", "rounds", "slots", "part"),
    [
        ({}, 15, 400, 0.25),
        ({"time_budget": 800}, 15, 400, 0.5),
        ({"time_budget": 800}, 45, 400, 0.75),
        ({"time_budget": 800}, 61, 810, 1.0),
        ({"strategy": {"name": "ps-alone"}}, 1, 0, 1.0),
    ],
)
def test_the_part_done_is_that_of_rounds_or_of_the_time_budget(fields, rounds, slots, part):
    assert Scenario(rounds=60, **fields).part_done(rounds, slots) == part


def test_an_object_that_is_no_part_is_told_with_its_field() -> None:
    expected = r"training\.model\.name: .* it must be a class, a function or a name; give arguments as options"
    with pytest.raises(InputError, match=expected):
        Scenario(training={"model": functools.partial(print, 1)})
