"""Where the page is served: host, port, and the names under which browsers may reach it. Needs nothing but sockets."""

from __future__ import annotations

import ipaddress
import socket
import sys
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass

from fedslot.support.errors import InputError, RefusedError

LOOPBACK = "127.0.0.1"
PORT, TRIED = 5006, 20  # the first port that is tried if none is given, and how many


@dataclass(frozen=True)
class Where:
    """Where to serve.

    port: None takes the first free one from 5006 on. host: name or address to listen on.
    origins: names, with or without a port, under which browsers may reach a host that is not the loopback.
    """

    port: int | None = None
    host: str = LOOPBACK
    origins: Sequence[str] = ()

    @property
    def is_any(self) -> bool:
        """Whether the host means all addresses of this machine."""
        return self.host in {"0.0.0.0", "::"}

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can reach the page."""
        if self.host == "localhost":
            return True
        with suppress(ValueError):
            return ipaddress.ip_address(self.host).is_loopback
        return False

    def bind(self) -> socket.socket:
        """Return a socket to serve on; refuse a given port that is in use, and a host that is not this machine's."""
        tried = [self.port] if self.port is not None else [*range(PORT, PORT + TRIED), 0]
        for port in tried:
            try:
                return self._bind(port)
            except OSError as error:
                fault = error
        if isinstance(fault, socket.gaierror):
            raise InputError("--host", self.host, "a name or an address of this machine, or 0.0.0.0 for all")
        given = "" if self.port is None else f":{self.port}"
        raise RefusedError(f"{self.host}{given} cannot be served on ({fault.strerror}); give another --host or --port")

    def _bind(self, port: int) -> socket.socket:
        family, kind, protocol, _, address = socket.getaddrinfo(self.host, port, type=socket.SOCK_STREAM)[0]
        with ExitStack() as failed:
            bound = failed.enter_context(socket.socket(family, kind, protocol))
            if sys.platform != "win32":  # there it would allow two servers on one port
                bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            bound.bind(address)
            bound.listen(128)
            bound.setblocking(False)
            failed.pop_all()
        return bound

    def address(self, port: int, token: str | None = None) -> str:
        """Return the address of the page for a browser."""
        name = socket.gethostname() if self.is_any else self.host
        return f"http://{_in_address(name)}:{port}/" + (f"?token={token}" if token else "")

    def allowed(self, port: int) -> list[str]:
        """Return from where pages may open websockets: on the loopback from any port, since tunnels have their own."""
        if self.is_loopback:
            return [f"{LOOPBACK}:*", "localhost:*", "[::1]:*"]
        names = {self.host}
        if self.is_any:
            names = {socket.gethostname(), socket.getfqdn(), "localhost", LOOPBACK, *_own_addresses()}
        given = {origin if ":" in origin else f"{origin}:{port}" for origin in self.origins}
        return sorted({f"{_in_address(name)}:{port}" for name in names} | given)


def _in_address(name: str) -> str:
    """Return a host as it is written before a port: an address of IPv6 has brackets."""
    return f"[{name}]" if ":" in name else name


def _own_addresses() -> set[str]:
    with suppress(OSError):
        return {str(entry[4][0]) for entry in socket.getaddrinfo(socket.gethostname(), None, family=socket.AF_INET)}
    return set()
