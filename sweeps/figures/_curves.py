"""Curves of quantities over the steps of training; `curves.yaml` says which a sweep has."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
from omegaconf import OmegaConf

from .. import notation, statistics
from ..facets import facets, labels, looks_of_pairs, panels_of
from . import CAPTIONS, MOST_CURVES, CellAxes, Drawing, Figure, Pages, SweepFrames, Tables, paged
from . import _priority_graph as priority_graph
from ._numbers import SELECTED, UNTYPED, certified, history_of, joined, outcomes

DECLARED: Any = OmegaConf.to_container(OmegaConf.load(Path(__file__).with_name("curves.yaml")))

MORE = {"max_softmax": "softmax", "margin_gap_nuclear": "gap", "balance_gap": "balance"}
"""Quantity -> end of the name of the figure that it has for itself, if not its own name."""


OF_SVM = ("one_minus", "margin_gap")
"""Beginnings of the quantities that compare with an SVM."""

TRAINED = ("ok", "unsaturated", "infeasible", "undecided")
"""Statuses of the instances whose training ended with finite weights."""


@dataclass(frozen=True)
class OverSteps:
    """The figure of an experiment that shows `quantities` over the steps, or over an axis `x`.

    Each of the quantities `more` has a figure for itself. There are panels for each value of the
    axis `facet`. One figure has `room` for so many curves; if there are more, the axes besides
    `first` get figures of their own, `apart` before others. The figure is called
    `curves`, if not as the experiment.
    """

    name: str
    quantities: Sequence[str]
    more: Sequence[str] = ()
    statistic: statistics.Statistic = "mean"
    facet: str = ""
    log_x: bool = False
    room: int = MOST_CURVES
    apart: str = ""
    first: Sequence[str] = ()
    x: str = "step"
    x_label: str = ""
    quartiles: bool = False
    curves: str = ""

    def tables(self, frames: SweepFrames) -> dict[str, pd.DataFrame]:
        """Return the quantities over the steps, and the number of instances by status."""
        quantities = [*self.more, *self.quantities]
        if self.x == "step":
            table = over_steps(frames, quantities, self.statistic)
        else:
            table = at_the_end(frames, quantities, self.x, self.statistic)
        return {self.name: table, f"{self.name}_counts": outcomes(frames.trials, frames.axes)}

    def draw(self, tables: Tables, axes: CellAxes, remarks: Sequence[str] = ()) -> list[Drawing]:
        """Return the figure, or several if there are too many curves, and those of `more`."""
        first = [self.facet, *self.first]
        first += axes.besides(*first, self.apart) if self.apart else []
        others = {f"{self.name}_{MORE.get(one, one)}": [one] for one in self.more}
        pages = [
            Pages(
                name, partial(self._figure, shown), self.notes, panels=first,
                room=self.room, x=[axis for axis in axes.names if axis == self.x],
            )
            for name, shown in {self.curves or self.name: self.quantities, **others}.items()
        ]  # fmt: skip
        return paged(*pages)(tables, axes, remarks)

    def notes(self, tables: Tables, axes: CellAxes) -> list[str]:
        """Return what is drawn, and of which instances, unless the captions say so."""
        said = "note" in CAPTIONS.get(self.name, {})
        return [] if said else [CAPTIONS["over_steps"][self.statistic]]

    def _figure(self, quantities: Sequence[str], tables: Tables, axes: CellAxes) -> Figure:
        """Return a panel for each quantity and value of `facet`; a single quantity has one row.

        A panel has one curve for each combination of the other axes: dashed in the published
        arithmetic, if a curve of the same colour is exact.
        """
        table, facet = tables[self.name], [name for name in axes.names if name == self.facet]
        others = axes.besides(*facet, self.x)
        table = table.assign(facet=labels(axes, table, facet), curve=labels(axes, table, others))
        quartiles = {"quartiles": self.quartiles or self.statistic == "mean"}
        looks = looks_of_pairs(axes, table, others)
        return facets(
            table[table["quantity"].isin(quantities)], self.x, self.statistic, hue="curve",
            row="quantity" if len(quantities) == 1 else "facet",
            col="facet" if len(quantities) == 1 else "quantity",
            looks={name: {**look, **quartiles} for name, look in looks.items()}, log_x=self.log_x,
            panels=panels_of(*quantities), x_label=self.x_label or notation.column(self.x),
        )[0]  # fmt: skip


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
    frames: SweepFrames, quantities: Sequence[str], x: str, statistic: statistics.Statistic
) -> pd.DataFrame:
    """Return the statistics of each quantity per cell at the last step, of certified instances.

    The key `x` is a column even if it takes a single value.
    """
    by = [*frames.axes.besides(x), x]
    trials = certified(frames)
    long = trials.melt(by, [q for q in quantities if q in trials], "quantity", "value")
    return statistics.summaries(long, [*by, "quantity"], "value", statistic)


class Plateau(OverSteps):
    """With a table of how the quantities change over the last decade of steps."""

    def tables(self, frames: SweepFrames) -> dict[str, pd.DataFrame]:
        """Return the curves, counts, and the falls.

        A row of `kq_plateau_fall` has the median ratio of a quantity at the last step to the same
        instance's at the last snapshot no later than a tenth of the steps: 1 is a plateau.
        """
        by = frames.axes.besides()
        history = history_of(frames, certified(frames), by)
        compared = [*self.quantities, *self.more][:2]
        history = history[history["quantity"].isin(compared)].sort_values("step")
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
        ends = statistics.summaries(pairs, [*by, "quantity"], "end", "median")  # same groups
        falls = falls.join(ends[["median", "low", "high"]].add_prefix("end_"))
        return {**super().tables(frames), f"{self.name}_fall": falls}


class OverRadii(OverSteps):
    """Regularisation paths: the steps are the radii of balls (paper, section 3)."""

    def tables(self, frames: SweepFrames) -> dict[str, pd.DataFrame]:
        """Return correlations per radius, the share of optimal tokens, and counts by status.

        The share is over the paths whose tokens have a type of convergence.
        """
        trials = frames.trials
        table = over_steps(frames, self.quantities, self.statistic)
        table = table.rename(columns={"step": "radius"})
        typed = trials["convergence"].isin(SELECTED) & ~trials["status"].isin(UNTYPED)
        optimal = trials.assign(optimal=(trials["convergence"] == "global").where(typed))
        return {
            self.name: table[table["radius"] > 0].reset_index(drop=True),
            f"{self.name}_optimal": statistics.shares(optimal, frames.axes.besides(), "optimal"),
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


class OfGraphs(OverSteps):
    """The token-priority graph of a query beside the attention to its tokens; then the curves."""

    def tables(self, frames: SweepFrames) -> dict[str, pd.DataFrame]:
        """Return the curves, counts, and the tokens of a query of each cell."""
        return super().tables(frames) | {f"{self.name}_graph": priority_graph.table(frames)}

    def draw(self, tables: Tables, axes: CellAxes, remarks: Sequence[str] = ()) -> list[Drawing]:
        """Return a graph for each cell, if there is any, and the curves."""
        of, curves = f"{self.name}_graph", super().draw(tables, axes, remarks)
        told, make = partial(priority_graph.notes, name=of), partial(priority_graph.figure, name=of)
        page = Pages(self.name if self.curves else of, make, told, cells=of)
        return page.draw(tables, axes, remarks) + curves if len(tables[of]) else curves


KINDS = {
    "kq_plateau": Plateau, "next_token": OfGraphs, "next_token_text": OfGraphs,
    "regularization_path": OverRadii,
}  # fmt: skip
"""Sweeps with further tables."""

SWEEPS = {name: KINDS.get(name, OverSteps)(name, **fields) for name, fields in DECLARED.items()}
