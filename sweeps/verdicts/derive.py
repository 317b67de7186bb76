"""From the records of a claim's runs to its verdict: counts, and the smallest counterexample."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

from ..aggregate import SweepFrames, load
from ..claims import FAILS, HOLDS, OTHERWISE, Claim, Evidence

KINDS = ("fails", "never met", "undecided", "holds")
"""The first that applies is the verdict: one counterexample outweighs everything else."""

NO_RECORD = "no record"
UNKNOWN = "hypotheses undecided"
NOT_KNOWN = (UNKNOWN, NO_RECORD)
"""Why it is open whether an instance meets the hypotheses."""

SIZE = ("n", "T", "d", "seed")
"""What makes an instance smaller than another, first of all the number of samples."""


@dataclass(frozen=True)
class Verdict:
    """What the records say of a claim. Nothing is averaged: every instance is counted once.

    Attributes
    ----------
    drawn : int
        Instances of the runs.
    hypotheses : mapping of str to mapping
        Hypothesis -> yes, no, undecided -> number of instances.
    holds, fails : int
        Instances that meet all hypotheses, and of which the prediction is decided.
    undecided : mapping of str to int
        Reason -> number of instances that meet all hypotheses, or of which that is open.
    smallest : mapping or None
        The smallest instance of which the prediction fails: its size, seed and the command that
        makes its record.
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
        known = (count for why, count in self.undecided.items() if why not in NOT_KNOWN)
        return self.holds + self.fails + sum(known)

    @property
    def sentence(self) -> str:
        """The verdict with its counts."""
        if self.kind == "never met":
            return f"hypotheses never met among {self.drawn}"
        why = [f"{k} {reason}" for reason, k in self.undecided.items() if reason not in NOT_KNOWN]
        late = self.met - self.holds - self.fails
        if not self.met:
            parts = ["no instance is known to meet the hypotheses"]
        elif self.fails:
            parts = [f"fails on {self.fails} of {self.met}"]
        elif why:
            parts = [f"holds on {self.holds} of {self.met}"]
        else:
            parts = [f"holds on all {self.met} instances that meet the hypotheses"]
        if why:
            parts.append(f"undecided on {late} ({'; '.join(why)})")
        parts += [f"{reason} on {k}" for reason, k in self.undecided.items() if reason in NOT_KNOWN]
        return ", ".join(parts) if self.kind != "undecided" else f"undecided; {', '.join(parts)}"


def rulings(claim: Claim, frames: SweepFrames) -> pd.DataFrame:
    """Return a row for every instance: its run, its size, its hypotheses and the `ruling`.

    The ruling is `holds`, `fails`, a reason why neither is decided, or "" where a hypothesis is not
    met.
    """
    evidence = Evidence(frames, claim.columns)
    rows = evidence.trials.reindex(columns=["run", *SIZE]).astype({"run": str})
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
            frames = load(directory / runs.name)
        except FileNotFoundError:
            missing += 1
            continue
        trials = frames.incomplete.get("trials", pd.Series(dtype=float))
        missing += int(pd.to_numeric(trials, errors="coerce").fillna(1).sum())
        if len(frames.trials):
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
        smallest=min(failing, key=lambda one: [one.get(name, 0) for name in SIZE], default=None),
    )


def _tally(rows: pd.DataFrame, hypothesis: str) -> dict[str, int]:
    values = rows.get(hypothesis, pd.Series(dtype="boolean"))
    counts = values.value_counts(dropna=False)
    return {
        "yes": int(counts.get(True, 0)),
        "no": int(counts.get(False, 0)),
        "undecided": int(values.isna().sum()),
    }


def _smallest(rows: pd.DataFrame, frames: SweepFrames) -> list[dict[str, Any]]:
    """Return the smallest instance that fails, and the command of its record; [] if none does."""
    failing = rows[rows["ruling"] == FAILS]
    if failing.empty:
        return []
    first = failing.sort_values(list(SIZE), kind="stable").iloc[0]
    words = shlex.split(frames.runs.set_index("run").loc[first["run"], "overrides"])
    others = ("seed", "trials", "selection.until_accepted")
    given = [word for word in words if word.partition("=")[0] not in others]
    command = shlex.join(["attnsvm", *given, f"seed={first['seed']}", "trials=1"])
    size = {name: int(first[name]) for name in SIZE if pd.notna(first[name])}
    return [{**size, "command": command}]


def summary(verdicts: Sequence[Verdict]) -> str:
    """Return how many verdicts there are of each kind."""
    counts = {kind: sum(one.kind == kind for one in verdicts) for kind in KINDS}
    return ", ".join(f"{count} {kind}" for kind, count in counts.items() if count)
