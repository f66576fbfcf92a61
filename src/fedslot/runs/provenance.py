"""What determines a run beside its scenario: the user's own files and the sources of the user's own parts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from fedslot.data.sources import digest
from fedslot.fleet import availability_file, computing, rates_file
from fedslot.scenario import PartSection, Scenario
from fedslot.support.errors import RefusedError

NO_SOURCE = "no source"
FORMAT = {"format": "5"}  # of checkpoints and rows; a run is continued by a version that writes the same

Fingerprints = Mapping[str, str]
"""Hashes of data and sources by name; runs with equal scenarios and fingerprints have equal results."""


def fingerprints(scenario: Scenario) -> Fingerprints:
    """Return the fingerprints of a run of the simulator."""
    own = {
        "data.dataset": digest(scenario.data.dataset),
        "radio.rates.options.path": rates_file.digest(scenario.radio.rates),
        "fleet.computing.times": computing.digest(scenario.fleet.computing),
        "fleet.availability.options.path": availability_file.digest(scenario.fleet.availability),
    }
    return {
        "made by": "simulation",
        **FORMAT,
        **{field: hashed for field, hashed in own.items() if hashed is not None},
        **part_fingerprints(scenario.parts),
    }


def part_fingerprints(parts: Iterable[PartSection]) -> Fingerprints:
    """Return the fingerprints of parts of the user's own and of installed packages; built-in ones have none."""
    digests = {part.name: part.kind.fingerprint(part.name) for part in parts}
    return {name: digest or NO_SOURCE for name, digest in digests.items() if digest is not None}


def refuse_change(where: object, held: Fingerprints, now: Fingerprints) -> None:
    """Refuse to continue a run in the folder `where` whose data or own parts have changed since it began."""
    if held.get("format") != now["format"]:
        raise RefusedError(f"{where} was begun by another version of fedslot; finish it with that, or use --force")
    for name in {**held, **now}:
        if NO_SOURCE in (held.get(name), now.get(name)):
            why = f"the source of {name} cannot be read, so that a change would not be noticed; put it into a module"
            raise RefusedError(f"{where} cannot be continued: {why} and start over with --force")
        if held.get(name) != now.get(name):
            what = f"it was made by a {held.get(name)}" if name == "made by" else f"{name} has changed since it began"
            raise RefusedError(f"{where} cannot be continued: {what}; undo that, or start over with --force")
