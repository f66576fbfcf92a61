"""Which UEs are here, as a file that whoever looks at the folder of a deployment can read."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import groupby

PRESENCE = "presence.json"
MOST_NAMED = 20  # UEs, or ranges of them, in a line


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

    @property
    def words(self) -> str:
        """What a reader should know: that nobody can be reached, or who is away; "" if all are here."""
        if not self.connected:
            return "the broker is lost"
        return f"offline: {say_ues(self.away)}" if self.away else ""


def say_ues(ues: Iterable[int]) -> str:
    """Return UEs as text, with ranges.

    >>> say_ues({4, 0, 1, 2, 9})
    '0-2, 4, 9'
    """
    numbers = sorted(ues)
    runs = [list(run) for _, run in groupby(numbers, lambda ue: ue - numbers.index(ue))]
    texts = [str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs]
    return ", ".join(texts[:MOST_NAMED]) + (", ..." if len(texts) > MOST_NAMED else "")
