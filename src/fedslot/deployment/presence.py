"""Which UEs are here, as a file that whoever looks at the folder of a deployment can read."""

from __future__ import annotations

import json
from dataclasses import dataclass

PRESENCE = "presence.json"


@dataclass(frozen=True)
class Presence:
    """The UEs that are here. ues: number of all. connected: whether the PS can reach anybody at all."""

    ues: int = 0
    here: frozenset[int] = frozenset()
    connected: bool = False

    @property
    def away(self) -> list[int]:
        """The UEs that are not here."""
        return [ue for ue in range(self.ues) if ue not in self.here]

    def to_json(self) -> str:
        """Return the text of `presence.json`."""
        return json.dumps({"ues": self.ues, "here": sorted(self.here), "connected": self.connected}) + "\n"

    @classmethod
    def read(cls, text: str) -> Presence:
        """Return what `to_json` wrote; raise `ValueError` if it is none."""
        try:
            fields = json.loads(text)
            return cls(int(fields["ues"]), frozenset(map(int, fields["here"])), bool(fields["connected"]))
        except (TypeError, KeyError) as error:
            raise ValueError(f"no presence ({error})") from None
