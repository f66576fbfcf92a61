"""Where the page is served: ports in use, hosts of others, origins."""

from __future__ import annotations

import socket

import pytest

from fedslot.support.errors import InputError, RefusedError
from fedslot.views.live.address import LOOPBACK, PORT, Where


def test_the_next_free_port_is_taken_if_none_was_asked_for() -> None:
    with Where().bind() as first, Where().bind() as second:
        assert first.getsockname()[0] == LOOPBACK
        assert PORT <= first.getsockname()[1] != second.getsockname()[1]


def test_hosts_that_are_not_this_machine() -> None:
    with pytest.raises(InputError, match="--host"):
        Where(host="nowhere.invalid").bind()
    with pytest.raises(RefusedError, match="cannot be served on"):
        Where(host="192.0.2.1").bind()  # reserved for examples


@pytest.mark.parametrize(
    ("host", "loopback"),
    [
        ("127.0.0.1", True),
        ("127.0.0.9", True),
        ("localhost", True),
        ("::1", True),
        ("0.0.0.0", False),
        ("a.example", False),
    ],
)
def test_what_is_the_loopback(host: str, loopback: bool) -> None:
    assert Where(host=host).is_loopback == loopback


def test_origins() -> None:
    """Tunnels reach the loopback by ports of their own; elsewhere only this port and what the user adds."""
    assert "localhost:*" in Where().allowed(5006)
    named = Where(host="cell.example", origins=["proxy.example", "other.example:443"])
    assert named.allowed(5006) == ["cell.example:5006", "other.example:443", "proxy.example:5006"]
    assert Where(host="2001:db8::1").allowed(5006) == ["[2001:db8::1]:5006"]
    assert f"{socket.gethostname()}:5006" in Where(host="0.0.0.0").allowed(5006)


def test_the_address_has_the_token() -> None:
    assert Where().address(5006) == "http://127.0.0.1:5006/"
    assert Where(host="::1").address(5006) == "http://[::1]:5006/"
    assert Where(host="0.0.0.0").address(80, "abc") == f"http://{socket.gethostname()}:80/?token=abc"
