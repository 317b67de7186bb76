"""Mirror descent with l_p potentials against the l_p SVMs (arXiv 2410.14581)."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from attnsvm.record import read_solutions

from .. import statistics, style
from ..bregman import directional_bregman_divergence
from ..cells import CellAxes, rows_of
from ..facets import Panel, facets, labels
from . import Drawing, _selections, history_of, outcomes
from ._pages import Pages, Tables

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
    "bregman": Panel("Bregman divergence", "log"),
    "one_minus_corr": Panel(r"$1-\mathrm{corr}(W, W_{\mathrm{SVM}})$", "log"),
    "margin_gap": Panel("margin gap", "log"),
}
OTHER = "bregman_other_tokens"
KINDS = {"log_domain": "exact", "direct": "published arithmetic"}
"""Gradient -> name of its curves."""
LINES = {"exact": "-", "published arithmetic": "--", "published arithmetic and tokens": ":"}

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


def draw(tables: Tables, axes: CellAxes, remarks: Sequence[str] = ()) -> list[Drawing]:
    """Return a figure of curves for W, one for (K, Q), and the maps of the tokens."""
    counts = tables["mirror_descent_counts"]
    kinds = set(counts["parameterization"]) if "parameterization" in counts else {""}
    pages = Pages(
        "mirror_descent", CAPTION, _figure, NOTE, counts="mirror_descent_counts", x=("gradient",),
        panels=("p", "steps"), room=ROWS,
    )  # fmt: skip
    drawn: list[Drawing] = []
    for kind in sorted(kinds, reverse=True):  # W first
        cell = {"parameterization": kind} if kind else {}
        here = {name: rows_of(table, cell) for name, table in tables.items()}
        name = pages.name if kind in ("w", "") else f"{pages.name}_{kind}"
        drawn += replace(pages, name=name).draw(here, axes, remarks)
    return drawn + _selections.draw("mirror_descent_tokens", pages.counts, tables, axes, remarks)


def _figure(tables: Tables, axes: CellAxes) -> Figure:
    table = tables["mirror_descent"]
    table = table[table["step"] > 0]
    table = table[(table["quantity"] != OTHER) | (table["gradient"] == "direct")]
    kind = table["gradient"].map(lambda gradient: KINDS.get(gradient, style.plain(gradient)))
    kind = kind.where(table["quantity"] != OTHER, "published arithmetic and tokens")
    table = table.assign(svm=table["svm"].map(style.plain))
    norms = sorted(set(table["svm"]), key=_place)
    colours = style.colours(norms)
    order = {
        f"{norm}, {word}": {"color": colours[norm], "linestyle": LINES.get(word, "-.")}
        for norm in norms
        for word in dict.fromkeys([*LINES, *kind])
    }
    curve = table["svm"] + ", " + kind
    table = table.assign(
        panel=table["quantity"].mask(table["quantity"] == OTHER, "bregman"),
        row=labels(axes, table, axes.besides("gradient", "steps") or ["p"]),
        curve=pd.Categorical(curve, [name for name in order if name in set(curve)]),
    )
    return facets(
        table, "step", STATISTIC, hue="curve", row="row", col="panel", panels=PANELS, looks=order,
        x_label="step", log_x=True, size=(2.9, 2.4), share_x="row",
    )[0]  # fmt: skip
