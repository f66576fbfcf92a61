"""The architecture: which modules may import which, and which must load quickly."""

import ast
import importlib
import json
import re
import subprocess
import sys
import tomllib
from collections import Counter
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

import fedslot

ROOT = Path(fedslot.__file__).parent
REPOSITORY = Path(__file__).parent.parent
PARTS = ("access", "learning", "valuation", "strategies")
HEAVY = {"torch", "numpy", "scipy", "matplotlib", "pandas", "numba"}


def _name(file: Path) -> str:
    parts = file.relative_to(ROOT.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _imports(file: Path, *, top: bool = False) -> set[str]:
    """Names of all that a file imports, anywhere or only when it is itself imported; `from a import b` as a.b."""
    tree = ast.parse(file.read_text("utf-8"))
    package = _name(file) if file.name == "__init__.py" else _name(file).rpartition(".")[0]
    found: set[str] = set()

    def visit(node: ast.AST) -> None:
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            parents = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            module = ".".join([*parents, *([node.module] if node.module else [])])
            found.update(f"{module}.{alias.name}" for alias in node.names)
        if top and isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            return
        if top and isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            return
        for child in ast.iter_child_nodes(node):
            visit(child)

    visit(tree)
    return found


FILES = sorted(ROOT.rglob("*.py"))
MODULES = {_name(file): file for file in FILES}


@pytest.mark.parametrize(
    "package", [file.parent for file in FILES if file.name == "__init__.py" and file.parent != ROOT]
)
def test_the_docstring_of_a_package_maps_its_files(package: Path):
    told = ast.get_docstring(ast.parse((package / "__init__.py").read_text("utf-8"))) or ""
    inside = {file.stem for file in package.glob("*.py")} | {file.parent.name for file in package.glob("*/__init__.py")}
    assert {name for name in inside - {"__init__"} if not re.search(rf"\b{name}\b", told)} == set()


def test_imports_are_seen():
    """The instrument works: the loop imports what one sees it import."""
    loop = _imports(ROOT / "rounds" / "simulation.py")
    assert {"numpy", "fedslot.access.frame.play", "fedslot.rounds.ps.PS"} <= loop
    assert {_name(file).split(".")[1] for file in FILES if file.parent.parent == ROOT} >= set(PARTS)


def test_every_import_is_declared():
    """Whatever src, tests, examples and benchmarks import is in pyproject.toml, not only a dependency of another."""
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text("utf-8"))["project"]
    parts = [project["dependencies"], *project["optional-dependencies"].values()]
    declared = {re.match(r"[\w.-]+", line)[0].lower() for part in parts for line in part}
    files = [file for top in ("src", "tests", "examples", "benchmarks") for file in (REPOSITORY / top).rglob("*.py")]
    scripts = [file for file in files if not file.is_relative_to(ROOT)]
    ours = {"fedslot"} | {file.stem for file in scripts} | {file.parent.name for file in scripts}
    nodes = [node for file in files for node in ast.walk(ast.parse(file.read_text("utf-8")))]
    names = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    names |= {node.module for node in nodes if isinstance(node, ast.ImportFrom) and not node.level}
    packages = {name.split(".")[0] for name in names} - ours - sys.stdlib_module_names
    installed = packages_distributions()  # PIL is in pillow; without an extra, its packages go by their names
    prefixes = {line.split("-")[0]: line for line in declared}  # mlflow is in mlflow-skinny, paho in paho-mqtt
    homes = {name: installed.get(name, [name, prefixes.get(name, name)]) for name in packages}
    undeclared = {name for name in packages if not declared & {home.lower().replace("_", "-") for home in homes[name]}}
    assert len(packages) > 15
    assert not undeclared


@pytest.mark.parametrize("part", PARTS)
def test_the_parts_of_a_round_never_import_one_another(part):
    others = [f"fedslot.{other}" for other in PARTS if other != part] + [
        "fedslot.rounds.simulation",
        "fedslot.runs.execution",
    ]
    files = sorted((ROOT / part).rglob("*.py"))
    assert len(files) > 2
    for file in files:
        guilty = {name for name in _imports(file) if any(name == o or name.startswith(f"{o}.") for o in others)}
        assert not guilty, file


@pytest.mark.parametrize("module", ["support/rng", "support/errors", "messages", "parts/registry"])
def test_what_all_share_depends_on_none_of_them(module):
    ours = {name for name in _imports(ROOT / f"{module}.py") if name.startswith("fedslot")}
    assert all(name.startswith("fedslot.support.errors.") for name in ours)


def test_there_are_no_import_cycles():
    """Imports inside functions count too: a cycle that is put off is still one."""
    imports = {
        name: {_module(imported) for imported in _imports(file)} - {name, None}
        for name, file in MODULES.items()
        if file.name != "__init__.py"  # packages only pass names on
    }
    done: set[str] = set()

    def follow(name: str, path: tuple[str, ...]) -> None:
        assert name not in path, " -> ".join([*path[path.index(name) :], name])
        if name not in done:
            for imported in sorted(imports.get(name, ())):
                follow(imported, (*path, name))
            done.add(name)

    for name in imports:
        follow(name, ())
    assert len(done) > 50


def _module(imported: str) -> str | None:
    """The module of ours that an imported name is, or is in."""
    return next((name for name in (imported, imported.rpartition(".")[0]) if name in MODULES), None)


def _room(module: str) -> str:
    """The room of a module: the first folder or file below the root package, which is itself no room."""
    return ".".join(module.split(".")[:2])


def _imported_rooms(file: Path) -> set[str]:
    rooms = {_room(name) for name in map(_module, _imports(file)) if name}
    return rooms - {"fedslot", _room(_name(file))}


def test_the_map_of_contributing_has_every_room_above_those_that_import_it():
    text = (REPOSITORY / "CONTRIBUTING.md").read_text("utf-8")
    rooms = [f"fedslot.{name}" for name in re.findall(r"^\| `(\w+)` \|", text, re.MULTILINE)]
    ours = {_room(_name(file)) for file in FILES if file.parent != ROOT or file.stem == "messages"}
    assert sorted(rooms) == sorted(ours)
    for file in FILES:
        if (room := _room(_name(file))) in rooms:
            assert _imported_rooms(file) <= set(rooms[: rooms.index(room)]), file


def test_nothing_below_loads_the_views():
    """What is drawn and shown goes through one late door, `support/display.py`."""
    doors = {_name(file) for file in FILES if re.search(r"import_module\(f?\"fedslot\.views", file.read_text("utf-8"))}
    assert doors == {"fedslot.support.display", "fedslot.views"}


def test_studies_use_public_names():
    public = {"fedslot": set(fedslot.__all__)}
    for file in sorted((ROOT / "studies").rglob("*.py")):
        for name in _imports(file):
            home, _, word = name.rpartition(".")
            if home.split(".")[0] == "fedslot" and not home.startswith("fedslot.studies"):
                names = public.setdefault(home, set(getattr(importlib.import_module(home), "__all__", ())))
                assert MODULES[home].name == "__init__.py", (file, name)
                assert word in names, (file, name)
    assert len(public) > 4


USERS = {
    "flwr": "fedslot.deployment.flower.",
    "paho": "fedslot.deployment.mqtt.broker",
    "constriction": "fedslot.compression.entropy_coding",
    "prometheus_client": "fedslot.deployment.metrics",
    "typer": "fedslot.cli",
    "dask": "fedslot.experiments.cluster",
    "distributed": "fedslot.experiments.cluster",
    "bokeh": "fedslot.views.live.",
    "tornado": "fedslot.views.live.",
}


@pytest.mark.parametrize("library", USERS)
def test_a_library_is_imported_in_one_place(library):
    users = {_name(file) for file in FILES if library in {name.split(".")[0] for name in _imports(file)}}
    assert users
    assert all(name.startswith(USERS[library]) for name in users)


def test_deployments_share_what_needs_no_transport():
    shared = sorted((ROOT / "deployment").glob("*.py"))
    folders = {folder.name for folder in (ROOT / "deployment").iterdir() if folder.is_dir()}
    assert len(shared) > 5
    for file in shared:
        for name in _imports(file):
            package, *rest = name.split(".")
            assert package not in {"flwr", "httpx", "paho"}, file
            assert (package, rest[:1]) != ("fedslot", ["deployment"]) or rest[1] not in folders, file


@pytest.mark.parametrize("file", sorted((ROOT / "cli").rglob("*.py")), ids=_name)
def test_the_command_line_puts_heavy_imports_off(file):
    """Neither heavy libraries nor modules of ours that load them, before a command runs."""
    heavy = {_name(other) for other in FILES if HEAVY & {name.split(".")[0] for name in _imports(other, top=True)}}
    for name in _imports(file, top=True):
        assert name.split(".")[0] not in HEAVY
        assert not any(name == module or name.startswith(f"{module}.") for module in heavy - {"fedslot"})


LIGHT = [
    "fedslot",
    "fedslot.cli",
    "fedslot.support.errors",
    "fedslot.scenario",
    "fedslot.deployment.frame",
    "fedslot.mqtt",
    "fedslot.compression.sparse, fedslot.compression.quantise, fedslot.compression.eden",
]


@pytest.mark.parametrize(
    ("module", "absent"),
    [
        *((module, {"torch", "matplotlib", "pandas", "scipy"}) for module in LIGHT),
        ("fedslot.experiments.cluster", {"dask", "distributed"}),
        ("fedslot.views.report, fedslot.views.live.beside", {"bokeh"}),
    ],
)
def test_modules_load_without_libraries_that_they_may_not_need(module, absent):
    script = f"import json, sys; import {module}; print(json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True, text=True)
    loaded = json.loads(done.stdout)
    assert module.split(",")[0] in loaded
    assert not absent & set(loaded)


def test_the_public_names_are_there():
    for name in fedslot.__all__:
        assert getattr(fedslot, name) is not None
    with pytest.raises(AttributeError, match="nothing_of_that_kind"):
        fedslot.nothing_of_that_kind  # noqa: B018
    assert dir(fedslot) == sorted(fedslot.__all__)


def test_a_class_name_means_one_thing():
    names = [
        node.name
        for file in FILES
        for node in ast.walk(ast.parse(file.read_text("utf-8")))
        if isinstance(node, ast.ClassDef)
    ]
    assert {name: count for name, count in Counter(names).items() if count > 1} == {}
