"""The set-up of a cell: the commands of the deployment page are run as they stand there, if need be by root."""

from __future__ import annotations

import os
import pwd
import re
import shlex
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

pytest.importorskip("paho.mqtt")

from loopback import free_port, listens, rows
from mqtt_cell import PROGRAM, WAIT, command, over_mqtt, until

from fedslot import InputError, RefusedError
from fedslot.deployment.mqtt.setup import write_setup

pytestmark = over_mqtt
Start = Callable[..., subprocess.Popen[Any]]
BROKER_USER = "mosquitto" in {user.pw_name for user in pwd.getpwall()}
PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "deployment.md"


def commands() -> list[list[str]]:
    """The commands that the page shows in its section, as words."""
    section = PAGE.read_text("utf-8").split("### In production\n")[1].split("\n### ")[0]
    fences = re.findall(r"```bash\n(.*?)```", section, re.S)
    return [shlex.split(line) for fence in fences for line in fence.replace("\\\n", " ").splitlines()]


def program(name: str) -> str:
    """The program of the page that has this title."""
    [text] = re.findall(rf'```python title="{name}"\n(.*?)```', PAGE.read_text("utf-8"), re.S)
    return str(text)


def test_the_commands_of_the_page(start: Start, folder: Path, tmp_path: Path) -> None:
    """With another address, port, folder and number of UEs; another UE is in a process that may host several, as the
    page says, and one is the program of the page, with a training of its own.
    """
    port, home = free_port(), folder / "cell"
    changes = {
        "/etc/fedslot": str(home),
        "mqtts://192.0.2.10": f"mqtts://127.0.0.1:{port}",
        "192.0.2.10": "127.0.0.1",
        "200": "3",
        "ue7": "ue1",
    }

    def changed(word: str) -> str:
        for old, new in changes.items():
            word = word.replace(old, new)
        return "1" if word == "7" else word

    setup, broker, serve, device = [[changed(word) for word in words] for words in commands()]
    assert (setup[:3], broker[0]) == (["fedslot", "mqtt", "setup"], "mosquitto")
    assert command(start, tmp_path / "setup.log", *setup[1:], "--port", str(port)).wait(WAIT) == 0
    with (tmp_path / "broker.log").open("wb") as log:
        start(PROGRAM, *broker[1:], stdout=log, stderr=log)
    until(lambda: listens(port))
    said = (tmp_path / "broker.log").read_text("utf-8")
    assert "warn" not in said.lower(), said

    changed_fields = ("rounds=3", "frame.slots=3", "frame.pull=3", "push.contenders=0")
    options = [word for field in changed_fields for word in ("-o", field)]
    options += ["--slot-seconds=0.05", "--downlink-seconds=3", "--tolerance=10"]
    ps = command(start, tmp_path / "ps.log", *serve[1:], *options, folder=home / "ps")
    one = command(start, tmp_path / "one.log", *device[1:], folder=home / "ue1")
    url = f"mqtts://127.0.0.1:{port}"
    (home / "ue0" / "my_ue.py").write_text(program("my_ue.py"), "utf-8")
    with (tmp_path / "own.log").open("wb") as log:
        own = start(sys.executable, "my_ue.py", "0", url, stdout=log, stderr=log, cwd=home / "ue0")
    files = ["--cert", "ue{ue}/ue{ue}.pem", "--key", "ue{ue}/ue{ue}-key.pem", "--ps-key", "ue0/ps-sign.pub"]
    others = ["device", "--ues", "2", "--broker", url, "--tls-ca", "ca.pem", *files]
    two = command(start, tmp_path / "two.log", *others, folder=home)
    for process, log in ((ps, "ps.log"), (one, "one.log"), (two, "two.log"), (own, "own.log")):
        assert process.wait(WAIT) == 0, (tmp_path / log).read_text("utf-8")
    assert rows(home / "ps" / "out" / "cell") == 3
    frames = pd.read_csv(home / "ps" / "out" / "cell" / "frames.csv")
    assert set(frames.loc[frames["event"] == "pulled", "ue"]) == {0, 1, 2}
    assert "ue1: connected to mqtts://" in (tmp_path / "one.log").read_text("utf-8")


def test_a_second_setup_adds_what_is_missing(folder: Path) -> None:
    home = folder / "cell"
    write_setup(home, ["127.0.0.1"], ues=1, port=8883, most_bytes=10_000, days=1)
    before = {file: file.read_bytes() for file in home.rglob("*.pem") if file.name != "crl.pem"}
    write_setup(home, ["127.0.0.1"], ues=2, port=8883, most_bytes=20_000, days=1)
    assert {file: file.read_bytes() for file in before} == before
    assert (home / "ue1" / "ue1.pem").is_file()
    assert "user ue1\n" in (home / "broker" / "acl").read_text()
    assert "max_packet_size 20000\n" in (home / "broker" / "mosquitto.conf").read_text()
    private = [file for file in home.rglob("*.pem") if b"PRIVATE KEY" in file.read_bytes()]
    assert sorted(file.name for file in private) == ["broker-key.pem", "ca-key.pem"] + [
        f"{name}.pem" for name in ("ps-key", "ps-sign", "ue0-key", "ue1-key")
    ]
    assert all(stat.S_IMODE(file.stat().st_mode) == 0o600 for file in private)


def test_a_setup_of_fewer_ues_locks_nobody_out_and_one_of_another_host_certifies_it(folder: Path) -> None:
    home = folder / "cell"
    write_setup(home, ["127.0.0.1"], ues=3, port=8883, most_bytes=10_000, days=1)
    before = {file: file.read_bytes() for file in home.rglob("*.pem") if file.name != "crl.pem"}
    write_setup(home, ["broker.example.org", "127.0.0.1"], ues=2, port=8883, most_bytes=10_000, days=1)
    assert (home / "broker" / "acl").read_text().count("user ue") == 3
    changed = {file.name for file, content in before.items() if file.read_bytes() != content}
    assert changed == {"broker.pem", "broker-key.pem"}
    from cryptography import x509

    certificate = x509.load_pem_x509_certificate((home / "broker" / "broker.pem").read_bytes())
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["broker.example.org"]


def test_a_setup_without_the_key_of_the_authority_leaves_the_cell_as_it_is(folder: Path) -> None:
    """The page says to keep the key offline; a new authority would lock all devices out."""
    home = folder / "cell"
    write_setup(home, ["127.0.0.1"], ues=1, port=8883, most_bytes=10_000, days=1)
    key = (home / "ca-key.pem").read_bytes()
    (home / "ca-key.pem").unlink()
    before = {file: file.read_bytes() for file in home.rglob("*.*")}
    with pytest.raises(RefusedError, match=r"ca-key\.pem is missing"):
        write_setup(home, ["127.0.0.1"], ues=2, port=8883, most_bytes=10_000, days=1)
    (home / "ca-key.pem").write_bytes(key[:50])
    with pytest.raises(RefusedError, match="cannot be read"):
        write_setup(home, ["127.0.0.1"], ues=2, port=8883, most_bytes=10_000, days=1)
    assert {file: file.read_bytes() for file in before} == before


@pytest.mark.parametrize(("name", "host"), [("cell", "a b"), ("cell", ""), ("a cell", "127.0.0.1")])
def test_what_mosquitto_or_certificates_cannot_name_is_refused(folder: Path, name: str, host: str) -> None:
    with pytest.raises(InputError, match=r"folder|host"):
        write_setup(folder / name, [host], ues=1, port=8883, most_bytes=10_000, days=1)
    assert list(folder.iterdir()) == []


@pytest.mark.skipif(os.geteuid() != 0 or not BROKER_USER, reason="only root's broker becomes another user")
def test_a_folder_that_the_broker_cannot_enter_is_refused(folder: Path) -> None:
    folder.chmod(0o700)
    with pytest.raises(RefusedError, match="mosquitto cannot enter"):
        write_setup(folder / "cell", ["127.0.0.1"], ues=1, port=8883, most_bytes=10_000, days=1)
    assert list(folder.iterdir()) == []
