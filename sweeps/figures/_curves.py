"""Curves of quantities over the steps of training: shared by several experiments."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd

from .. import statistics
from ..facets import Panel, facets, labels, looks_of, values_of
from . import CellAxes, Drawing, Figure, Pages, SweepFrames, Tables
from ._numbers import SELECTED, UNTYPED, certified, history_of, joined, outcomes

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
    """The figure of an experiment that shows `quantities` over the steps, or over an axis `x`.

    There is one row of panels for each value of the axis `facet`. One figure has `room` for so many
    curves; if there are more, the axes besides `first` get figures of their own, `apart` before
    others. `note` says what is drawn, of which instances, if that differs from `USED`.
    """

    name: str
    quantities: tuple[str, ...]
    caption: str
    statistic: statistics.Statistic = "mean"
    facet: str | None = None
    log_x: bool = False
    room: int = CURVES
    apart: str | None = None
    first: tuple[str, ...] = ()
    x: str = "step"
    x_label: str = ""
    note: str = ""
    quartiles: bool = False

    def tables(self, frames: SweepFrames) -> dict[str, pd.DataFrame]:
        """Return the quantities over the steps, and the number of instances by status."""
        if self.x == "step":
            table = over_steps(frames, self.quantities, self.statistic)
        else:
            table = at_the_end(frames, self.quantities, self.x, self.statistic)
        return {self.name: table, f"{self.name}_counts": outcomes(frames.trials, frames.axes)}

    def draw(self, tables: Tables, axes: CellAxes, remarks: Sequence[str] = ()) -> list[Drawing]:
        """Return one figure, or several if there are too many curves."""
        first = [*([self.facet] if self.facet else []), *self.first]
        if self.apart:
            first += axes.besides(*first, self.apart)
        return Pages(
            self.name, self.caption, self._figure, self.notes, panels=first, room=self.room,
            x=[name for name in axes.names if name == self.x],
        ).draw(tables, axes, remarks)  # fmt: skip

    def notes(self, tables: Tables, axes: CellAxes) -> list[str]:
        """Return what is drawn, and of which instances."""
        return [self.note or f"{STATISTICS[self.statistic]} {USED}"]

    def _figure(self, tables: Tables, axes: CellAxes) -> Figure:
        return curves(
            tables[self.name], axes, self.quantities, self.x, self.statistic, facet=self.facet,
            log_x=self.log_x, quartiles=self.quartiles or self.statistic == "mean",
            x_label=self.x_label,
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


class Plateau(OverSteps):
    """With a table of how the quantities change over the last decade of steps."""

    def tables(self, frames: SweepFrames) -> dict[str, pd.DataFrame]:
        """Return the curves, counts, and the falls.

        A row of `kq_plateau_fall` has the median ratio of a quantity at the last step to the same
        instance's at the last snapshot no later than a tenth of the steps: 1 is a plateau.
        """
        by = frames.axes.besides()
        history = history_of(frames, certified(frames), by)
        history = history[history["quantity"].isin(self.quantities[:2])].sort_values("step")
        keys = list(dict.fromkeys([*by, "run", "seed", "quantity"]))
        last = history.groupby("run", observed=True)["step"].transform("max")
        moments = {"end": history["step"] == last, "before": history["step"] <= last / 10}
        parts = {
            name: history[rows].groupby(keys, observed=True, dropna=False)["value"].last()
            for name, rows in moments.items()
        }
        pairs = pd.DataFrame(parts).reset_index()
        pairs["ratio"] = pairs["end"] / pairs["before"].where(pairs["before"] > 0)
        falls = statistics.summaries(pairs, [*by, "quantity"], "ratio", "median")
        ends = statistics.summaries(pairs, [*by, "quantity"], "end", "median")
        named = {name: f"end_{name}" for name in ("median", "low", "high")}
        ends = ends.rename(columns=named)[[*by, "quantity", *named.values()]]
        falls = falls.merge(ends, on=[*by, "quantity"])
        return {**super().tables(frames), f"{self.name}_fall": falls}


class OverRadii(OverSteps):
    """Regularisation paths: the steps are the radii of balls (paper, section 3)."""

    def tables(self, frames: SweepFrames) -> dict[str, pd.DataFrame]:
        """Return correlations per radius, the share of optimal tokens, and counts by status.

        The share is over the paths whose tokens have a type of convergence.
        """
        by, trials = frames.axes.besides(), frames.trials
        history = history_of(frames, certified(frames), by).rename(columns={"step": "radius"})
        history = history[history["quantity"].isin(self.quantities) & (history["radius"] > 0)]
        typed = trials["convergence"].isin(SELECTED) & ~trials["status"].isin(UNTYPED)
        optimal = trials.assign(optimal=(trials["convergence"] == "global").where(typed))
        keys = [*by, "quantity", "radius"]
        return {
            self.name: statistics.summaries(history, keys, "value", self.statistic),
            f"{self.name}_optimal": statistics.shares(optimal, by, "optimal"),
            f"{self.name}_counts": outcomes(trials, frames.axes),
        }

    def notes(self, tables: Tables, axes: CellAxes) -> list[str]:
        """Return what is drawn, and how many paths end at the optimal tokens, with intervals."""
        found = [
            f"{row['count']} of {row['used']} "
            f"[{100 * row['low']:.0f}, {100 * row['high']:.0f} %] {name}".strip()
            for name, part in axes.split(tables[f"{self.name}_optimal"], axes.besides())
            for _, row in part.iterrows()
        ]
        optimal = f"The path selects the optimal tokens: {'; '.join(found)}."
        return [*super().notes(tables, axes), optimal]


BOTH = ("max_softmax", "one_minus_corr_frobenius", "one_minus_corr_nuclear")
SWEEPS = {
    "local_convergence": OverSteps(
        "local_convergence", BOTH,
        "Largest softmax probability and 1-correlation with the Frobenius and the nuclear norm SVM "
        "at the selected tokens, over the steps, for W and for (K, Q): the published update "
        "(direct gradient; W without ridge, (K, Q) with a ridge of 2.22e-16) and the same update "
        "in exact arithmetic without ridge.",
        facet="parameterization",
    ),
    "sequence": OverSteps(
        "sequence", BOTH,
        "Largest softmax probability and 1-correlation with the SVM at the selected tokens over "
        "the steps. Every position of every sequence is a query with its own label; with a causal "
        "mask position k attends to tokens up to k.",
        facet="model",
    ),
    "real_tokens": OverSteps(
        "real_tokens", BOTH,
        "Largest softmax probability and 1-correlation with the SVM at the selected tokens over "
        "the steps, for W and for (K, Q), on tokens from data instead of random tokens, with a "
        "fixed linear head and with one that is trained together with the attention.",
        facet="train",
    ),
    "gradient_floor": OverSteps(
        "gradient_floor", ("W_norm", "one_minus_corr_frobenius"),
        "Norm of W and median 1-correlation with W_mm over the steps: the gradient as published "
        "(direct) against the same update without cancellation (log_domain), with constant and "
        "with growing step sizes. Direct stops: the norm and the direction no longer change when "
        "the softmax is below the resolution of a 64-bit float.",
        "median", log_x=True,
    ),
    "kq_plateau": Plateau(
        "kq_plateau", ("one_minus_corr_nuclear", "margin_gap_nuclear", "balance_gap"),
        "1-correlation of K Q^T with W_star_mm, nuclear margin gap and imbalance of the factors "
        "over the steps, without a ridge and in exact arithmetic, from four kinds of initial "
        "weights (rows), by step sizes; a figure for each loss.",
        "median", facet="init", log_x=True, room=2 * CURVES, apart="loss",
    ),
    "regularization_path": OverRadii(
        "regularization_path", ("one_minus_corr_frobenius", "one_minus_corr_nuclear"),
        "Median 1-correlation of the regularisation path with the Frobenius and the nuclear norm "
        "SVM of the tokens that it selects, versus the radius R of the ball, for W (Frobenius "
        "norm) and for (K, Q) (half the sum of squared Frobenius norms).",
        "median", x="radius", x_label="radius $R$", log_x=True, quartiles=True,
        note="Lines: median over saturated instances with certified SVMs; dark band: its 95 % "
        "bootstrap interval; light band: quartiles. The SVM is that of the tokens that the path "
        "selects.",
    ),
    "ridge_vs_path": OverSteps(
        "ridge_vs_path", ("one_minus_corr_nuclear", "one_minus_corr_frobenius"),
        "Median 1-correlation of K Q^T with the nuclear norm and the Frobenius norm SVM at the "
        "last step, versus the weight of the ridge, 0 included.",
        "median", x="ridge", x_label="ridge (weight of $\\|K\\|^2+\\|Q\\|^2$)", log_x=True,
        first=("gradient",),
        note="Lines: median over saturated instances with certified SVMs; band: its 95 % bootstrap "
        "interval.",
    ),
}  # fmt: skip
