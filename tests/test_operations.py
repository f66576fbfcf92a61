"""The files of a service in examples/operations: units, containers, monitoring; as far as they can be checked here."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML
from typer.main import get_command

from fedslot.cli import app
from fedslot.support.extras import EXTRAS

REPOSITORY = Path(__file__).parent.parent
FOLDER = REPOSITORY / "examples" / "operations"
UNITS = sorted(FOLDER.glob("*.service"))
COMMANDS: Any = get_command(app)


def read(name: str) -> Any:
    return YAML(typ="safe").load((FOLDER / name).read_text("utf-8"))


def check_command(words: list[str]) -> None:
    """Check that a command of fedslot has the options that are given, and all that it needs."""
    command = COMMANDS.commands[words[0]]
    known = {name for parameter in command.params for name in parameter.opts}
    given = [word for word in words[1:] if word.startswith("-")]
    assert given
    assert set(given) <= known
    arguments = [word.replace("%i", "7") for word in words[1:]]
    command.make_context(words[0], arguments)  # parses them, and runs nothing


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_the_command_of_a_unit_exists(unit: Path) -> None:
    [line] = re.findall(r"^ExecStart=(.*)$", unit.read_text("utf-8").replace("\\\n", " "), re.MULTILINE)
    program, *words = shlex.split(line)
    assert program == "/opt/fedslot/bin/fedslot"
    check_command(words)


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="there is no systemd here")
@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_systemd_takes_a_unit(unit: Path, tmp_path: Path) -> None:
    copy = tmp_path / unit.name.replace("@", "@7")  # an instance, of a program that is here
    copy.write_text(unit.read_text("utf-8").replace("/opt/fedslot/bin/fedslot", "/bin/true"), "utf-8")
    done = subprocess.run(["systemd-analyze", "verify", copy], capture_output=True, text=True, check=False)
    own = [line for line in done.stderr.splitlines() if unit.stem.partition("@")[0] in line]
    assert (done.returncode, own) == (0, []), done.stderr
    assert re.search(r"^Restart=(on-failure|always)$", unit.read_text("utf-8"), re.MULTILINE)


def test_the_services_of_compose() -> None:
    compose = read("compose.yaml")
    services = compose["services"]
    for name, service in services.items():
        assert service.get("build") or service["image"]
        assert set(service.get("depends_on", [])) <= services.keys()
        for volume in service.get("volumes", []):
            source = volume["source"] if isinstance(volume, dict) else volume.split(":")[0]
            assert source in compose["volumes"] or (FOLDER / source).is_file(), (name, source)
        if service["image"] == "fedslot" and "command" in service:
            check_command(shlex.split(service["command"]))
    build = services["setup"]["build"]
    assert (FOLDER / build["context"] / build["dockerfile"]).resolve() == FOLDER / "Dockerfile"
    setup = services["setup"]["entrypoint"][-1]
    assert "--ues 20" in setup
    assert "--ues 0-19" in services["devices"]["command"]
    assert "data.ues=20" in services["ps"]["command"]


def test_the_image_is_made_of_what_is_there() -> None:
    text = (FOLDER / "Dockerfile").read_text("utf-8").replace("\\\n", " ")
    for sources in re.findall(r"^COPY (.*) \S+$", text, re.MULTILINE):
        assert all((REPOSITORY / source).exists() for source in sources.split())
    [extras] = re.findall(r"^ARG EXTRAS=(.*)$", text, re.MULTILINE)
    assert set(extras.split(",")) <= EXTRAS.keys()


def test_boards_and_alerts_ask_for_metrics_that_exist() -> None:
    pytest.importorskip("prometheus_client")
    from types import SimpleNamespace

    from fedslot.deployment.faults import Fault, FaultLog
    from fedslot.deployment.metrics import Metrics
    from fedslot.deployment.presence import Presence

    metrics, faults = Metrics(), FaultLog()
    faults.add(Fault(0, 0, "a", "late"))
    metrics.serving(SimpleNamespace(presence=Presence(), faults=faults), "0").close()  # type: ignore[arg-type]
    served = {sample.name for family in metrics.registry.collect() for sample in family.samples}
    board = json.loads((FOLDER / "grafana" / "board.json").read_text("utf-8"))
    queries = [target["expr"] for panel in board["panels"] for target in panel["targets"]]
    rules = [rule["expr"] for group in read("alerts.yml")["groups"] for rule in group["rules"]]
    asked = {name for query in queries + rules for name in re.findall(r"\bfedslot_\w+", query)}
    assert len(asked) > 10
    assert asked <= served
    assert all(re.search(r"fedslot_", query) for query in queries + rules)


def test_prometheus_asks_the_server_where_it_answers() -> None:
    [job] = read("prometheus.yml")["scrape_configs"]
    [target] = job["static_configs"][0]["targets"]
    host, port = target.split(":")
    assert f"--metrics 0.0.0.0:{port}" in read("compose.yaml")["services"][host]["command"]
    assert all((FOLDER / name).is_file() for name in read("prometheus.yml")["rule_files"])
    assert read("grafana/sources.yaml")["datasources"][0]["url"] == "http://prometheus:9090"
