"""Which tokens training selects: pairs of runs that differ in their optimizer only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations_with_replacement
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from attnsvm.record import read_solutions

from .. import statistics, style
from ..cells import CellAxes
from ..facets import matrix
from . import Drawing
from ._pages import Pages, Tables

if TYPE_CHECKING:
    from ..aggregate import SweepFrames

NEEDED = ("X", "Z", "mask", "seeds", "selected", "scores", "snapshots")
"""Arrays of a run, with keep_path, that a comparison needs."""

SETTLED = ("ok", "infeasible", "undecided")
"""Statuses of the instances whose selected tokens are final, whatever their SVM is."""

START = ("optimizer.init", "optimizer.init_scale")
"""Fields of the group `optimizer` that define the start."""

MEASURES = {"equal": "equal selections", "both_optimal": "both optimal"}
"""What is counted of a pair -> heading of its panel."""

Tokens = dict[int, tuple[np.ndarray, ...] | None]
"""Seed -> X, Z, W at the start, selected and optimal tokens of an instance; None without a path on
record, or where the selection is not final."""

ROOM = 12
"""Largest number of optimizers in a figure."""

NOTE = (
    "Percent of the instances on which both optimizers select the same tokens (left), or both the "
    "optimal ones (right), in all samples, with its 95 % Wilson interval. Below it: percent of "
    "the samples, mean over instances. Both runs hold the same instances and start from the same "
    "W: checked, bit for bit. On the diagonal of the right map: the optimizer alone."
)
CAPTION = (
    "Selected tokens for each pair of optimizers, from the same start: share of equal selections, "
    "and of instances on which both are optimal."
)


def of_pairs(frames: SweepFrames) -> pd.DataFrame:
    """Return how often two optimizers select the same tokens, and both the optimal ones.

    Runs are paired if they agree in all axes but those of the optimizer, START not among these. An
    instance counts if both runs hold the same X and Z to the last bit, began at the same W,
    and selected final tokens; all others are counted as excluded.

    Returns
    -------
    pandas.DataFrame
        A row for each pair, measure and unit: the axes of the first run, `second`, the label of
        the other one, and

        - unit `instance`: share of the instances with all samples in it, with Wilson's interval;
        - unit `sample`: share of the samples, mean over instances, with its bootstrap interval.

        A run is paired with itself too: the measure `both_optimal` is then its own share.
    """
    axes = frames.axes
    of_optimizer = _of_optimizer(axes)
    rows = [
        row
        for _, trials in _groups(frames.trials, axes.besides(*of_optimizer))
        for one, other in combinations_with_replacement(_cells(frames, trials), 2)
        for row in _pair(one, other, axes, of_optimizer)
    ]
    keys = [*axes.names, "second", "measure"]
    pairs = pd.DataFrame(rows, columns=[*keys, "instance", "sample"])
    whole = statistics.shares(pairs, keys, "instance").assign(unit="instance")
    parts = statistics.summaries(pairs, keys, "sample").rename(columns={"mean": "share"})
    kept = [*keys, "unit", "used", "excluded", "share", "low", "high"]
    return pd.concat([whole, parts.assign(unit="sample")], ignore_index=True)[kept]


def label(axes: CellAxes, cell: Mapping[str, Any]) -> str:
    """Return the label of an optimizer, without the fields that it does not have."""
    known = {key: value for key, value in cell.items() if not pd.isna(value)}
    return axes.label(known).removeprefix("optimizer=")


def _of_optimizer(axes: CellAxes) -> list[str]:
    """Return the axes that tell optimizers apart."""
    typed = {name: axes.typed.get(name, name) for name in axes.names}
    return [
        name
        for name, field in typed.items()
        if field.partition(".")[0] == "optimizer" and field not in START
    ]


def _groups(runs: pd.DataFrame, keys: list[str]) -> list[tuple[Any, pd.DataFrame]]:
    if runs.empty or not keys:
        return [("", runs)] if len(runs) else []
    return list(runs.groupby(keys, dropna=False, sort=True))


def _cells(frames: SweepFrames, trials: pd.DataFrame) -> list[tuple[dict[str, Any], Tokens]]:
    """Return the axes of each cell, and the tokens of its instances."""
    names, cells = list(frames.axes.names), []
    for _, part in _groups(trials, names):
        found: Tokens = {}
        for run, rows in part.groupby("run", sort=False):
            found |= _tokens(frames, str(run), rows)
        cells.append(({name: part[name].iloc[0] for name in names}, found))
    return cells


def _tokens(frames: SweepFrames, run: str, trials: pd.DataFrame) -> Tokens:
    found: Tokens = dict.fromkeys(trials["seed"].tolist())
    arrays = read_solutions(frames.folders[run]) if run in frames.folders else {}
    if any(name not in arrays for name in NEEDED):
        return found
    final = set(trials.loc[trials["status"].isin(SETTLED), "seed"])
    optimal = np.where(arrays["mask"], arrays["scores"], -np.inf).argmax(-1)
    for k, seed in enumerate(arrays["seeds"].tolist()):
        if seed in final:
            given = arrays["X"][k], arrays["Z"][k], arrays["snapshots"][k, 0]
            found[seed] = *given, arrays["selected"][k], optimal[k]
    return found


def _pair(
    one: tuple[dict[str, Any], Tokens],
    other: tuple[dict[str, Any], Tokens],
    axes: CellAxes,
    of_optimizer: list[str],
) -> list[dict[str, Any]]:
    """Return a row for each instance of either run and each measure; NaN where it is excluded."""
    (cell, first), (cell_of_other, second) = one, other
    cell = cell | {"second": label(axes, {name: cell_of_other[name] for name in of_optimizer})}
    rows = []
    for seed in sorted({*first, *second}):
        share = dict.fromkeys(MEASURES, np.nan)
        a, b = first.get(seed), second.get(seed)
        if a and b and all(map(np.array_equal, a[:3], b[:3])):
            share["equal"] = np.mean(a[3] == b[3])
            share["both_optimal"] = np.mean((a[3] == a[4]) & (b[3] == b[4]))
        for measure, value in share.items():
            whole = float(value == 1) if np.isfinite(value) else np.nan
            rows.append(cell | {"measure": measure, "instance": whole, "sample": value})
    return rows


def draw(
    name: str, cells: str | None, tables: Tables, axes: CellAxes, remarks: Sequence[str]
) -> list[Drawing]:
    """Return the maps of the table `name`: a figure for each cell besides the optimizers."""

    def figure(tables: Tables, axes: CellAxes) -> Figure:
        return _maps(tables[name], axes)

    def notes(tables: Tables, axes: CellAxes) -> list[str]:
        return [NOTE, _counted(tables[name])]

    x = _of_optimizer(axes)
    pages = Pages(name, CAPTION, figure, notes, counts="", x=x, cells=cells or name)
    return pages.draw(tables, axes, remarks)


def _maps(table: pd.DataFrame, axes: CellAxes) -> Figure:
    of_optimizer = _of_optimizer(axes)
    cells = table[of_optimizer].astype(object).itertuples(index=False)
    firsts = [label(axes, dict(zip(of_optimizer, cell, strict=True))) for cell in cells]
    table = table.assign(first=firsts)
    names = list(dict.fromkeys(table["second"])) if table["used"].any() else []
    size = min(max(len(names), 2), ROOM)
    fig = style.figure(1.7 * size + 3.2, 0.42 * size + 1.6)
    grid = fig.subplots(1, 2, sharey=True)
    for ax, (measure, heading) in zip(grid, MEASURES.items(), strict=True):
        style.heading(ax, heading)
        if 0 < len(names) <= ROOM:
            shares, texts = _shares(table[table["measure"] == measure], names)
            matrix(ax, shares, texts, vmin=0, vmax=1)
    if not 0 < len(names) <= ROOM:
        nothing = "no selections on record (keep_path=true)"
        style.empty(grid[0], f"{len(names)} optimizers: see the table" if names else nothing)
        grid[1].set_axis_off()
    return fig


def _counted(table: pd.DataFrame) -> str:
    """Return a sentence with the number of instances of a pair."""
    used = table["used"]
    if used.empty:
        return "Pairs: none."
    return (
        f"Instances of a pair: {used.min():.0f} to {used.max():.0f}; left out, because a "
        f"selection is not final or the start differs: at most {table['excluded'].max():.0f}."
    )


def _shares(table: pd.DataFrame, names: list[str]) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return shares and texts of one measure; symmetric, the table has the upper half."""
    rows = [f"{1 + i}: {style.wrapped(name, 34)}" for i, name in enumerate(names)]
    columns = [str(1 + i) for i in range(len(names))]
    shares = pd.DataFrame(np.nan, rows, columns)
    texts = pd.DataFrame("", rows, columns)
    for (first, second), pair in table[table["used"] > 0].groupby(["first", "second"]):
        i, j = names.index(str(first)), names.index(str(second))
        whole, part = (pair.set_index("unit").loc[unit] for unit in ("instance", "sample"))
        share, low, high = (100 * whole[name] for name in ("share", "low", "high"))
        for place in {(i, j), (j, i)}:
            shares.iloc[place] = whole["share"]
            texts.iloc[place] = f"{share:.0f} [{low:.0f}, {high:.0f}]\n{100 * part['share']:.1f}"
    return shares, texts
