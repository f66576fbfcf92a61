"""The live view as a child process beside a command that runs something; this side needs no Bokeh."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from fedslot.support.extras import require
from fedslot.views.live.address import Where

LINGER = 5.0  # seconds that the child has to show the last rounds and end


class View:
    """A child process that serves the page of a folder; it ends with this process, however that ends."""

    def __init__(self, folder: Path, port: int | None, open_browser: bool, announce: Callable[[str], object]) -> None:
        command = [sys.executable, "-m", "fedslot", "watch", str(folder), "--beside"]
        command += ["--port", str(port)] if port is not None else []
        command += ["--open"] if open_browser else []
        # a session of its own: Ctrl-C comes to this process, which then ends the child
        self._child = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
        )
        self.address = ""
        self._reader = threading.Thread(target=self._listen, args=[announce], daemon=True)
        self._reader.start()

    def _listen(self, announce: Callable[[str], object]) -> None:
        """Tell the address when the page can be opened."""
        assert self._child.stdout is not None
        if line := self._child.stdout.readline().strip():
            self.address = line
            announce(line)

    def comes_up(self) -> bool:
        """Wait until the page can be seen; return False if the child ended before."""
        self._reader.join()
        return self._is_up()

    def _is_up(self) -> bool:
        return bool(self.address) and self._child.poll() is None

    def wait(self) -> None:
        """Wait until the child ends."""
        self._child.wait()

    def close(self, *, at_once: bool) -> None:
        """End the child; unless it is to end at once, it may still show the last rounds."""
        assert self._child.stdin is not None
        assert self._child.stdout is not None
        with suppress(OSError):
            self._child.stdin.close()  # it ends when it reads the end of its input
        if at_once or not self._is_up():
            self._child.terminate()
        try:
            self._child.wait(LINGER)
        except subprocess.TimeoutExpired:
            self._child.kill()
            self._child.wait()
        self._reader.join(LINGER)
        self._child.stdout.close()


@contextmanager
def beside(folder: Path, port: int | None, open_browser: bool, announce: Callable[[str], object]) -> Iterator[View]:
    """Serve the live view of a folder while the body runs; failures of the viewer never stop it.

    port: refused at once if it is in use; None takes a free one. announce: called with the address of the page.
    """
    require("--live", "live")
    if port is not None:
        Where(port).bind().close()
    view = View(folder, port, open_browser, announce)
    finished = False
    try:
        yield view
        finished = True
    finally:
        view.close(at_once=not finished)
