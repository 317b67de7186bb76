"""Sweeps that show curves and have further tables, or a figure of another kind beside them."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import product

import pandas as pd

from .. import notation, statistics, style
from ..cells import groups, rows_of
from ..facets import WHISKERS, curves, labels, named, panel_of, panels_of
from . import CellAxes, Drawing, Figure, LoadedSweep, Tables, paged
from . import _priority_graph as priority_graph
from ._curves import Curves, chance_line
from ._numbers import CONVERGENCE, UNTYPED, certified, history_of, joined

NEAR, UNEQUAL = 1e-3, 1.01
"""1-correlation of an instance that counts as there; least ratio of unequal margins of v."""

PUBLISHED_NEGLIGIBLE = 1e-6
"""Largest softmax of a masked token in the instances that the published scripts keep."""


class Plateau(Curves):
    """With a figure of how the quantities change over the last decade of steps."""

    def draw(self, tables: Tables, axes: CellAxes, remarks: Sequence[str] = ()) -> list[Drawing]:
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
        beside = 0.7 / max(len(rule.cat.categories), 1)
        place = start.cat.codes + beside * (rule.cat.codes - (len(rule.cat.categories) - 1) / 2)
        col = labels(axes, table, axes.besides(*starts, *rules))
        fig = curves(
            table.assign(x=place, hue=rule, col=col),
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
        history = history_of(frames, certified(frames), by[:-1])
        history = history[history["quantity"].isin([*self.quantities, *self.more["gap"]])]
        history = history.sort_values("step")
        last = history.groupby("run", observed=True)["step"].transform("max")
        before, end = (
            history[rows].groupby(["run", "seed", *by], observed=True, dropna=False)["value"].last()
            for rows in (history["step"] <= last / 10, history["step"] == last)
        )
        pairs = pd.DataFrame({"end": end, "ratio": end / before.where(before > 0)}).reset_index()
        falls, ends = (statistics.summaries(pairs, by, name, "median") for name in ("ratio", "end"))
        ends = ends[["median", "low", "high"]].add_prefix("end_")
        return {**super().tables(frames), f"{self.name}_fall": falls.join(ends)}


class Radii(Curves):
    """Regularisation paths: the steps are the radii of balls (paper, section 3)."""

    def tables(self, frames: LoadedSweep) -> Tables:
        """Return correlations per radius, the share of optimal tokens, and counts by status.

        The share is over the paths whose tokens have a type of convergence.
        """
        trials, name = frames.rows, self.name
        tables = Curves.tables(replace(self, x="step"), frames)
        table = tables[name].rename(columns={"step": "radius"})
        typed = trials["convergence"].isin(CONVERGENCE[:5]) & ~trials["status"].isin(UNTYPED)
        optimal = trials.assign(optimal=(trials["convergence"] == "global").where(typed))
        shares = statistics.shares(optimal, frames.cells.besides(), "optimal")
        return tables | {name: table[table["radius"] > 0], f"{name}_optimal": shares}

    def notes(self, tables: Tables, axes: CellAxes) -> list[str]:
        """Return how many paths end at the optimal tokens, with intervals."""
        shares = [
            f"{row['count']} of {row['used']} "
            f"[{100 * row['low']:.0f}, {100 * row['high']:.0f} %] {name}".strip()
            for name, part in axes.split(tables[f"{self.name}_optimal"], axes.besides())
            for _, row in part.iterrows()
        ]
        return [f"The path selects the optimal tokens: {'; '.join(shares)}."]


class Graphs(Curves):
    """The token-priority graph of a query beside the attention to its tokens, and the curves.

    The graphs are called NAME_graph, or as the experiment if the curves have another name.
    """

    def tables(self, frames: LoadedSweep) -> Tables:
        """Return the curves, counts, and the tokens of a query of each cell."""
        return super().tables(frames) | {f"{self.name}_graph": priority_graph.table(frames)}

    def draw(self, tables: Tables, axes: CellAxes, remarks: Sequence[str] = ()) -> list[Drawing]:
        """Return a graph for each cell, if there is any, and the curves."""
        key, drawings = f"{self.name}_graph", super().draw(tables, axes, remarks)
        if tables[key].empty:
            return drawings
        figures = {self.name if self.main else key: partial(priority_graph.figure, key)}
        notes = partial(priority_graph.notes, key)
        return paged(figures, tables, axes, remarks, notes=notes, cells=key) + drawings


class JointLaw(Curves):
    """W trained with a linear head: its distance from three weighted SVMs."""

    def trials(self, frames: LoadedSweep) -> pd.DataFrame:
        """Return the certified instances whose margins gamma differ: else all curves are equal."""
        trials = certified(frames)
        return trials[trials["gamma_most"] > UNEQUAL * trials["gamma_least"]]

    def tables(self, frames: LoadedSweep) -> Tables:
        """Return the medians pooled over sizes, and the share of each cell within `NEAR`."""
        ends, cells = certified(frames), frames.axes
        near = (
            statistics.shares(ends.assign(near=ends[name] <= NEAR), cells, "near").assign(
                quantity=name
            )
            for name in (*self.quantities, f"{self.quantities[-1]}_predicted")
        )
        return super().tables(frames) | {"joint_law_near": joined(near, [*cells, "quantity"])}


class Generalisation(Curves):
    """What trained attention selects in samples that it was not trained on, and the margin."""

    def tables(self, frames: LoadedSweep) -> Tables:
        """Return means on held-out samples, the instances with their margin, and correlations."""
        keys, trials = self.keys(frames.cells), frames.rows
        rows = (trials["convergence"] == "global") & (trials["frobenius_status"] == "solved")
        margins = trials[rows].assign(svm_margin=1 / trials["frobenius_objective"])
        shares = [*self.quantities, *self.tabled]
        margins = margins.reindex(columns=[*keys, "seed", "svm_margin", *shares])
        ranks = []
        for cell, part in groups(margins, keys):
            used = part[["svm_margin", "held_out_optimal"]].dropna().to_numpy(float)
            ranks.append([*cell.values(), len(used), *statistics.rank_correlation(*used.T)])
        columns = [*keys, "used", "rank_correlation", "low", "high"]
        return super().tables(frames) | {
            "generalisation_margins": margins,
            "generalisation_rank_correlation": pd.DataFrame(ranks, columns=columns),
        }

    def draw(self, tables: Tables, axes: CellAxes, remarks: Sequence[str] = ()) -> list[Drawing]:
        """Return the shares over n, and over the margin."""
        figures, inner = {"generalisation_margin": self.over_margin}, [self.x, *self.inner]
        drawings = super().draw(tables, axes, remarks)
        return drawings + paged(figures, tables, axes, remarks, inner=inner)

    def figure(self, quantities: Sequence[str], tables: Tables, axes: CellAxes) -> Figure:
        """Return the shares over n, with a line at that of chance."""
        fig = super().figure(quantities, tables, axes)
        for ax, T in product(fig.axes, tables["generalisation"]["data.T"].unique()):
            chance_line(ax, T)
        return fig

    def over_margin(self, tables: Tables, axes: CellAxes) -> Figure:
        """Return a point for each instance of W, a panel for each strength of the signal."""
        table = rows_of(tables["generalisation_margins"], {"parameterization": "w"})
        column, n = self.words(axes, table, ["data.signal"]), self.words(axes, table, ["data.n"])
        return curves(
            table.assign(col=column, hue=n, used=1),
            "svm_margin",
            "held_out_optimal",
            panels=panel_of("held_out_optimal"),
            joined=False,
            log_x=True,
        )


class TokenCount(Curves):
    """A quadratic head: attended tokens, the three SVMs, and what the published rule keeps."""

    def tables(self, frames: LoadedSweep) -> Tables:
        """Return final quantities, the share the published rule keeps and status counts."""
        trials, by = frames.rows, self.keys(frames.cells)
        kept = (trials["status"] == "ok") & (trials["max_masked_softmax"] <= PUBLISHED_NEGLIGIBLE)
        shares = statistics.shares(trials.assign(kept=kept), by, "kept")
        return super().tables(frames) | {f"{self.name}_kept": shares}

    def draw(self, tables: Tables, axes: CellAxes, remarks: Sequence[str] = ()) -> list[Drawing]:
        """Return the figure, a page for each combination of the axes besides lambda."""
        return paged({self.name: self.panels_in_a_row}, tables, axes, remarks, inner=[self.x])

    def panels_in_a_row(self, tables: Tables, axes: CellAxes) -> Figure:
        """Return a panel for the attended tokens, for all SVMs, and for the kept instances."""
        table, svms = tables[self.name], notation.SVM_QUANTITIES
        kept = tables[f"{self.name}_kept"].rename(columns={"share": "mean"})
        table = pd.concat([table, kept.assign(quantity="kept")], ignore_index=True)
        panel = table["quantity"].where(~table["quantity"].isin(svms), "agreement")
        curve = named(table["quantity"], {"attended_tokens": "", "kept": ""} | svms)
        return curves(
            table.assign(col=panel, hue=curve),
            self.x,
            "mean",
            palette=notation.SVM_COLOURS | {"": style.INK},
            panels=panels_of("attended_tokens", "agreement", "kept"),
            ticks=(0, 0.25, 0.5, 0.75, 1),
        )
