"""The report of a sweep besides its figures: counts, runs, provenance, commands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from attnsvm.record import duration
from sweeps.aggregate import SweepFrames
from sweeps.cells import CELL_KEYS, varying
from sweeps.report.render import Picture, Table, render, table
from sweeps.statistics import counts

ROWS_ON_PAGE = 400

QUESTION = "In each cell of the sweep: how did training end, and which SVM does W agree with?"
"""The question of an ad-hoc sweep."""

RUN_COLUMNS = ("run", "state", "wall_s", "wanted", "accepted", "drawn")
NORM_COLUMNS = ("frobenius_status", "nuclear_status")


def report_page(
    frames: SweepFrames, pictures: Sequence[Picture], tables: Mapping[str, pd.DataFrame]
) -> str:
    """Return the HTML page of a sweep."""
    return render(
        "report.html",
        title=frames.name or frames.directory.resolve().name,
        question=frames.question or ("" if frames.name else QUESTION),
        facts=_facts(frames),
        not_shown=not_shown(frames),
        instances=len(frames.trials),
        pictures=pictures,
        tables=[(name, len(rows), table(rows, ROWS_ON_PAGE)) for name, rows in tables.items()],
        rows_on_page=ROWS_ON_PAGE,
        by_status=_counts(frames, ("status", "reason")),
        by_norm=_counts(frames, NORM_COLUMNS),
        incomplete=table(frames.incomplete[["run", "state", "reason"]]),
        run_count=len(frames.runs),
        runs=table(_described(frames.runs), ROWS_ON_PAGE),
        provenance=table(_provenance(frames.runs)),
        sweep=frames.name,
        directory=frames.directory,
    )


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
    if "until_accepted" not in done:
        return done.iloc[:0]
    return done[done["until_accepted"].eq(True) & (done["accepted"] < done["wanted"])]


def _facts(frames: SweepFrames) -> list[tuple[object, str]]:
    """Return the counts at the top of the page: each a number and what it counts."""
    done = len(frames.runs) - len(frames.incomplete)
    statuses = frames.statuses
    wall_s = float(frames.runs["wall_s"].sum()) if "wall_s" in frames.runs else float("nan")
    return [
        (f"{done} of {len(frames.runs)}", "runs done"),
        (len(frames.trials), "instances"),
        *((statuses.get(s, 0), s) for s in ("ok", "infeasible", "undecided", "failed")),
        (duration(wall_s), "of computing time"),
    ]


def _counts(frames: SweepFrames, columns: Sequence[str]) -> Table:
    """Return the number of instances by those of the columns that the records have."""
    present = [column for column in columns if column in frames.trials]
    return table(counts(frames.trials, present) if present else pd.DataFrame(), ROWS_ON_PAGE)


def _described(runs: pd.DataFrame) -> pd.DataFrame:
    """Return the columns of `runs` that a reader needs, and the cell keys that vary."""
    first = [column for column in RUN_COLUMNS if column in runs]
    return runs[[*first, *varying(runs)]]


def _provenance(runs: pd.DataFrame) -> pd.DataFrame:
    """Return the values of all other columns of `runs`: the cell keys last."""
    elsewhere = {*RUN_COLUMNS, "reason", *varying(runs)}
    rows: list[dict[str, Any]] = []
    for name in sorted(set(runs) - elsewhere, key=lambda name: (name in CELL_KEYS, name)):
        values = runs[name].dropna().astype(str)
        distinct = values[values != ""].unique()
        if len(distinct):
            shown = "; ".join(distinct[:5]) + ("; ..." if len(distinct) > 5 else "")
            rows.append({"field": name, "value": shown, "runs": int((values != "").sum())})
    return pd.DataFrame(rows, columns=["field", "value", "runs"])
