import functools
import importlib
import json
import threading

import pytest

from fedslot.parts.registry import own_part, pack, part_name, unpack
from fedslot.support.errors import InputError, RefusedError


class Outer:
    class Inner:
        pass


def make():
    class Local:
        pass

    return Local


@pytest.mark.parametrize("part", [Outer, Outer.Inner, json.dumps, json.JSONDecoder.decode, make])
def test_a_class_or_function_is_found_by_its_name(part):
    name = part_name(part)
    assert name == f"{part.__module__}:{part.__qualname__}"
    assert own_part(name) is part


def test_a_module_that_was_reloaded_has_new_classes(tmp_path, monkeypatch):
    """Its name means the new class, unless the old one is given."""
    (tmp_path / "edited_module.py").write_text("class Mine: pass")
    monkeypatch.syspath_prepend(tmp_path)
    module = importlib.import_module("edited_module")
    old, name = module.Mine, part_name(module.Mine)
    importlib.reload(module)
    assert own_part(name) is module.Mine is not old
    assert own_part(part_name(old)) is old
    assert own_part(part_name(module.Mine)) is module.Mine


def test_names_stay_as_they_are():
    assert [part_name(given) for given in ("fedavg", 3, None)] == ["fedavg", 3, None]


def test_a_class_of_a_function_is_never_taken_for_another():
    first = make()
    assert own_part(part_name(first)) is first
    with pytest.raises(InputError, match=r"make\.<locals>\.Local.*unique"):
        part_name(make())
    assert own_part(part_name(first)) is first


def test_a_cell_of_a_notebook_may_be_run_again():
    first, second = (type("Cell", (), {"__module__": "__main__", "__qualname__": "Cell"}) for _ in range(2))
    assert own_part(part_name(first)) is first
    assert own_part(part_name(second)) is second


def test_parts_without_a_name_are_refused():
    with pytest.raises(InputError, match="a class, a function or a name"):
        part_name(functools.partial(print, 1))


def test_parts_travel_by_value():
    part = type("Traveller", (), {"__module__": "__main__", "__qualname__": "Traveller", "luggage": 3})
    packed = pack([part_name(part), "fedavg"])
    part_name(type("Traveller", (), {"__module__": "__main__", "__qualname__": "Traveller"}))
    unpack(packed)
    assert own_part("__main__:Traveller").luggage == 3


def test_what_cannot_travel_is_refused_in_one_line():
    part = type("Stuck", (), {"__module__": "__main__", "__qualname__": "Stuck", "lock": threading.Lock()})
    with pytest.raises(RefusedError, match="__main__:Stuck cannot be sent"):
        pack([part_name(part)])
