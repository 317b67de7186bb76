"""Quadratic head: the number of attended tokens, and which SVM W agrees with (section 6)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from .. import statistics, style
from ..cells import CellAxes
from . import Drawing, _curves, outcomes, status_counts
from ._pages import Tables, drawings

if TYPE_CHECKING:
    from ..aggregate import SweepFrames

SOLUTIONS = {
    "one_minus_corr_svmeq": r"$W_{\mathrm{svmeq}}$",
    "one_minus_corr_frobenius": r"$W_{\mathrm{mm}}$",
    "one_minus_corr_1token": r"$W_{\mathrm{1token}}$",
}
ROWS = 4
"""Largest number of rows of panels of a figure."""
PUBLISHED_NEGLIGIBLE = 1e-6
NOTE = (
    "Lines: mean, on the right share; bands: 95 % intervals, bootstrap and Wilson. A token is "
    "attended if its softmax is at least 1e-3, and masked if it is less: no instance is excluded "
    "for a value in between. On the right, the share of the same instances that the published rule "
    "keeps, which excludes those with a softmax in (1e-6, 1e-3]."
)
CAPTION = (
    "Mean number of attended tokens per sample, 1-correlation of the trained W with the three SVM "
    "solutions, and the share that the published rejection rule keeps, versus lambda."
)


def tables(frames: SweepFrames) -> dict[str, pd.DataFrame]:
    """Return final quantities, the share the published rule keeps and status counts, by lambda."""
    trials = frames.trials
    kept = (trials["status"] == "ok") & (trials["max_masked_softmax"] <= PUBLISHED_NEGLIGIBLE)
    by = [*frames.axes.besides("lam"), "lam"]
    quantities = ("attended_tokens", *SOLUTIONS)
    return {
        "token_count_vs_lambda": _curves.at_the_end(frames, quantities, "lam", "mean"),
        "token_count_vs_lambda_kept": statistics.shares(trials.assign(kept=kept), by, "kept"),
        "token_count_vs_lambda_counts": outcomes(trials, frames.axes),
    }


def draw(
    tables: dict[str, pd.DataFrame], axes: CellAxes, remarks: Sequence[str] = ()
) -> list[Drawing]:
    """Return one figure, or several if there are too many rows of panels."""
    return drawings(
        "token_count_vs_lambda", tables, axes, remarks, _figure, caption=CAPTION, x=("lam",),
        room=ROWS, cells="token_count_vs_lambda_counts",
    )  # fmt: skip


def _figure(tables: Tables, axes: CellAxes, remarks: Sequence[str]) -> Figure:
    """Return a row of panels per combination of the axes besides lambda."""
    table, kept = tables["token_count_vs_lambda"], tables["token_count_vs_lambda_kept"]
    keys = axes.besides("lam")
    rows = list(axes.split(kept, keys))
    fig = style.figure(10.4, 2.7 * len(rows) + 0.6)
    grid = fig.subplots(len(rows), 3, squeeze=False, sharex=True)
    for line, (name, part) in zip(grid, rows, strict=True):
        _row(line, table.merge(part[[*keys, "lam"]], on=[*keys, "lam"]), part)
        style.heading(line[0], style.wrapped(name))
    for ax in grid[-1]:
        ax.set_xlabel(r"$\lambda$")
    style.note(fig, [NOTE, status_counts(tables["token_count_vs_lambda_counts"], axes), *remarks])
    return fig


def _row(axes: np.ndarray, table: pd.DataFrame, kept: pd.DataFrame) -> None:
    count, agreement, share = axes
    _curve(count, table[table["quantity"] == "attended_tokens"], "mean")
    count.set_ylabel(_curves.AXES["attended_tokens"])
    for i, (quantity, name) in enumerate(SOLUTIONS.items()):
        _curve(agreement, table[table["quantity"] == quantity], "mean", i, name)
    agreement.set_ylabel(r"$1-\mathrm{corr}(W, \cdot\,)$")
    if (table["used"] > 0).any():
        style.log_axis(agreement.yaxis)
        agreement.legend(title="trained W against")
    else:
        style.empty(agreement, "no certified instance")
    _curve(share, kept, "share")
    style.share_axis(share, "kept by the published rule")


def _curve(ax: Axes, table: pd.DataFrame, value: str, i: int = 0, name: str = "") -> None:
    rows = table[table["used"] > 0].sort_values("lam")
    colour, marker = style.PALETTE[i], style.MARKERS[i]
    style.band(ax, rows["lam"], rows["low"], rows["high"], colour)
    ax.plot(rows["lam"], rows[value], color=colour, marker=marker, label=name)
