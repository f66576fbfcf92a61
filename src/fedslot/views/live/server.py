"""Serve the page of a watched folder to browsers: on the loopback, or elsewhere with a token in the address."""

from __future__ import annotations

import asyncio
import hmac
import logging
import secrets
import threading
import webbrowser
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from bokeh.document import Document
from bokeh.server.auth_provider import AuthProvider, NullAuth
from bokeh.server.server import BaseServer
from bokeh.server.tornado import BokehTornado
from tornado.httpserver import HTTPServer
from tornado.httputil import HTTPServerRequest
from tornado.ioloop import IOLoop
from tornado.web import ErrorHandler, RequestHandler

from fedslot.views.live.address import Where
from fedslot.views.live.watched import Watched

TICK = 1000  # milliseconds; drawing takes time of the processor that a run on this machine needs
LONGEST = 300  # characters of a line about a fault
COOKIE = "fedslot-token"
REFUSED_ORIGIN = "Refusing websocket connection"  # how Bokeh's message begins


def serve(
    folder: Path,
    where: Where,
    *,
    ready: Callable[[str], object],
    open_browser: bool = False,
    alive: Callable[[], object] | None = None,
) -> None:
    """Serve the page of a folder until Ctrl-C.

    ready: called with the address when the page can be opened.
    alive: blocks as long as the page is wanted; called in a thread, and the server ends when it returns.
    """
    _log_in_lines(OneLine("--origin" if not where.is_loopback else "--host 0.0.0.0 --origin"))
    bound = where.bind()
    port = int(bound.getsockname()[1])
    token = None if where.is_loopback else secrets.token_urlsafe(24)
    watched = Watched(folder)

    def build(document: Document) -> None:
        from fedslot.views.live.viewer import Viewer  # at the first page: the address shall not wait for it

        viewer = Viewer(watched, document)
        document.add_periodic_callback(viewer.tick, TICK)

    async def until_the_end() -> None:
        application = Application(
            {"/": build},
            extra_websocket_origins=where.allowed(port),
            auth_provider=TokenAuth(token) if token else NullAuth(),
            secret_key=secrets.token_bytes(32),
            sign_sessions=True,  # so that only a page that was served here can open a websocket
            include_headers=[],
            include_cookies=[],
        )
        listener = HTTPServer(application)
        listener.add_socket(bound)
        server = BaseServer(IOLoop.current(), application, listener)
        server.start()
        ended = asyncio.Event()
        if alive:
            end = partial(asyncio.get_running_loop().call_soon_threadsafe, ended.set)
            threading.Thread(target=_call_after, args=[alive, end], daemon=True).start()
        address = where.address(port, token)
        ready(address)
        if open_browser:
            threading.Thread(target=webbrowser.open, args=[address], daemon=True).start()
        try:
            await ended.wait()
        finally:
            server.stop(wait=False)

    asyncio.run(until_the_end())


class Application(BokehTornado):  # type: ignore[misc]
    """Bokeh's application, in which no path has control characters: no file can have such a name."""

    def find_handler(self, request: HTTPServerRequest, **more: Any) -> Any:
        """Return the handler of a request."""
        if not unquote(request.path).isprintable():
            return self.get_handler_delegate(request, ErrorHandler, {"status_code": 404})
        return super().find_handler(request, **more)


class OneLine(logging.Formatter):
    """Formats what goes wrong in the server, such as a request that makes no sense, as one line.

    option: the option of `fedslot watch` that allows the origin of a page, for Bokeh advises one of its own command.
    """

    def __init__(self, option: str) -> None:
        super().__init__()
        self._option = option

    def format(self, record: logging.LogRecord) -> str:
        text, error = record.getMessage(), record.exc_info[1] if record.exc_info else None
        if text.startswith(REFUSED_ORIGIN):
            text = f"{text.partition(';')[0]}; to allow it, watch with {self._option} and its HOST:PORT"
        text = " ".join(f"{text} {error or ''}".split())
        return "live view: " + "".join(each if each.isprintable() else "?" for each in text[:LONGEST])


def _log_in_lines(form: logging.Formatter) -> None:
    handler = logging.StreamHandler()
    handler.setFormatter(form)
    for name in ("bokeh", "tornado", "asyncio"):
        logger = logging.getLogger(name)
        logger.setLevel(logging.ERROR)  # no news of every connection
        logger.handlers, logger.propagate = [handler], False


def _call_after(alive: Callable[[], object], end: Callable[[], object]) -> None:
    try:
        alive()
    finally:
        with suppress(RuntimeError):  # the loop has ended already
            end()


class TokenAuth(AuthProvider):  # type: ignore[misc]
    """Lets in only browsers that know the token: from the address at first, then from a cookie."""

    def __init__(self, token: str) -> None:
        self.token = token
        super().__init__()

    @property
    def get_user(self) -> Callable[[RequestHandler], str | None]:
        """Return the function that tells who makes a request; None is nobody."""
        return self._user

    def _user(self, handler: RequestHandler) -> str | None:
        cookie = handler.get_cookie(COOKIE) or ""
        if self._is_right(handler.get_query_argument("token", "")):
            if cookie != self.token and handler.request.headers.get("Upgrade") is None:
                handler.set_cookie(COOKIE, self.token, httponly=True, samesite="Strict")
            return "viewer"
        return "viewer" if self._is_right(cookie) else None

    def _is_right(self, word: str) -> bool:
        return hmac.compare_digest(word.encode(), self.token.encode())

    @property
    def login_url(self) -> str:
        """Where browsers without the token are sent."""
        return "/refused"

    @property
    def login_handler(self) -> type[RequestHandler]:
        """Return the handler that refuses them."""
        return Refused


class Refused(RequestHandler):
    """Says that the address lacks its token."""

    def get(self) -> None:
        """Answer with 403 and one line."""
        self.set_status(403)
        self.set_header("Content-Type", "text/plain; charset=utf-8")
        self.finish("This page needs the token of the address that fedslot printed.\n")
