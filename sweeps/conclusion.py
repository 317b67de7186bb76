"""What a run or a sweep says in a few lines: its result, what it lost, and what would help.

The terminal shows these lines at the end of a run, of a sweep and of its report, and
`attnsvm-verify` after the proof: a row for each cell, with the columns of `conclusions.yaml`.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd
from omegaconf import OmegaConf

from attnsvm.record import one_line, shortened

from .cells import groups, number, rows_of, word
from .loaded import LoadedSweep
from .notation import HEADINGS, heading

WIDTH, ROWS = 100, 16
"""Largest width and number of rows of a table."""

FEW = 4
"""Largest number of values that are listed; of more there is a mean or a median."""

TYPES = ("global", "local", "not_local", "unsettled", "unknown")
"""Types of convergence that are shown as shares."""

SHOWN: Any = OmegaConf.to_container(OmegaConf.load(Path(__file__).with_name("conclusions.yaml")))


def conclusion(frames: LoadedSweep) -> list[str]:
    """Return the lines that say what came out of a sweep or a single run, and what would help."""
    from .search import search_of

    lines = [search.best] if (search := search_of(frames)) else _help(frames)
    return [*result(frames), *map(one_line, lines)]


def result(frames: LoadedSweep) -> list[str]:
    """Return the lines that say what came out of a sweep or a single run, safe to print."""
    statuses = frames.statuses
    listed = ", ".join(f"{count} {status}" for status, count in statuses.items())
    lines = [f"{sum(statuses.values())} instances: {listed}" if listed else "no instance known"]
    lines += _table(frames) if len(frames.rows) else []
    return [one_line(line) for line in lines]


def _table(frames: LoadedSweep) -> list[str]:
    """Return a table with a row for each cell, and above it what it shows.

    Where there are more cells than `ROWS`, the axes of numbers with the most values are fixed at
    their largest.
    """
    shown, trials = SHOWN["experiments"].get(frames.name, {}), frames.rows
    axes = [name for name in frames.axes if trials[name].nunique(False) > 1]
    by, fixed = [name for name in shown.get("rows", axes) if name in axes], dict[str, Any]()
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
    types = {name: trials["convergence"].eq(name) for name in TYPES if "convergence" in trials}
    trials = trials.assign(**{name: here for name, here in types.items() if here.any()})
    values = [
        name
        for name in shown.get("values", HEADINGS)
        if name in trials and trials[name].notna().any()
    ]
    rows = []
    for cell, part in groups(trials, by):
        known = [number(value, frames.cells.digits.get(name, 4)) for name, value in cell.items()]
        accepted = f"{(part['status'] == 'ok').sum()}/{len(part)}"
        rows.append([*known, accepted, *(_value(part, name) for name in values)])
    heads = [*map(word, by), "ok", *map(heading, values)]
    at = f" at {frames.cells.label(fixed)}" if fixed else ""
    over = ", ".join(word(name) for name in axes if name not in (*by, *fixed))
    title = f"Medians (of ranks the mean) over status ok{at}{over and f', all {over}'}:"
    more = [f"({len(rows) - ROWS} further rows are in the report)"] if len(rows) > ROWS else []
    return [title, *_aligned([heads, *rows[:ROWS]], len(by)), *more]


def _value(rows: pd.DataFrame, name: str) -> str:
    """Return the share of a flag, few whole numbers or their mean, the median of other numbers.

    They are of the instances with status ok; what is published counts the others too.
    """
    rows = rows if name.startswith("published_") else rows[rows["status"] == "ok"]
    known = rows[name].dropna()
    if known.empty:
        return "-"
    if pd.api.types.is_bool_dtype(known):
        return f"{100 * known.mean():.0f} %"
    if not pd.api.types.is_integer_dtype(known):
        return f"{float(known.median()):.3g}"
    return f"{known.mean():.3g}" if len(known) > FEW else ", ".join(map(str, known))


def _aligned(rows: Sequence[Sequence[str]], axes: int) -> list[str]:
    """Return rows of words as lines, as many columns as fit; the first are those of the axes."""
    shown = [[shortened(text, 22) for text in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*shown, strict=True)]
    while len(widths) > axes + 1 and sum(widths) + 2 * (len(widths) - 1) > WIDTH:
        widths.pop()
    sides = "<" * axes + ">" * (len(widths) - axes)
    return [
        "  ".join(f"{text:{side}{n}}" for text, side, n in zip(row, sides, widths, strict=False))
        for row in shown
    ]


# --- what would help ------------------------------------------------------------------------------


def _help(frames: LoadedSweep) -> list[str]:
    """Return a line on the most frequent status of a run and what changes it, or none."""
    trials, known = frames.rows, SHOWN["help"]
    if trials.empty:
        return []
    usual = trials.groupby("run", observed=True)["status"].agg(lambda column: column.mode()[0])
    status = next((name for name in frames.statuses if name in {*usual} & {*known}), None)
    if status is None:
        return []
    lost = trials[trials["status"] == status]
    reason = "".join(lost["reason"].mode()[:1])
    verb, *words = known.get(reason, known[status])
    changes = []
    for change in words:  # of the fields that the runs have, other values
        name, _, value = change.partition("=")
        values = frames.runs[name].dropna() if name in frames.fields else pd.Series(dtype=object)
        if values.astype(str).str.lower().ne(value).any():
            changes.append(change)
    way = f"{verb} {' or '.join(changes)}" if changes else reason
    return [f"{len(lost)} of {sum(frames.statuses.values())} {status}: {way}"] if way else []
