"""Curves of quantities over the steps of training: shared by several experiments."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd

from .. import statistics
from ..facets import Panel, facets, labels, looks_of, values_of
from . import CellAxes, Drawing, Figure, Pages, SweepFrames, Tables
from ._numbers import certified, history_of, joined, outcomes

PANELS = {
    "max_softmax": Panel("largest softmax, mean over samples"),
    "W_norm": Panel(r"$\|W\|_F$", "log"),
    "attended_tokens": Panel("attended tokens per sample"),
    "one_minus_corr_frobenius": Panel(r"$1-\mathrm{corr}(W, W_{\mathrm{mm}})$", "log"),
    "one_minus_corr_nuclear": Panel(r"$1-\mathrm{corr}(W, W^{\star}_{\mathrm{mm}})$", "log"),
    "one_minus_corr_svmeq": Panel(r"$1-\mathrm{corr}(W, W_{\mathrm{svmeq}})$", "log"),
    "one_minus_corr_1token": Panel(r"$1-\mathrm{corr}(W, W_{\mathrm{1token}})$", "log"),
    "margin_gap_nuclear": Panel("nuclear margin gap", "log"),
    "balance_gap": Panel(r"imbalance $\|K^\top K-Q^\top Q\|_F / \|K\|_F\|Q\|_F$", "log"),
}
"""Vertical axis of a quantity."""

OF_SVM = ("one_minus", "margin_gap")
"""Beginnings of the quantities that compare with an SVM."""

CURVES = 12
"""Largest number of curves, and of rows of panels, that a figure has room for."""

TRAINED = ("ok", "unsaturated", "infeasible", "undecided")
"""Statuses of the instances whose training ended with finite weights."""


STATISTICS = {
    "mean": "Lines: mean; dark band: 95 % bootstrap interval of the mean; light band: quartiles.",
    "median": "Lines: median; band: its 95 % bootstrap interval.",
}
USED = "Correlations: saturated instances whose SVM is certified; the rest: all trained."


@dataclass(frozen=True)
class OverSteps:
    """The figure of an experiment that shows `quantities` over the steps of training.

    The module of the experiment exports `tables` and `draw` of such an object. There is one row of
    panels for each value of the axis `facet`. One figure has `room` for so many curves; if
    there are more, the axis `apart` is the first to get figures of its own.
    """

    name: str
    quantities: tuple[str, ...]
    caption: str
    statistic: statistics.Statistic = "mean"
    facet: str | None = None
    log_x: bool = False
    room: int = CURVES
    apart: str | None = None

    def tables(self, frames: SweepFrames) -> dict[str, pd.DataFrame]:
        """Return the quantities over the steps, and the number of instances by status."""
        return {
            self.name: over_steps(frames, self.quantities, self.statistic),
            f"{self.name}_counts": outcomes(frames.trials, frames.axes),
        }

    def draw(self, tables: Tables, axes: CellAxes, remarks: Sequence[str] = ()) -> list[Drawing]:
        """Return one figure, or several if there are too many curves."""
        first = [self.facet] if self.facet else []
        if self.apart:
            first += axes.besides(*first, self.apart)
        note = f"{STATISTICS[self.statistic]} {USED}"
        pages = Pages(self.name, self.caption, self._figure, note, panels=first, room=self.room)
        return pages.draw(tables, axes, remarks)

    def _figure(self, tables: Tables, axes: CellAxes) -> Figure:
        return curves(
            tables[self.name], axes, self.quantities, "step", self.statistic, facet=self.facet,
            log_x=self.log_x, quartiles=self.statistic == "mean",
        )  # fmt: skip


def over_steps(
    frames: SweepFrames, quantities: Sequence[str], statistic: statistics.Statistic = "mean"
) -> pd.DataFrame:
    """Return mean, median, quartiles and interval of each quantity per cell and step.

    Correlations are over the certified instances, softmax and norms over all trained ones.
    """
    by = frames.axes.besides()
    parts = []
    for statuses, of_correlation in ((("ok",), True), (TRAINED, False)):
        chosen = [q for q in quantities if q.startswith(OF_SVM) == of_correlation]
        trials = frames.trials[frames.trials["status"].isin(statuses)]
        history = history_of(frames, trials, by)
        history = history[history["quantity"].isin(chosen)]
        if len(history):
            keys = [*by, "quantity", "step"]
            parts.append(statistics.summaries(history, keys, "value", statistic))
    return joined(parts, [*by, "quantity", "step", "used", "mean"])


def at_the_end(
    frames: SweepFrames,
    quantities: Sequence[str],
    x: str,
    statistic: statistics.Statistic = "median",
) -> pd.DataFrame:
    """Return the statistics of each quantity per cell at the last step, of certified instances.

    The key `x` is a column even if it takes a single value.
    """
    by = [*frames.axes.besides(x), x]
    trials = certified(frames)
    long = trials.melt(by, [q for q in quantities if q in trials], "quantity", "value")
    return statistics.summaries(long, [*by, "quantity"], "value", statistic)


def curves(
    table: pd.DataFrame,
    axes: CellAxes,
    quantities: Sequence[str],
    x: str,
    statistic: str,
    *,
    facet: str | None = None,
    quartiles: bool = False,
    log_x: bool = True,
    x_label: str = "",
) -> Figure:
    """Return a grid of panels: a column for each quantity, a row for each value of `facet`.

    A panel has one curve for each combination of the other axes.
    """
    table = table.assign(
        row=labels(axes, table, [facet] if facet in axes.names else []),
        curve=labels(axes, table, axes.besides(facet or "", x)),
    )
    looks = {
        name: {**look, "quartiles": quartiles}
        for name, look in looks_of(values_of(table, "curve")).items()
    }
    return facets(
        table, x, statistic, hue="curve", row="row", col="quantity", looks=looks, log_x=log_x,
        panels={name: PANELS[name] for name in quantities}, x_label=x_label or x,
    )[0]  # fmt: skip
