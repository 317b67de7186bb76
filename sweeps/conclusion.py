"""What a run or a sweep says in a few lines: its result, what it lost, and what would help.

The terminal shows these lines at the end of a run, of a sweep and of its report, and
`attnsvm-verify` after the proof. `conclusions.yaml` has what an experiment shows; any other sweep
shows the columns of `VALUES`, a row for each of its cells; a single run has one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pandas as pd
from omegaconf import OmegaConf

from attnsvm.record import one_line

from .aggregate import SweepFrames
from .cells import number, rows_of

WIDTH, ROWS = 100, 16
"""Largest width and number of rows of a table."""

FEW = 4
"""Largest number of values that are listed; of more there is a mean or a median."""

TYPES = ("global", "local", "not_local")
LABELS = {
    **{name: name for name in TYPES},
    "one_minus_corr_frobenius": "1-corr W_mm",
    "one_minus_corr_nuclear": "1-corr W_star_mm",
    "one_minus_corr_svmeq": "1-corr W_svmeq",
    "one_minus_corr_1token": "1-corr W_1token",
    "nuclear_rank": "rank W_star_mm",
    "frobenius_rank": "rank W_mm",
    "published_frobenius_rank": "published W_mm",
    "published_nuclear_rank": "published W_star_mm",
}
"""Heading of a column; that of another one is its name."""

VALUES = tuple(LABELS)
"""What is shown of a run or a sweep that is no experiment, of the columns that have values."""

HELP = {
    "unsaturated": ("raise", ("optimizer.steps", "optimizer.lr")),
    "infeasible": ("raise", ("data.d",)),
    "diverged": ("lower", ("optimizer.lr",)),
    "undecided": ("raise", ("svm.gap",)),
    "stalled": ("set", ("optimizer.gradient=log_domain", "selection.keep_stalled=true")),
    "rejected": ("set", ("selection.until_accepted=true",)),
}
"""Status -> what helps if most instances have it; of the fields, those that the runs have."""


def conclusion(frames: SweepFrames) -> list[str]:
    """Return the lines that say what came out of a sweep or a single run, and what would help."""
    return [*result(frames), *(one_line(line) for line in _help(frames))]


def result(frames: SweepFrames) -> list[str]:
    """Return the lines that say what came out of a sweep or a single run, safe to print."""
    statuses = frames.statuses
    listed = ", ".join(f"{count} {status}" for status, count in statuses.items())
    lines = [f"{sum(statuses.values())} instances: {listed}" if listed else "no instance known"]
    lines += _table(frames) if len(frames.trials) else []
    return [one_line(line) for line in lines]


@cache
def _shown() -> Mapping[str, Mapping[str, Any]]:
    """Return what each experiment shows: `values`, and perhaps `rows` and `where`."""
    found: Any = OmegaConf.load(Path(__file__).with_name("conclusions.yaml"))
    return OmegaConf.to_container(found)  # type: ignore[return-value]


def _table(frames: SweepFrames) -> list[str]:
    """Return a table with a row for each cell, and above it what it shows.

    Where there are more cells than `ROWS`, the axes of numbers with the most values are fixed at
    their largest.
    """
    shown, trials = _shown().get(frames.name, {}), frames.trials
    names = shown.get("rows", frames.axes.names)
    by, fixed = [name for name in names if name in frames.axes.names], dict[str, Any]()
    for name, value in shown.get("where", {}).items():
        if name in by and len(part := rows_of(trials, {name: value})):
            trials, fixed[name] = part, value
            by.remove(name)
    while len(trials[by].drop_duplicates()) > ROWS:
        sizes = trials[by].select_dtypes("number").nunique()
        if sizes.empty:
            break
        name = str(sizes.idxmax())
        fixed[name] = trials[name].max()
        trials = rows_of(trials, {name: fixed[name]})
        by.remove(name)
    values = [name for name in shown.get("values", VALUES) if _has_values(trials, name)]
    groups = trials.groupby(by, dropna=False, sort=True) if by else [((), trials)]
    rows = [_row(frames, dict(zip(by, cell, strict=True)), part, values) for cell, part in groups]
    heads = [*by, "ok", *map(_label, values)]
    at = f" at {frames.axes.label(fixed)}" if fixed else ""
    over = ", ".join(name for name in frames.axes.names if name not in (*by, *fixed))
    title = f"Medians (of ranks the mean) over status ok{at}{over and f', all {over}'}:"
    more = [f"({len(rows) - ROWS} further rows are in the report)"] if len(rows) > ROWS else []
    return [title, *_aligned([heads, *rows[:ROWS]], len(by)), *more]


def _label(name: str) -> str:
    return LABELS.get(name) or name.replace("one_minus_corr_", "1-corr ").replace(
        "_margin_gap", " margin gap"
    )


def _has_values(trials: pd.DataFrame, name: str) -> bool:
    if name in TYPES:
        return "convergence" in trials and bool(trials["convergence"].eq(name).any())
    return name in trials and bool(trials[name].notna().any())


def _row(
    frames: SweepFrames, cell: Mapping[str, Any], part: pd.DataFrame, values: Sequence[str]
) -> list[str]:
    axes = [number(value, frames.axes.digits.get(name, 4)) for name, value in cell.items()]
    accepted = f"{(part['status'] == 'ok').sum()}/{len(part)}"
    return [*axes, accepted, *(_value(part, name) for name in values)]


def _value(rows: pd.DataFrame, name: str) -> str:
    """Return the share of a flag, few whole numbers or their mean, the median of other numbers.

    They are of the instances with status ok; what is published counts the others too.
    """
    rows = rows if name.startswith("published_") else rows[rows["status"] == "ok"]
    known = rows["convergence"].eq(name) if name in TYPES else rows[name].dropna()
    if known.empty:
        return "-"
    if pd.api.types.is_bool_dtype(known):
        return f"{100 * known.mean():.0f} %"
    if not pd.api.types.is_integer_dtype(known):
        return f"{float(known.median()):.3g}"
    return f"{known.mean():.3g}" if len(known) > FEW else ", ".join(map(str, known))


def _aligned(rows: Sequence[Sequence[str]], axes: int) -> list[str]:
    """Return rows of words as lines, as many columns as fit; the first are those of the axes."""
    shown = [[one_line(word) for word in row] for row in rows]
    shown = [[f"{word[:19]}..." if len(word) > 22 else word for word in row] for row in shown]
    widths = [max(map(len, column)) for column in zip(*shown, strict=True)]
    while len(widths) > axes + 1 and sum(widths) + 2 * (len(widths) - 1) > WIDTH:
        widths.pop()
    sides = "<" * axes + ">" * (len(widths) - axes)
    return [
        "  ".join(
            f"{word:{side}{width}}" for word, side, width in zip(row, sides, widths, strict=False)
        )
        for row in shown
    ]


# --- what would help ------------------------------------------------------------------------------


def _help(frames: SweepFrames) -> list[str]:
    """Return one line on the status of most instances and the fields that change it, or none."""
    statuses = frames.statuses
    status, total = next(iter(statuses), "ok"), sum(statuses.values())
    if status not in HELP or 2 * statuses[status] <= total:
        return []
    verb, words = HELP[status]
    values = {field: set(frames.runs[name].dropna().astype(str).str.lower())
              for name, field in frames.typed.items()}  # fmt: skip
    split = (word.partition("=") for word in words)
    changes = [
        f"{field}{is_}{new}" for field, is_, new in split if values.get(field, set()) - {new}
    ]
    ways = [f"{verb} {' or '.join(changes)}"] if changes else []
    lost = frames.trials[frames.trials["status"] == status] if len(frames.trials) else frames.trials
    drawn = [name for name in VALUES[len(TYPES) :] if _has_values(lost, name)]
    if frames.axes.names and drawn:
        x = frames.axes.names[-1]
        chart = f"--x {frames.axes.typed.get(x, x)} --y {drawn[0]} --status {status}"
        ways.append(f"draw them: attnsvm-report {frames.directory} {chart}")
    return [f"{statuses[status]} of {total} {status}: {', or '.join(ways)}"] if ways else []
