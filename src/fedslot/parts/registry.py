"""The user's own strategies, channels, models etc.: found as `package.module:Name`, or given as a class.

A class or function that is given instead of a name is stored as its name, `module:QualName`. Those of a script, a
notebook or a function cannot be imported by this name; they are remembered under it, and `pack` and `unpack` take them
to other processes.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import inspect
import sys
from collections.abc import Iterable
from contextlib import chdir
from functools import reduce
from os.path import realpath
from pathlib import Path
from types import ModuleType
from typing import Any

from fedslot.support.errors import InputError, RefusedError

_given: dict[str, Any] = {}
"""Classes and functions that cannot be imported, by the names under which scenarios store them."""
_digests: dict[str, str | None] = {}
"""Hashes of the sources of parts that another process packed; here, their sources cannot be found."""


def own_part(name: str) -> Any:
    """Return the object with the name `package.module:Name`: as it was given, or else imported."""
    if name not in _given:
        path, _, attribute = name.partition(":")
        module = _module(path)
        part = reduce(getattr, attribute.split("."), module)
        if module.__name__ != "__main__":
            return part
        _given[name] = part  # other processes cannot import it
    return _given[name]


PART = "part"
"""Stands for the field of a part where that is not known."""


def part_name(part: object) -> object:
    """Return the name `module:QualName` of a class or function, by which it is found; return anything else unchanged.

    >>> from collections import Counter
    >>> part_name(Counter)
    'collections:Counter'
    """
    if not callable(part):
        return part
    module, qualified = getattr(part, "__module__", None), getattr(part, "__qualname__", None)
    if module is None or qualified is None:
        raise InputError(PART, part, "a class, a function or a name; give arguments as options of the part")
    name = f"{module}:{qualified}"
    importable: Any = reduce(lambda at, each: getattr(at, each, None), qualified.split("."), sys.modules.get(module))
    if module != "__main__" and importable is part:
        _given.pop(name, None)
        return name
    if "<" in qualified and _given.get(name, part) is not part:
        # unlike a cell of a notebook that is run again, this cannot mean that the earlier one is replaced
        raise InputError(PART, name, "unique, but another one was given under this name; set its __qualname__")
    _given[name] = part
    return name


def pack(names: Iterable[str]) -> bytes:
    """Return those of the named parts that another process cannot import."""
    import cloudpickle

    chosen = {name: (_given[name], source_digest(name)) for name in names if name in _given}
    try:
        packed: bytes = cloudpickle.dumps(chosen)
    except Exception as error:  # whatever an object in it raises
        raise RefusedError(f"{', '.join(chosen)} cannot be sent to other processes ({error})") from error
    return packed


def unpack(packed: bytes) -> None:
    """Remember the parts that another process packed; they replace earlier ones of the same names."""
    import cloudpickle

    for name, (part, digest) in cloudpickle.loads(packed).items():
        _given[name], _digests[name] = part, digest


def source_digest(name: str) -> str | None:
    """Return a hash of the source of an own part, `package.module:Name`; None if there is no source.

    Of a module, the whole file counts: the part's own, and that of the given name if it is another. Scripts and
    notebooks are edited between one call and the next, so that only the part itself counts.
    """
    if name in _digests:
        return _digests[name]
    part = own_part(name)
    modules = {name.partition(":")[0], str(getattr(part, "__module__", "__main__"))}
    files = [getattr(sys.modules.get(module), "__file__", None) for module in sorted(modules)]
    try:
        if "__main__" in modules or None in files:
            source = _source(part).encode()
        else:
            source = b"".join(Path(str(file)).read_bytes() for file in files)
    except (OSError, TypeError):  # by which `inspect` says that there is none
        return None
    return hashlib.sha256(source).hexdigest()


def _source(part: Any) -> str:
    """Return the source of a class or function; where that of a class is not found, as in notebooks, its methods'."""
    try:
        return inspect.getsource(part)
    except (OSError, TypeError):
        methods = [method for method in vars(part).values() if inspect.isfunction(method)]
        if not methods:
            raise
        return "".join(map(inspect.getsource, methods))


def _module(name: str) -> ModuleType:
    """Import a module; a script that names itself is not run a second time."""
    main = sys.modules["__main__"]
    file = getattr(main, "__file__", None)
    if file is not None and name not in sys.modules:
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.origin and realpath(spec.origin) == realpath(file):
            return main
    if name in sys.modules:
        return sys.modules[name]
    with chdir("."):  # a module may leave the current folder, to which the paths of the command are relative
        return importlib.import_module(name)
