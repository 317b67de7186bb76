"""Verdicts on disk: those that come with attnsvm, and those of the runs of this folder."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from attnsvm.record import read_json, write_json

from ..claims import Claim
from .derive import Verdict

FILE = "verdicts.json"
COMMITTED = Path(__file__).with_name(FILE)
"""The verdicts that come with attnsvm."""


@dataclass(frozen=True)
class Entry:
    """A verdict, when it was derived (UTC), and of which claim (`Claim.digest`)."""

    verdict: Verdict
    at: str
    digest: str

    def is_of(self, claim: Claim) -> bool:
        """Return whether the claim is still the one that was tested."""
        return self.digest == claim.digest


def read(path: Path) -> dict[str, Entry]:
    """Return the verdicts of a file by the name of the claim; none if there is no file.

    Raises
    ------
    CorruptRecordError
        If it is not as it was written.
    """
    try:
        content = read_json(path)
    except FileNotFoundError:
        return {}
    return {
        name: Entry(Verdict(**one["verdict"]), one["at"], one["digest"])
        for name, one in content["claims"].items()
    }


def write(path: Path, entries: Mapping[str, Entry]) -> None:
    """Write verdicts; those of other claims in the file stay."""
    kept = read(path) | dict(entries)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_json(path, {"claims": {name: asdict(one) for name, one in kept.items()}})


def latest(directory: Path) -> dict[str, Entry]:
    """Return for each claim the later of the committed verdict and that in `directory`."""
    committed, found = read(COMMITTED), read(directory / FILE)
    later = {name: one for name, one in found.items()
             if name not in committed or one.at > committed[name].at}  # fmt: skip
    return committed | later
