"""Networks: layers and heads against the SVM of their input, and why a row is no data point."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import permutations
from typing import Any

import numpy as np
import pandas as pd

from .. import notation, statistics, style
from ..facets import bars, curves, labels, named, panel_of, panels_of
from . import CellAxes, Drawing, Figure, LoadedSweep, Tables, paged
from ._curves import Curves, chance_lines
from ._numbers import OWN_NORM, arrays_of, of_own_norm, outcomes

NEAR, SHARE = notation.PANELS["correlation"]["line"], 0.01
"""1-correlation up to which a layer counts as aligned; gradient of unseen positions above which
they count."""

OF_ONE_LAYER: dict[str, Any] = {
    "layer": 0,
    "attention_head": 0,
    "model.layers": 1,
    "model.heads": 1,
    "model.residual": False,
    "model.trained": "attention",
}
"""What a row of a run without layers has in these columns."""

CAUSES = {"tie": "copies", "unsaturated": "mixing", "infeasible": "infeasible", "ok": "turning"}
"""Status of a row -> why it is no data point."""


def with_layers(table: pd.DataFrame) -> pd.DataFrame:
    """Return the table with every column of `OF_ONE_LAYER`, and `correlation` in the own norm."""
    columns = {
        name: table.reindex(columns=[name])[name].astype(object).fillna(value).astype(type(value))
        for name, value in OF_ONE_LAYER.items()
    }
    return table.assign(**columns, correlation=of_own_norm(table, "correlation"))


def causes(trials: pd.DataFrame) -> "pd.Series[str]":
    """Return how each row ended: aligned with its own SVM, or the first cause why it is not.

    - `copies`: two tokens with the largest attention are equal to the last bit;
    - `mixing`: the attention of a row is not on one token;
    - `infeasible`: no W separates the selected tokens;
    - `unseen`: positions that the readout does not see have a share of the gradient;
    - `turning`: none of these, but the direction has not arrived.
    """
    cause = trials["status"].astype(object).map(CAUSES).fillna("other")
    unseen = trials.reindex(columns=["unseen_gradient"])["unseen_gradient"] >= SHARE
    cause = cause.mask((cause == "turning") & unseen, "unseen")
    return cause.mask((trials["status"] == "ok") & (trials["correlation"] <= NEAR), "aligned")


@dataclass(frozen=True)
class Networks(Curves):
    """The correlation of each layer over the steps; NAME_ends, bars of how the rows `ends` ended.

    `since`: there is a table of the step since which the selected tokens are the last ones.
    """

    ends: Sequence[str] = ()
    since: bool = False

    def trials(self, frames: LoadedSweep) -> pd.DataFrame:
        """Return the rows, each with its layer."""
        return with_layers(frames.rows)

    def tables(self, frames: LoadedSweep) -> Tables:
        """Return the medians over the steps, how rows ended, and the counts by status."""
        tables, keys = super().tables(frames), self.keys(frames.cells)
        trials = self.trials(frames)
        if self.ends:
            rows = trials.assign(cause=causes(trials))
            grouped = rows.groupby([*keys, "cause"], dropna=False, observed=True)["correlation"]
            table = grouped.agg(count="size", median="median", largest="max").reset_index()
            whole = table.groupby(keys, dropna=False)["count"].transform("sum")
            tables[f"{self.name}_causes"] = table.assign(share=table["count"] / whole)
        if self.since:
            ended = trials[trials["training"] != "diverged"]
            since = statistics.summaries(ended, keys, "selected_since", "median")
            tables[f"{self.name}_selection"] = since
        return tables

    def draw(self, tables: Tables, axes: CellAxes, remarks: Sequence[str]) -> list[Drawing]:
        """Return the curves, and the bars."""
        figures = {f"{self.name}_ends": self.bars} if self.ends else {}
        ends = paged(figures, tables, axes, remarks, inner=self.inner)
        return super().draw(tables, axes, remarks) + ends

    def bars(self, tables: Tables, axes: CellAxes) -> Figure:
        """Return a panel for each value of `facet`, and a bar for each of `ends`."""
        table = tables[f"{self.name}_causes"].sort_values([*self.ends])
        column = labels(axes, table, [*self.facet])
        bar = labels(axes, table, [*self.ends], short=True)
        return bars(
            table.assign(col=column, bar=bar),
            "bar",
            "cause",
            style.FILLS["causes"],
            x_label=notation.column("_".join(self.ends)),
            y_label="share of the rows",
            least=2.0,
        )


@dataclass(frozen=True)
class Heads:
    """Several heads of a layer: their tokens, their SVMs, and the risk that they reach together."""

    name: str
    x: Sequence[str]

    def tables(self, frames: LoadedSweep) -> Tables:
        """Return each measure by layer and number of heads, and the counts by status."""
        trials = with_layers(frames.rows)
        keys = [*frames.cells.besides(*self.x, "attention_head", "data.T"), *self.x, "data.T"]
        ok = trials[trials["status"] == "ok"].rename(columns={"correlation": "own"})
        each = [*dict.fromkeys([*keys, "run", "seed"])]
        layers = ok.groupby(each, observed=True, dropna=False)["own"].median().reset_index()
        pairs = pd.DataFrame(_pairs(frames, ok, keys), columns=[*keys, "equal", "other"])
        first = trials[(trials["layer"] == 0) & (trials["attention_head"] == 0)]
        measures: tuple[tuple[pd.DataFrame, str, statistics.Statistic], ...] = (
            (layers, "own", "median"),
            (pairs, "other", "median"),
            (pairs, "equal", "mean"),
            (first, "risk", "median"),
        )
        parts = [
            statistics.summaries(rows, keys, name, statistic).assign(measure=name)
            for rows, name, statistic in measures
        ]
        counts = outcomes(frames)
        return {"heads": pd.concat(parts, ignore_index=True), "heads_counts": counts}

    def draw(self, tables: Tables, axes: CellAxes, remarks: Sequence[str]) -> list[Drawing]:
        """Return the correlations with the tokens of two heads, and the risk."""
        figures = {"heads": ("own", "equal"), "heads_risk": ("risk",)}
        parts = {name: partial(self.figure, measures) for name, measures in figures.items()}
        return paged(parts, tables, axes, remarks, inner=[*self.x, "attention_head", "data.T"])

    def figure(self, measures: Sequence[str], tables: Tables, axes: CellAxes) -> Figure:
        """Return a panel for each measure, those of another head's SVM dashed."""
        table = tables["heads"]
        other = table["measure"] == "other"
        table = table.assign(
            row=labels(axes, table, ["parameterization"]),
            value=table["median"].mask(table["measure"] == "equal", table["mean"]),
            col=table["measure"].mask(other, "own"),
            hue=labels(axes, table, ["model.layers", "layer"]),
            dash=named(other, {False: "its own SVM", True: "SVM of another head"}),
        )
        table = table[table["col"].isin(measures)]
        if "own" not in measures:
            table = table.drop(columns="dash")
        fig = curves(table, "model.heads", "value", panels=panels_of(*measures))
        label = panel_of("equal").label
        chance_lines((ax for ax in fig.axes if ax.get_ylabel() == label), table)
        return fig


def _pairs(
    frames: LoadedSweep, ok: pd.DataFrame, keys: Sequence[str]
) -> Iterator[dict[str, object]]:
    """Yield a row for each layer of an instance with several heads.

    `equal` is the share of samples on which a pair of heads selects the same token, `other` the
    median 1-correlation of a head with the SVM of another one: both over all pairs of the layer.
    """
    for run, trials in ok[ok["model.heads"] > 1].groupby("run", observed=True):
        arrays = arrays_of(frames, run)
        name = f"{OWN_NORM.get(str(trials['parameterization'].iloc[0]))}_W"
        if name not in arrays:
            continue
        place = pd.DataFrame({key: arrays[key] for key in ("seeds", "layer", "attention_head")})
        at = trials.merge(
            place.reset_index(names="row"),
            left_on=["seed", "layer", "attention_head"],
            right_on=[*place],
        )
        for _, heads in at.groupby(["seed", "layer"]):
            if len(heads) < 2:
                continue
            a, b = np.array(list(permutations(heads["row"], 2))).T
            W, W_svm, selected = arrays["trained_W"][a], arrays[name][b], arrays["selected"]
            sizes = np.linalg.norm(W, axis=(1, 2)) * np.linalg.norm(W_svm, axis=(1, 2))
            equal = (selected[a] == selected[b])[:, arrays["mask"][a[0]].sum(-1) > 1]
            yield heads.iloc[0][list(keys)].to_dict() | {
                "equal": equal.mean() if equal.size else np.nan,
                "other": np.median(1 - (W * W_svm).sum((1, 2)) / sizes),
            }
