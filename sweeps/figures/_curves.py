"""Curves of quantities over the steps of training, or over an axis; `curves.yaml` declares them."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain, product
from typing import Any

import pandas as pd
from matplotlib.axes import Axes

from .. import notation, statistics, style
from ..cells import groups, rows_of
from ..facets import (
    BANDS,
    QUARTILES,
    WHISKERS,
    Panel,
    bars,
    curves,
    labels,
    named,
    panel_of,
    panels_of,
    values_of,
)
from . import (
    CAPTIONS,
    MOST_CURVES,
    MOST_PANELS,
    CellAxes,
    Drawing,
    Figure,
    LoadedSweep,
    Tables,
    paged,
)
from . import _priority_graph as priority_graph
from ._numbers import (
    OWN,
    TRAINED,
    certified,
    history_of,
    joined,
    of_norms,
    of_own_norm,
    outcome_shares,
    outcomes,
    quantities_of,
)

OF_SVM = ("one_minus", "margin_gap", "correlation", "svm_rank")
"""Beginnings of the quantities that compare with an SVM: known of certified instances."""

OVER_STEPS = ("step", "radius")
"""Names of the steps of training: those of regularisation paths are the radii of balls."""

NEAR = 1e-3
"""1-correlation of an instance that counts as there."""


def chance_lines(panels: Iterable[Axes], table: pd.DataFrame) -> None:
    """Draw a line at the share 1 / T, that of one of T tokens by chance."""
    for ax, T in product(panels, table["data.T"].unique()):
        ax.axhline(1 / T, color=style.FAINT, linestyle=":", linewidth=1)


@dataclass(frozen=True)
class Curves:
    """The figure of an experiment that shows `quantities` over the steps, or over an axis `x`.

    It is called `main`, if not as the experiment. There are further figures NAME_END of the
    quantities `more[END]`; those `tabled` are in the table only. Panels are the quantities and
    the values of the axes `facet`. Curves differ in the axes `dash` by their dashes, and in others,
    or in `hue`, by their colours. Where hue or dash is `quantity`, a panel has all of them, and its
    vertical axis is that of `axis` in the notation. All figures show the axes `inner`, which are
    columns of the table even if they have one value; instances are `pooled` over some of them.
    One figure has `room` for so many curves, without `hue`; if there are more, the axes besides
    `first` get figures of their own. Drawn are the rows with the values `where`, of at least
    `least` instances. `weights` is what the label of a correlation calls the weights, and `look`
    are further arguments of `facets.curves`.

    There are tables NAME_END of `shares[END]`: a condition, and where it is known, as expressions
    of `DataFrame.eval`. The other tables are of the `rows` on which this condition holds.

    Statistics are over the certified instances. Those over the steps, or if `trained`, of
    quantities that compare with no SVM are over all trained instances.
    """

    name: str
    quantities: Sequence[str]
    main: str = ""
    more: Mapping[str, Sequence[str]] = field(default_factory=dict)
    tabled: Sequence[str] = ()
    statistic: statistics.Statistic = "median"
    x: str = "step"
    facet: Sequence[str] = ()
    hue: Sequence[str] = ()
    dash: Sequence[str] = ("optimizer.gradient",)
    inner: Sequence[str] = ()
    pooled: Sequence[str] = ()
    first: Sequence[str] = ()
    room: int = MOST_CURVES
    where: Mapping[str, object] = field(default_factory=dict)
    axis: str = ""
    weights: str = "W"
    quartiles: bool = False
    least: int = 1
    trained: bool = False
    look: Mapping[str, Any] = field(default_factory=dict)
    shares: Mapping[str, Sequence[str]] = field(default_factory=dict)
    rows: str = ""

    def keys(self, axes: CellAxes) -> list[str]:
        """Return the columns that tell the rows of the table apart, besides quantity and step."""
        ends = [] if self.x in OVER_STEPS else [self.x]
        own = [name for name in self.inner if name not in (self.x, *self.pooled)]
        return [*axes.besides(*self.inner, self.x), *own, *ends]

    def trials(self, frames: LoadedSweep) -> pd.DataFrame:
        """Return the instances of which some are drawn."""
        return frames.rows.query(self.rows) if self.rows else frames.rows

    def tables(self, frames: LoadedSweep) -> Tables:
        """Return the statistics of the quantities, and the number of instances by status."""
        quantities = [*self.quantities, *chain(*self.more.values()), *self.tabled]
        trials, keys = self.trials(frames), self.keys(frames.cells)
        certified = trials["status"] == "ok"
        of_trained = self.x in OVER_STEPS or self.trained
        others = trials["status"].isin(TRAINED) if of_trained else certified
        parts = []
        for of_svm, rows in ((True, certified), (False, others)):
            names = [name for name in quantities if name.startswith(OF_SVM) == of_svm]
            values, by = self._values(frames, trials[rows], keys, names)
            if len(values):
                parts.append(statistics.summaries(values, by, "value", self.statistic))
        columns = dict.fromkeys([*keys, "quantity", self.x, "used", self.statistic])
        tables = {self.name: joined(parts, [*columns])}
        for end, conditions in self.shares.items():
            flag, known = (
                pd.Series(trials.eval(words, engine="python"), trials.index) for words in conditions
            )
            shares = statistics.shares(trials.assign(flag=flag.where(known)), keys, "flag")
            tables[f"{self.name}_{end}"] = shares
        return tables | {f"{self.name}_counts": outcomes(frames)}

    def _values(
        self, frames: LoadedSweep, trials: pd.DataFrame, keys: list[str], names: Sequence[str]
    ) -> tuple[pd.DataFrame, list[str]]:
        """Return the quantities of each instance, and the columns of a group."""
        if self.x in OVER_STEPS:
            history = history_of(frames, trials, [*dict.fromkeys([*keys, "parameterization"])])
            history = history[(history["step"] > 0) | (self.x == "step")]  # no ball of radius 0
            history = history.rename(columns={"step": self.x})
            return quantities_of(history, names), [*keys, "quantity", self.x]
        trials = trials.assign(**{name: of_own_norm(trials, name) for name in OWN if name in names})
        present = [name for name in names if name in trials]
        return trials.melt(keys, present, "quantity", "value"), [*keys, "quantity"]

    def draw(self, tables: Tables, axes: CellAxes, remarks: Sequence[str]) -> list[Drawing]:
        """Return the figures, or several of each if there are too many curves."""
        parts = {self.main or self.name: self.quantities}
        parts |= {f"{self.name}_{end}": quantities for end, quantities in self.more.items()}
        figures = {name: partial(self.figure, quantities) for name, quantities in parts.items()}
        return paged(
            figures,
            tables,
            axes,
            remarks,
            notes=self.notes,
            inner=[self.x, *self.inner],
            panels=[*self.facet, *self.first],
            room=1 if self.hue else self.room,
        )

    def notes(self, tables: Tables, axes: CellAxes) -> list[str]:
        """Return what is drawn, and of which instances, unless the captions say so."""
        own = CAPTIONS.get(self.main or self.name, {})
        return [] if "note" in own else [CAPTIONS["over_steps"][self.statistic]]

    def figure(self, quantities: Sequence[str], tables: Tables, axes: CellAxes) -> Figure:
        """Return a panel for each quantity and value of `facet`; a single quantity has one row."""
        table = rows_of(tables[self.name], self.where)
        table = table[table["quantity"].isin(quantities) & (table["used"] >= self.least)]
        usable = ["quantity", *axes.names, *(name for name in self.inner if name in table)]
        facet, hue, dash = (
            [name for name in names if name in usable]
            for names in (self.facet, self.hue, self.dash)
        )
        hue = hue or axes.besides(self.x, *self.inner, *facet, *dash)
        if not hue:
            hue, dash = dash, []
        overlay = "quantity" in (*hue, *dash)
        parts = {"facet": facet, "hue": hue, "dash": dash}
        words = {part: self.words(axes, table, of) for part, of in parts.items() if of}
        facets = words.pop("facet", "")
        table = table.assign(**words)
        panels = {name: self.panel(name) for name in quantities}
        single = overlay or len(quantities) == 1
        places = {"col": facets} if single else {"row": facets, "col": table["quantity"]}
        return curves(
            table.assign(**places),
            self.x,
            self.statistic,
            panels=self.panel(self.axis or quantities[0]) if single else panels,
            bands=BANDS | (QUARTILES if self.quartiles else {}),
            **self.look,
        )

    def words(self, axes: CellAxes, table: pd.DataFrame, keys: Sequence[str]) -> "pd.Series[str]":
        """Return the label of each row's quantity, or of its values of the axes `keys`."""
        if "quantity" in keys:
            return named(table["quantity"], notation.MEASURED.get(self.name, {}))
        return labels(axes, table, keys)

    def panel(self, quantity: str) -> Panel:
        """Return the vertical axis of a quantity."""
        panel = panel_of(quantity)
        return replace(panel, label=panel.label.replace("(W,", f"({self.weights},"))


class Plateau(Curves):
    """With a figure of how the quantities change over the last decade of steps."""

    def draw(self, tables: Tables, axes: CellAxes, remarks: Sequence[str]) -> list[Drawing]:
        """Return the ratios of the last decade, and the curves."""
        falls = paged({self.name: self.falls}, tables, axes, remarks, inner=axes.names)
        return falls + super().draw(tables, axes, remarks)

    def falls(self, tables: Tables, axes: CellAxes) -> Figure:
        """Return the ratios by the start, a colour for each rule of steps."""
        table = rows_of(tables[f"{self.name}_fall"], {"quantity": self.quantities[0]})
        starts, rules = (
            [name for name in names if name in axes.names] for names in (self.facet, self.first)
        )
        start, rule = labels(axes, table, starts), labels(axes, table, rules)
        last = max(len(rule.cat.categories) - 1, 1)
        col = labels(axes, table, axes.besides(*starts, *rules))
        x = start.cat.codes + 0.6 * (rule.cat.codes / last - 0.5)
        fig = curves(
            table.assign(x=x, hue=rule, col=col),
            "x",
            "median",
            bands={},
            whiskers=WHISKERS,
            joined=False,
            panels=panel_of("fall"),
        )
        for ax in fig.axes:
            style.words_at(ax, [*start.cat.categories])
            ax.set_xlabel("")
        return fig

    def tables(self, frames: LoadedSweep) -> Tables:
        """Return the curves, counts, and the falls.

        A row of `kq_plateau_fall` has the median ratio of a quantity at the last step to the same
        instance's at the last snapshot no later than a tenth of the steps: 1 is a plateau.
        """
        by = [*frames.cells.besides(), "quantity"]
        history = history_of(frames, certified(frames), by[:-1]).sort_values("step")
        history = history[history["quantity"].isin([*self.quantities, *self.more["gap"]])]
        last = history.groupby("run", observed=True)["step"].transform("max")
        before, end = (
            history[rows].groupby(["run", "seed", *by], observed=True, dropna=False)["value"].last()
            for rows in (history["step"] <= last / 10, history["step"] == last)
        )
        ratios = (end / before.where(before > 0)).rename("ratio").reset_index()
        falls = statistics.summaries(ratios, by, "ratio", "median")
        return super().tables(frames) | {f"{self.name}_fall": falls}


class Graphs(Curves):
    """The token-priority graph of a query beside the attention to its tokens, and the curves.

    The graphs are called NAME_graph, or as the experiment if the curves have another name.
    """

    def tables(self, frames: LoadedSweep) -> Tables:
        """Return the curves, counts, and the tokens of a query of each cell."""
        return super().tables(frames) | {f"{self.name}_graph": priority_graph.table(frames)}

    def draw(self, tables: Tables, axes: CellAxes, remarks: Sequence[str]) -> list[Drawing]:
        """Return a graph for each cell, if there is any, and the curves."""
        key, drawings = f"{self.name}_graph", super().draw(tables, axes, remarks)
        if tables[key].empty:
            return drawings
        figures = {self.name if self.main else key: partial(priority_graph.figure, key)}
        notes = partial(priority_graph.notes, key)
        return paged(figures, tables, axes, remarks, notes=notes, cells=key) + drawings


class JointLaw(Curves):
    """W trained with a linear head: its distance from three weighted SVMs."""

    def tables(self, frames: LoadedSweep) -> Tables:
        """Return the medians pooled over sizes, and the share of each cell within `NEAR`."""
        names = [*self.quantities, f"{self.quantities[-1]}_predicted"]
        ends = certified(frames).melt([*frames.axes], names, "quantity", "value")
        near = ends.assign(near=ends["value"] <= NEAR)
        near = statistics.shares(near, [*frames.axes, "quantity"], "near")
        return super().tables(frames) | {"joint_law_near": near}


class Generalisation(Curves):
    """What trained attention selects in samples that it was not trained on, and the margin."""

    def tables(self, frames: LoadedSweep) -> Tables:
        """Return means on held-out samples, and their rank correlations with the margin.

        These are over the instances that end at the optimal tokens and whose SVM is certified.
        """
        keys = self.keys(frames.cells)
        solved = frames.rows.query("convergence == 'global' and frobenius_status == 'solved'")
        ranks = []
        for cell, part in groups(solved, keys):
            used = part[["frobenius_objective", "held_out_optimal"]].dropna().to_numpy(float).T
            rank = statistics.rank_correlation(1 / used[0], used[1])
            ranks.append([*cell.values(), used.shape[1], *rank])
        columns = [*keys, "used", "rank_correlation", "low", "high"]
        table = pd.DataFrame(ranks, columns=columns)
        return super().tables(frames) | {"generalisation_rank_correlation": table}

    def figure(self, quantities: Sequence[str], tables: Tables, axes: CellAxes) -> Figure:
        """Return the shares over n, with a line at that of chance."""
        fig = super().figure(quantities, tables, axes)
        chance_lines(fig.axes, tables["generalisation"])
        return fig


class TokenCount(Curves):
    """A quadratic head: a panel for the attended tokens, for all SVMs, and for `kept`."""

    def figure(self, quantities: Sequence[str], tables: Tables, axes: CellAxes) -> Figure:
        """Return a panel for the attended tokens, for all SVMs, and for the kept instances."""
        kept = tables[f"{self.name}_kept"].rename(columns={"share": "mean"}).assign(quantity="kept")
        table = pd.concat([tables[self.name], kept], ignore_index=True)
        is_svm = table["quantity"].isin([*notation.SVM_QUANTITIES])
        words = {"attended_tokens": "", "kept": ""} | notation.SVM_QUANTITIES
        return curves(
            table.assign(
                col=table["quantity"].mask(is_svm, "agreement"),
                hue=named(table["quantity"], words),
            ),
            self.x,
            "mean",
            palette=notation.SVM_COLOURS | {"": style.INK},
            panels=panels_of("attended_tokens", "agreement", "kept"),
            ticks=(0, 0.25, 0.5, 0.75, 1),
        )


class StepNorm(Curves):
    """The margin gap of each run in the norm of its steps."""

    def trials(self, frames: LoadedSweep) -> pd.DataFrame:
        """Return the instances with their `own_margin_gap`, NaN in a norm without an SVM."""
        rows = frames.rows
        own = of_norms(rows, rows["optimizer.norm"], "{}_margin_gap")
        return rows.assign(own_margin_gap=own)


@dataclass(frozen=True)
class Types:
    """How training ended: bars over the axis `x`, a panel for each combination of the others."""

    name: str
    x: str

    def tables(self, frames: LoadedSweep) -> Tables:
        """Return the share of every type of convergence, and of Assumption B.1, in each cell."""
        trials, by = frames.rows, [*frames.cells.besides(self.x), self.x]
        b1 = statistics.shares(trials, by, "assumption_b1").assign(kind="assumption_b1")
        return {
            "convergence_types": pd.concat([outcome_shares(trials, by), b1], ignore_index=True),
            "convergence_types_counts": outcomes(frames),
        }

    def draw(self, tables: Tables, axes: CellAxes, remarks: Sequence[str]) -> list[Drawing]:
        """Return one figure, or several if there are too many panels."""
        return paged(
            {self.name: self.figure},
            tables,
            axes,
            remarks,
            inner=[self.x],
            panels=["parameterization"],
            room=MOST_PANELS,
        )

    def figure(self, tables: Tables, axes: CellAxes) -> Figure:
        """Return bars, with the interval of the share `global` beside each."""
        table = tables["convergence_types"]
        at = labels(axes, table, [self.x], short=True)
        table = table.assign(at=at, col=labels(axes, table, axes.besides(self.x)))
        table, label = table[table["kind"] != "assumption_b1"], notation.column(self.x)
        fig = bars(table, "at", "kind", style.FILLS["kinds"], x_label=label)
        for ax, column in zip(fig.axes, values_of(table, "col"), strict=True):
            best = rows_of(table, {"kind": "global", "col": column})
            ax.vlines(best["at"].cat.codes + 0.32, best["low"], best["high"], "black", lw=0.8)
        return fig
