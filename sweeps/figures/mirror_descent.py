"""Mirror descent with l_p potentials against the l_p SVMs (arXiv 2410.14581)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from attnsvm.record import read_solutions

from .. import statistics, style
from ..bregman import directional_bregman_divergence
from ..cells import CellAxes, number, rows_of
from . import Drawing, _selections, history_of, outcomes, status_counts
from ._pages import Tables, drawings

if TYPE_CHECKING:
    from ..aggregate import SweepFrames

CERTIFIED = ("ok",)
STATISTIC: statistics.Statistic = "mean"
"""That of the published figures."""

POWER = re.compile(r"frobenius|l(\d+(\.\d+)?)")
"""Norms of a strictly convex potential: their SVM has one solution."""

FROM_HISTORY = {"one_minus_corr": "one_minus_corr_", "margin_gap": "margin_gap_"}
"""Quantity -> beginning of its name in the history, before the norm."""

PANELS = {
    "bregman": "Bregman divergence",
    "one_minus_corr": r"$1-\mathrm{corr}(W, W_{\mathrm{SVM}})$",
    "margin_gap": "margin gap",
}
OTHER = "bregman_other_tokens"
KINDS = {"log_domain": ("exact", "-"), "direct": ("published arithmetic", "--")}
"""Gradient -> name and line style of its curves."""
AS_PUBLISHED = "published arithmetic and tokens", ":"

ROWS = 4
"""Largest number of rows of panels of a figure."""

NOTE = (
    "Lines: mean over saturated instances with certified SVMs, as in the published figures, which "
    "show the left column; band: its 95 % bootstrap interval. Solid: exact; dashed: published "
    "arithmetic; dotted: the latter against the SVM of the tokens that the run of the other p "
    "selects, as the published scripts compare."
)
CAPTION = (
    "Mirror descent with p (rows) against the SVM in each norm (colours) over the steps: Bregman "
    "divergence of the directions, 1-correlation, and margin gap."
)


def tables(frames: SweepFrames) -> dict[str, pd.DataFrame]:
    """Return the quantities over the steps and at the last one, selected tokens, and counts.

    `bregman` is D(W_svm / ||W_svm||_p, W / ||W||_p) with the p of training;
    `bregman_other_tokens` is the same for the SVM of the tokens that the run of that p selects.
    """
    keys = list(dict.fromkeys([*frames.axes.names, "p", "gradient"]))
    found = pd.concat([_recorded(frames, keys), _divergences(frames, keys)], ignore_index=True)
    table = statistics.summaries(found, [*keys, "svm", "quantity", "step"], "value", STATISTIC)
    table = table.sort_values("svm", key=lambda norms: norms.map(_place), kind="stable")
    last = table.groupby(keys, dropna=False)["step"].transform("max")
    return {
        "mirror_descent": table,
        "mirror_descent_end": table[table["step"] == last].reset_index(drop=True),
        "mirror_descent_tokens": _selections.of_pairs(frames),
        "mirror_descent_counts": outcomes(frames.trials, frames.axes),
    }


def _recorded(frames: SweepFrames, keys: Sequence[str]) -> pd.DataFrame:
    """Return 1-correlation and margin gap over the steps of the certified instances."""
    certified = frames.trials[frames.trials["status"].isin(CERTIFIED)]
    history = history_of(frames, certified, keys)
    words = history["quantity"].astype(str)
    parts = []
    for quantity, beginning in FROM_HISTORY.items():
        part = history[words.str.startswith(beginning)].assign(quantity=quantity)
        name = words[part.index]
        parts.append(part.assign(svm=name.str.removeprefix(beginning)))
    return pd.concat(parts, ignore_index=True)


def _divergences(frames: SweepFrames, keys: Sequence[str]) -> pd.DataFrame:
    """Return the Bregman divergences over the steps of the certified instances with a path."""
    certified = frames.trials[frames.trials["status"].isin(CERTIFIED)]
    apart = [key for key in keys if key not in ("p", "steps")]
    parts: list[pd.DataFrame] = []
    for _, cells in certified.groupby(apart, dropna=False, sort=True):
        runs = [
            (dict(part.iloc[0][list(keys)]), _arrays(frames, str(run), part))
            for run, part in cells.groupby("run", sort=False)
        ]
        known = [(cell, arrays) for cell, arrays in runs if arrays and cell["p"] == cell["p"]]
        for cell, arrays in known:
            for norm in filter(_power, (n.removesuffix("_W") for n in arrays if n.endswith("_W"))):
                parts.append(_over_steps(cell, norm, "bregman", arrays, arrays))
                others = [found for one, found in known if one["p"] == _power(norm)]
                if len(others) == 1 and f"{norm}_W" in others[0]:
                    parts.append(_over_steps(cell, norm, OTHER, arrays, others[0]))
    columns = [*keys, "svm", "quantity", "seed", "step", "value"]
    return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame(columns=columns)


def _power(norm: str) -> float | None:
    """Return p of the entry-wise l_p norm of that name, p > 1; None of others."""
    found = POWER.fullmatch(norm)
    return None if found is None or norm == "l1" else float(found[1] or 2)


def _place(norm: str) -> tuple[float, str]:
    """Return the place of a norm: entry-wise ones by their exponent, then the others."""
    return _power(norm) or np.inf, norm


def _arrays(frames: SweepFrames, run: str, trials: pd.DataFrame) -> Mapping[str, np.ndarray] | None:
    """Return the arrays of these instances of a run; None without a path on record."""
    if run not in frames.folders:
        return None
    arrays = read_solutions(frames.folders[run])
    if "snapshots" not in arrays:
        return None
    kept = np.isin(arrays["seeds"], trials["seed"])
    return {name: values[kept] for name, values in arrays.items()}


def _over_steps(
    cell: Mapping[str, Any],
    norm: str,
    quantity: str,
    trained: Mapping[str, np.ndarray],
    separated: Mapping[str, np.ndarray],
) -> pd.DataFrame:
    """Return the divergence of the trained directions from the SVMs of the same instances.

    NaN, hence counted as excluded, where the other run has no certified SVM.
    """
    path, steps, seeds = trained["snapshots"], trained["steps"], trained["seeds"]
    svm = np.full(path[:, 0].shape, np.nan)
    _, here, there = np.intersect1d(seeds, separated["seeds"], return_indices=True)
    svm[here] = separated[f"{norm}_W"][there]
    values = directional_bregman_divergence(svm[:, None], path, cell["p"])
    return pd.DataFrame(
        {
            **cell,
            "svm": norm,
            "quantity": quantity,
            "seed": np.repeat(seeds, steps.shape[1]),
            "step": steps.ravel(),
            "value": values.ravel(),
        }
    )


def draw(
    tables: dict[str, pd.DataFrame], axes: CellAxes, remarks: Sequence[str] = ()
) -> list[Drawing]:
    """Return a figure of curves for W, one for (K, Q), and the maps of the tokens."""
    counts = "mirror_descent_counts"
    drawn = [
        drawing
        for name, part in _parameterizations(tables, counts)
        for drawing in drawings(
            name, part, axes, remarks, _figure, caption=CAPTION, x=("gradient",),
            panels=("p", "steps"), room=ROWS, cells=counts,
        )
    ]  # fmt: skip
    return drawn + _selections.draw("mirror_descent_tokens", tables, axes, remarks, counts)


def _parameterizations(tables: Tables, counts: str) -> Iterator[tuple[str, Tables]]:
    """Yield the name of a figure and its tables for each parameterization, W first."""
    if "parameterization" not in tables[counts]:
        yield "mirror_descent", tables
        return
    for kind in sorted(set(tables[counts]["parameterization"]), reverse=True):
        here = {name: rows_of(table, {"parameterization": kind}) for name, table in tables.items()}
        yield "mirror_descent" + ("" if kind == "w" else f"_{kind}"), here


def _figure(tables: Tables, axes: CellAxes, remarks: Sequence[str]) -> Figure:
    table = tables["mirror_descent"]
    keys = axes.besides("gradient", "steps")
    rows = list(axes.split(table, keys))
    norms = sorted(set(table["svm"]), key=_place)
    colours = style.colours(norms)
    fig = style.figure(11.4, 2.4 * max(len(rows), 2) + 0.7)
    grid = fig.subplots(len(rows), len(PANELS), squeeze=False, sharex="row")
    counted = status_counts(tables["mirror_descent_counts"], axes)
    style.note(fig, [NOTE, counted, *remarks])
    for line, (name, part) in zip(grid, rows, strict=True):
        for ax, (quantity, heading) in zip(line, PANELS.items(), strict=True):
            for norm, kind, look, curve in _curves(part, quantity):
                _curve(ax, f"{norm}, {kind}", colours[norm], look, curve)
            _axes(ax, heading)
        style.heading(line[0], style.wrapped(name or f"p={_exponent(part)}"))
    for ax in grid[-1]:
        ax.set_xlabel("step")
    if table.empty:
        style.empty(grid[0, 0], "no certified instance")
    style.legend(grid[0, -1], grid.flat)
    return fig


def _exponent(part: pd.DataFrame) -> str:
    return number(part["p"].iloc[0]) if len(part) else "-"


def _curves(part: pd.DataFrame, quantity: str) -> Iterator[tuple[str, str, str, pd.DataFrame]]:
    """Yield norm, name of the kind, line style and rows of each curve of a panel."""
    shown = part[part["quantity"] == quantity]
    for (gradient, norm), curve in shown.groupby(["gradient", "svm"], sort=False):
        yield str(norm), *KINDS.get(str(gradient), (str(gradient), "-.")), curve
    other = part[(part["quantity"] == OTHER) & (part["gradient"] == "direct")]
    if quantity == "bregman":
        for norm, curve in other.groupby("svm", sort=False):
            yield str(norm), *AS_PUBLISHED, curve


def _curve(ax: Axes, name: str, colour: str, look: str, curve: pd.DataFrame) -> None:
    rows = curve[(curve["used"] > 0) & (curve["step"] > 0)].sort_values("step")
    style.band(ax, rows["step"], rows["low"], rows["high"], colour)
    label = style.plain(name, limit=60)
    ax.plot(rows["step"], rows[STATISTIC], linestyle=look, color=colour, label=label)


def _axes(ax: Axes, heading: str) -> None:
    ax.set_xscale("log")
    ax.set_ylabel(heading)
    if ax.lines:
        style.log_axis(ax.yaxis)
