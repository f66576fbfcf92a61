"""Who is here: devices and the UEs that they claim, by their status messages."""

from __future__ import annotations

import threading
from logging import getLogger

from fedslot.deployment.mqtt import messages
from fedslot.deployment.screening import Refusal

MOST_NODES = 8  # devices that may claim the same UE at once
logger = getLogger(__name__)


class Attendance:
    """Which devices are here and which UE each stands for, by their status messages."""

    def __init__(self, ues: int) -> None:
        self.ues = ues
        self._lock = threading.Lock()
        self._nodes: dict[str, int] = {}
        self._refused: set[tuple[str, str]] = set()

    def note(self, name: str, message: bytes) -> None:
        """Take a status message. name: whose topic it came on."""
        ue = messages.ue_of(name, self.ues)
        if ue is None:
            return
        try:
            status = messages.read_status(message)
            status.check(name, "PS")
        except Refusal as refusal:
            if (name, refusal.reason) not in self._refused:  # once, so that nobody can fill the log
                self._refused.add((name, refusal.reason))
                logger.warning("%s is not counted as here: its status is refused (%s)", name, refusal)
            return
        node = status.node
        with self._lock:
            if status.state == messages.ONLINE:
                if sum(other == ue for other in self._nodes.values()) < MOST_NODES:
                    self._nodes.setdefault(node, ue)
            elif self._nodes.get(node) == ue:
                del self._nodes[node]

    def clear(self) -> None:
        """Forget all, because the connection was lost; those that are here say so again."""
        with self._lock:
            self._nodes = {}

    @property
    def claims(self) -> list[tuple[str, int]]:
        """The devices that are here with the UEs that they claim."""
        with self._lock:
            return list(self._nodes.items())
