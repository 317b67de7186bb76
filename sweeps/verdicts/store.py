"""Verdicts on disk: those that come with attnsvm, and those of the runs of this folder."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

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
    return {name: _entry(one) for name, one in content["claims"].items()}


def _entry(one: Mapping[str, Any]) -> Entry:
    return Entry(Verdict(**one["verdict"]), one["at"], one["digest"])


def write(path: Path, entries: Mapping[str, Entry]) -> None:
    """Write verdicts; those of other claims in the file stay."""
    kept = read(path) | dict(entries)
    path.parent.mkdir(parents=True, exist_ok=True)
    plain = {
        name: {"verdict": one.verdict.plain(), "at": one.at, "digest": one.digest}
        for name, one in kept.items()
    }
    write_json(path, {"claims": plain})


def latest(directory: Path) -> dict[str, Entry]:
    """Return for each claim the later of the committed verdict and that in `directory`."""
    found = read(COMMITTED)
    for name, one in read(directory / FILE).items():
        if name not in found or one.at > found[name].at:
            found[name] = one
    return found
