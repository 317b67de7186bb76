"""From the records of a claim's runs to its verdict, and the verdicts that are kept on disk."""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

from attnsvm.record import read_json, write_json

from ..aggregate import read_sweep
from ..cells import word
from ..claims import FAILS, HOLDS, OTHERWISE, SIZES, Claim, Evidence
from ..loaded import LoadedSweep

KINDS = ("fails", "never met", "undecided", "holds")
"""The first that applies is the verdict: one counterexample outweighs everything else."""

NO_RECORD = "no record"
UNKNOWN = "hypotheses undecided"
NOT_KNOWN = (UNKNOWN, NO_RECORD)
"""Why it is open whether an instance meets the hypotheses."""

SIZE = {name: word(name) for name in (*SIZES, "seed")}
"""What makes an instance smaller than another, first of all the number of samples, in words."""

FILE = "verdicts.json"
COMMITTED = Path(__file__).with_name(FILE)
"""The verdicts that come with attnsvm."""


@dataclass(frozen=True)
class Verdict:
    """What the records say of a claim. Nothing is averaged: every instance is counted once.

    Of the `drawn` instances, `hypotheses` has for each hypothesis the number by yes, no, undecided.
    On `holds` and `fails` of those that meet all of them the prediction is decided; `undecided` has
    the number of the others, or of which that is open, by the reason. `smallest` is the smallest
    instance that fails: its size, seed and the command that makes its record.
    """

    drawn: int = 0
    hypotheses: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    holds: int = 0
    fails: int = 0
    undecided: Mapping[str, int] = field(default_factory=dict)
    smallest: Mapping[str, Any] | None = None

    @property
    def kind(self) -> str:
        """The verdict in a word, one of `KINDS`."""
        if self.fails:
            return "fails"
        if not self.met and not self.undecided:
            return "never met"
        return "undecided" if self.undecided else "holds"

    @property
    def met(self) -> int:
        """Number of instances that meet the hypotheses."""
        unknown = sum(self.undecided.get(why, 0) for why in NOT_KNOWN)
        return self.holds + self.fails + sum(self.undecided.values()) - unknown

    @property
    def sentence(self) -> str:
        """The verdict with its counts."""
        if self.kind == "never met":
            return f"hypotheses never met among {self.drawn}"
        why = [f"{k} {reason}" for reason, k in self.undecided.items() if reason not in NOT_KNOWN]
        word, count = ("fails", self.fails) if self.fails else ("holds", self.holds)
        parts = [f"{word} on {count} of {self.met}"]
        if not self.met:
            parts = ["no instance is known to meet the hypotheses"]
        elif self.holds == self.met:
            parts = [f"holds on all {self.met} instances that meet the hypotheses"]
        if why:
            parts.append(f"undecided on {self.met - self.holds - self.fails} ({'; '.join(why)})")
        parts += [f"{reason} on {k}" for reason, k in self.undecided.items() if reason in NOT_KNOWN]
        return ", ".join(parts) if self.kind != "undecided" else f"undecided; {', '.join(parts)}"


def rulings(claim: Claim, frames: LoadedSweep) -> pd.DataFrame:
    """Return a row for every instance: its run, its size, its hypotheses and the `ruling`.

    The ruling is `holds`, `fails`, a reason why neither is decided, or "" where a hypothesis is not
    met.
    """
    evidence = Evidence(frames, claim.columns)
    rows = evidence.trials.reindex(columns=["run", *SIZE]).astype({"run": str})
    rows = rows.rename(columns=SIZE)
    met = evidence.truths(OTHERWISE)
    for name in claim.hypotheses:
        rows[name] = claim.met(name, evidence)
        met = met & rows[name]
    words = evidence.words(claim.prediction).where(met.fillna(True).astype(bool), "")
    rows["ruling"] = words.where(met.notna(), UNKNOWN)
    return rows


def verdict(claim: Claim, directory: Path) -> Verdict:
    """Return the verdict of a claim from the records of its runs in `directory`/NAME.

    A run without a record counts as many undecided instances as it was to have, a sweep without a
    folder as one.
    """
    parts, missing, failing = [], 0, []
    for runs in claim.runs:
        try:
            frames = read_sweep(directory / runs.name)
        except FileNotFoundError:
            missing += 1
            continue
        trials = frames.incomplete.get("trials", pd.Series(dtype=float))
        missing += int(pd.to_numeric(trials, errors="coerce").fillna(1).sum())
        if len(frames.rows):
            parts.append(rulings(claim, frames))
            failing += _smallest(parts[-1], frames)
    rows = pd.concat(parts, ignore_index=True) if parts else pd.DataFrame({"ruling": []})
    counts = rows["ruling"].value_counts().to_dict()
    holds, fails, unmet = (counts.pop(word, 0) for word in (HOLDS, FAILS, ""))
    if missing:
        counts[NO_RECORD] = missing
    assert holds + fails + unmet + sum(counts.values()) == len(rows) + missing
    return Verdict(
        drawn=len(rows) + missing,
        hypotheses={name: _tally(rows, name) for name in claim.hypotheses},
        holds=holds,
        fails=fails,
        undecided={str(reason): int(count) for reason, count in counts.items()},
        smallest=min(
            failing,
            key=lambda instance: [instance.get(name, 0) for name in SIZE.values()],
            default=None,
        ),
    )


def _tally(rows: pd.DataFrame, hypothesis: str) -> dict[str, int]:
    values = rows.get(hypothesis, pd.Series(dtype="boolean"))
    met, open_ = int(values.sum()), int(values.isna().sum())
    return {"yes": met, "no": len(values) - met - open_, "undecided": open_}


def _smallest(rows: pd.DataFrame, frames: LoadedSweep) -> list[dict[str, Any]]:
    """Return the smallest instance that fails, and the command of its record; [] if none does."""
    failing = rows[rows["ruling"] == FAILS]
    if failing.empty:
        return []
    first = failing.sort_values([*SIZE.values()], kind="stable").iloc[0]
    words = shlex.split(frames.runs.set_index("run").loc[first["run"], "overrides"])
    others = ("seed", "trials", "selection.until_accepted")
    kept = [word for word in words if word.partition("=")[0] not in others]
    command = shlex.join(["attnsvm", *kept, f"seed={first['seed']}", "trials=1"])
    size = {name: int(first[name]) for name in SIZE.values() if pd.notna(first[name])}
    return [{**size, "command": command}]


def summary(verdicts: Sequence[Verdict]) -> str:
    """Return how many verdicts there are of each kind."""
    counts = {kind: sum(verdict.kind == kind for verdict in verdicts) for kind in KINDS}
    return ", ".join(f"{count} {kind}" for kind, count in counts.items() if count)


# --- on disk --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Entry:
    """A verdict, when it was derived (UTC), and of which claim (`Claim.digest`)."""

    verdict: Verdict
    at: str
    digest: str


def read(path: Path) -> dict[str, Entry]:
    """Return the verdicts of a file by the name of the claim; none if there is no file.

    CorruptRecordError: it is not as it was written.
    """
    content = read_json(path)["claims"] if path.exists() else {}
    return {
        name: Entry(Verdict(**entry["verdict"]), entry["at"], entry["digest"])
        for name, entry in content.items()
    }


def write(path: Path, entries: Mapping[str, Entry]) -> None:
    """Write verdicts; those of other claims in the file stay."""
    kept = read(path) | dict(entries)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_json(path, {"claims": {name: asdict(entry) for name, entry in kept.items()}})


def latest(directory: Path) -> dict[str, Entry]:
    """Return for each claim the later of the committed verdict and that in `directory`."""
    entries = [*read(COMMITTED).items(), *read(directory / FILE).items()]
    return dict(sorted(entries, key=lambda pair: pair[1].at))
