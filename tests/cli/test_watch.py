"""`fedslot watch` and `--live` as a user meets them: a process, its line, its page, its end."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from types import SimpleNamespace
from urllib.parse import urlsplit

import pytest
from typer.main import get_command

import fedslot
from fedslot.cli import app

Start = Callable[..., subprocess.Popen[str]]
Refusal = Callable[[list[str]], str]
SCENARIO = {"rounds": 3, "data.ues": 20, "training.epochs": 1, "strategy.warmup": 1}
QUICK = [word for key, value in SCENARIO.items() for word in ("-o", f"{key}={value}")]
LIMIT = 120.0  # seconds
WATCH = get_command(app).commands["watch"]  # type: ignore[attr-defined]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("live") / "run"
    fedslot.run(fedslot.Scenario.load("quickstart", SCENARIO), folder)
    return folder


def watching(start: Start, *words: str) -> tuple[subprocess.Popen[str], str]:
    """Start `fedslot watch`; return the process and the address that it printed."""
    process = start(sys.executable, "-m", "fedslot", "watch", *words, stdout=-1, stderr=-1, text=True)
    assert process.stdout is not None
    line = process.stdout.readline()
    assert "can be seen at" in line, process.communicate()[1]
    return process, next(word for word in line.split() if word.startswith("http"))


def get(address: str, path: str = "", **headers: str) -> SimpleNamespace:
    """Fetch a path from where an address leads, by way of the loopback; return status, headers and text."""
    parts = urlsplit(address)
    connection = HTTPConnection("127.0.0.1", parts.port, timeout=LIMIT)
    try:
        connection.request("GET", path or f"{parts.path}?{parts.query}", headers=headers)
        with connection.getresponse() as response:
            return SimpleNamespace(status=response.status, headers=response.headers, text=response.read().decode())
    finally:
        connection.close()


def websocket(address: str, origin: str, cookie: str = "") -> str:
    """Ask for a websocket with a made-up session; return the refusal, or all that comes until the server closes it."""
    lines = ["GET /ws HTTP/1.1", "Host: here", "Connection: Upgrade", "Upgrade: websocket", f"Origin: {origin}"]
    lines += ["Sec-WebSocket-Version: 13", "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==", f"Cookie: {cookie}"]
    lines += ["Sec-WebSocket-Protocol: bokeh, nonsense", "", ""]
    with socket.create_connection(("127.0.0.1", urlsplit(address).port or 0), timeout=LIMIT) as connection:
        connection.sendall("\r\n".join(lines).encode())
        answer = b""
        while piece := connection.recv(4096):
            answer += piece
            if b"\r\n\r\n" in answer and b" 101 " not in answer:  # the connection stays open for other requests
                break
    return answer.decode("latin-1")


def test_a_page_on_the_loopback_until_ctrl_c(start: Start, run: Path) -> None:
    process, address = watching(start, str(run))
    assert urlsplit(address).hostname == "127.0.0.1"
    response = get(address)
    assert response.status == 200
    assert str(run) in response.text
    assert "https://" not in response.text, "all scripts come from here"
    assert " 403 " in websocket(address, "http://evil.example")
    tunnel = websocket(address, "http://localhost:8000")
    assert " 101 " in tunnel
    assert "ACK" not in tunnel, "only pages that were served from here have sessions"
    for path in ("/static/js/%00", "/%00", "/static/js/%0a%1b[2J", "/static/../../etc/passwd", "/static/" + "a" * 5000):
        assert 400 <= get(address, path).status < 500
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=LIMIT)
    assert process.returncode == 130
    assert "Traceback" not in errors
    refused = [line for line in errors.splitlines() if "evil.example" in line]
    assert len(refused) == 1
    options = {word for word in refused[0].split() if word.startswith("--")}
    assert options == {"--host", "--origin"} <= {name for each in WATCH.params for name in each.opts}


def test_other_hosts_need_the_token(start: Start, run: Path) -> None:
    _, address = watching(start, str(run), "--host", "0.0.0.0")
    assert "?token=" in address
    refused = get(address, "/")
    assert refused.status == 302
    told = get(address, refused.headers["Location"])
    assert told.status == 403
    assert "token" in told.text
    assert get(address, "/?token=guess").status == 302
    cookie = get(address).headers["Set-Cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=Strict" in cookie
    assert get(address, "/", Cookie=cookie.split(";")[0]).status == 200
    own = f"http://{urlsplit(address).netloc}"
    assert "ACK" not in websocket(address, own)
    assert " 403 " in websocket(address, "http://evil.example", cookie.split(";")[0])


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["watch", "nowhere"], "nowhere is no folder"),
        (["watch", "."], "holds no run, comparison or sweep"),
        (["watch"], "fedslot watch needs FOLDER"),
        (["watch", ".", "--port", "70000"], "--port"),
    ],
)
def test_what_cannot_be_watched(refusal: Refusal, words: list[str], expected: str) -> None:
    assert expected in refusal(words)


@pytest.mark.parametrize(
    "words", [["watch", "."], ["run", "quickstart", "--live"], ["compare", "quickstart", "--open"]], ids=" ".join
)
def test_without_bokeh_one_line_says_what_to_install(
    refusal: Refusal, words: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "bokeh", None)
    assert "needs bokeh; type: pip install 'fedslot[live]'" in refusal(words)


def test_a_port_in_use_ends_a_run_before_it_begins(refusal: Refusal) -> None:
    from fedslot.views.live.address import Where

    with Where().bind() as taken:
        port = str(taken.getsockname()[1])
        line = refusal(["run", "quickstart", "--live", "--port", port])
    assert f"127.0.0.1:{port} cannot be served on" in line
    assert "--port" in line


def until(condition: Callable[[], object]) -> None:
    end = time.monotonic() + LIMIT
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)


def is_gone(address: str, folder: Path) -> bool:
    """Return whether the page of a folder is gone; another test may have taken its port."""
    try:
        return str(folder) not in get(address).text
    except (OSError, HTTPException):
        return True


@pytest.mark.parametrize("way", [signal.SIGINT, pytest.param(signal.SIGKILL, marks=pytest.mark.long)])
def test_the_page_beside_a_run_ends_with_it(start: Start, tmp_path: Path, way: signal.Signals) -> None:
    words = ["run", "quickstart", "-o", "rounds=1000000", "--live", "--out", str(tmp_path / "run")]
    process = start(sys.executable, "-m", "fedslot", *words, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    address = next(line for line in process.stderr if line.startswith("live view: ")).split()[-1]
    assert get(address).status == 200
    process.send_signal(way)
    _, errors = process.communicate(timeout=LIMIT)
    if way == signal.SIGINT:
        assert process.returncode == 130
        assert "--live" in errors, "the command that continues"
        assert "Traceback" not in errors
    until(lambda: is_gone(address, tmp_path))


@pytest.mark.long
def test_a_run_does_not_die_of_its_page(start: Start, tmp_path: Path) -> None:
    """The viewer is killed in the middle; the run ends as ever."""
    words = ["compare", "quickstart", *QUICK, "--strategies", "fedavg", "--seeds", "1", "--workers", "1"]
    words += ["-o", "rounds=60", "--live", "--out", str(tmp_path / "out")]
    process = start(sys.executable, "-m", "fedslot", *words, stdout=-1, stderr=-1, text=True)
    viewer: list[str] = []

    def has_viewer() -> bool:
        for entry in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                words = (entry / "cmdline").read_bytes().decode().split("\0")
                if "--beside" in words and str(tmp_path / "out") in words:
                    viewer.append(entry.name)
        return bool(viewer)

    until(has_viewer)
    subprocess.run(["kill", "-9", viewer[0]], check=True)
    output, errors = process.communicate(timeout=LIMIT)
    assert process.returncode == 0, errors
    assert "report" in output
