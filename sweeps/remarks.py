"""What the tables of a sweep leave out, in words, for figures, pages and the terminal."""

from __future__ import annotations

import pandas as pd

from .aggregate import SweepFrames


def not_shown(frames: SweepFrames) -> str:
    """Return which runs and instances are missing in the figures, as a note; empty if none."""
    states = frames.incomplete["state"].value_counts()
    listed = ", ".join(f"{n} {state}" for state, n in states.items())
    lines = [f"Not shown, no record: {listed} of {len(frames.runs)} runs."] if listed else []
    if frames.elsewhere:
        lines.append(f"Not shown: {frames.elsewhere} records of other grids in the same folder.")
    if len(short := _short_of_accepted(frames)):
        wanted, found = short["wanted"].sum(), short["accepted"].sum()
        lines.append(f"{len(short)} runs stopped: {found} accepted of {wanted} wanted instances.")
    return " ".join(lines)


def _short_of_accepted(frames: SweepFrames) -> pd.DataFrame:
    done = frames.runs[frames.runs["state"] == "done"]
    if not {"until_accepted", "accepted"} <= set(done):  # no run.json could be read
        return done.iloc[:0]
    return done[done["until_accepted"].eq(True) & (done["accepted"] < done["wanted"])]


def repeated(frames: SweepFrames) -> str:
    """Return how many rows hold an instance again, as a note; empty if none does."""
    if not frames.repeated:
        return ""
    words = f"{frames.repeated} duplicate rows left out: the same instance in another run."
    if frames.disagreeing:
        words += f" {frames.disagreeing} of them hold other results than the row that is kept."
    return words
