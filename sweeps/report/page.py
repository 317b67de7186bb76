"""The report of a sweep besides its figures: counts, runs, provenance, commands."""

import shlex
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from attnsvm.record import duration

from ..aggregate import SweepFrames
from ..cells import SEED, CellAxes
from ..statistics import counts
from .render import Picture, render

ROWS_ON_PAGE = 400

QUESTION = "In each cell of the sweep: how did training end, and which SVM does W agree with?"
"""The question of an ad-hoc sweep."""

USUAL = ("ok", "infeasible", "undecided", "failed")
"""Statuses that are told even if no instance has them."""

RUN_COLUMNS = ("run", "state", "wall_s", "wanted", "accepted", "drawn")
NORM_COLUMNS = ("frobenius_status", "nuclear_status")


def report_page(
    frames: SweepFrames,
    pictures: Sequence[Picture],
    tables: Mapping[str, pd.DataFrame],
    failed: Sequence[str] = (),
) -> str:
    """Return the HTML page of a sweep; `failed` says which figures could not be drawn, and why."""
    return render(
        "report.html",
        title=frames.name or frames.directory.resolve().name,
        question=frames.question or ("" if frames.name else QUESTION),
        facts=_facts(frames),
        not_shown=frames.not_shown,
        failed=failed,
        repeated=frames.left_out,
        instances=len(frames.trials),
        pictures=pictures,
        tables=tables,
        rows_on_page=ROWS_ON_PAGE,
        by_status=_counts(frames, ("status", "reason")),
        by_norm=_counts(frames, NORM_COLUMNS),
        incomplete=frames.incomplete[["run", "state", "reason"]],
        run_count=len(frames.runs),
        runs=_described(frames.runs, frames.axes),
        provenance=_provenance(frames.runs, frames.axes),
        command=frames.command,
        directory=shlex.quote(str(frames.directory)),
    )


def _facts(frames: SweepFrames) -> list[tuple[object, str]]:
    """Return the counts at the top of the page; those of the statuses sum to all instances."""
    done = len(frames.runs) - len(frames.incomplete)
    statuses = dict.fromkeys(USUAL, 0) | frames.statuses
    wall_s = float(frames.runs["wall_s"].sum()) if "wall_s" in frames.runs else float("nan")
    return [
        (f"{done} of {len(frames.runs)}", "runs done"),
        (sum(statuses.values()), "instances"),
        *((count, status) for status, count in statuses.items()),
        *([(frames.repeated, "duplicate rows left out")] if frames.repeated else []),
        (duration(wall_s), "of computing time"),
    ]


def _counts(frames: SweepFrames, columns: Sequence[str]) -> pd.DataFrame:
    """Return the number of instances by those of the columns that the records have."""
    present = [column for column in columns if column in frames.trials]
    return counts(frames.trials, present) if present else pd.DataFrame()


def _described(runs: pd.DataFrame, axes: CellAxes) -> pd.DataFrame:
    """Return the columns of `runs` that a reader needs, the axes, and seeds that differ."""
    first = [column for column in RUN_COLUMNS if column in runs]
    seed = [SEED] if runs[SEED].nunique() > 1 else []
    return runs[[*first, *axes.of_runs, *seed]]


def _provenance(runs: pd.DataFrame, axes: CellAxes) -> pd.DataFrame:
    """Return the values of all other columns of `runs`: the fields of the config last."""
    elsewhere = {*RUN_COLUMNS, "reason", *axes.names}
    rows: list[dict[str, Any]] = []
    for name in (name for name in runs if name not in elsewhere):
        values = runs[name].dropna().astype(str)
        distinct = values[values != ""].unique()
        if len(distinct):
            shown = "; ".join(distinct[:5]) + ("; ..." if len(distinct) > 5 else "")
            rows.append({"field": name, "value": shown, "runs": int((values != "").sum())})
    return pd.DataFrame(rows, columns=["field", "value", "runs"])
