"""Mirror descent with l_p potentials against the l_p SVMs (arXiv 2410.14581)."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from .. import statistics, style
from ..bregman import directional_bregman_divergence
from ..cells import rows_of
from ..facets import Panel, facets, labels
from . import CellAxes, Drawing, Figure, Pages, SweepFrames, Tables, _selections
from ._numbers import arrays_of, certified, history_of, joined, outcomes

STATISTIC: statistics.Statistic = "mean"
"""That of the published figures."""

POWER = re.compile(r"frobenius|l(\d+(\.\d+)?)")
"""Norms of a strictly convex potential: their SVM has one solution."""

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
    history = history_of(frames, certified(frames), keys)
    words, parts = history["quantity"].astype(str), []
    for quantity in ("one_minus_corr", "margin_gap"):
        part = history[words.str.startswith(f"{quantity}_")]
        svm = words[part.index].str.removeprefix(f"{quantity}_")
        parts.append(part.assign(quantity=quantity, svm=svm))
    return pd.concat(parts, ignore_index=True)


def _divergences(frames: SweepFrames, keys: Sequence[str]) -> pd.DataFrame:
    """Return the Bregman divergences over the steps of the certified instances with a path."""
    apart = [key for key in keys if key not in ("p", "steps")]
    parts: list[pd.DataFrame] = []
    for _, cells in certified(frames).groupby(apart, dropna=False, sort=True):
        known = [
            (dict(part.iloc[0][list(keys)]), arrays)
            for run, part in cells.groupby("run", sort=False)
            if (arrays := _with_path(frames, run, part)) and part["p"].notna().all()
        ]
        for cell, arrays in known:
            for norm in filter(_power, (n.removesuffix("_W") for n in arrays if n.endswith("_W"))):
                parts.append(_over_steps(cell, norm, "bregman", arrays, arrays))
                others = [found for one, found in known if one["p"] == _power(norm)]
                if len(others) == 1 and f"{norm}_W" in others[0]:
                    parts.append(_over_steps(cell, norm, OTHER, arrays, others[0]))
    return joined(parts, [*keys, "svm", "quantity", "seed", "step", "value"])


def _with_path(frames: SweepFrames, run: object, trials: pd.DataFrame) -> dict[str, np.ndarray]:
    """Return the arrays of these instances of a run; none without a path on record."""
    arrays = arrays_of(frames, run)
    if "snapshots" not in arrays:
        return {}
    kept = np.isin(arrays["seeds"], trials["seed"])
    return {name: values[kept] for name, values in arrays.items()}


def _power(norm: str) -> float | None:
    """Return p of the entry-wise l_p norm of that name, p > 1; None of others."""
    found = POWER.fullmatch(norm)
    return None if found is None or norm == "l1" else float(found[1] or 2)


def _place(norm: str) -> tuple[float, str]:
    """Return the place of a norm: entry-wise ones by their exponent, then the others."""
    return _power(norm) or np.inf, norm


Arrays = Mapping[str, np.ndarray]


def _over_steps(
    cell: dict[str, Any], norm: str, quantity: str, trained: Arrays, separated: Arrays
) -> pd.DataFrame:
    """Return the divergence of the trained directions from the SVMs of the same instances.

    NaN, hence counted as excluded, where the other run has no certified SVM.
    """
    path, steps, seeds = trained["snapshots"], trained["steps"], trained["seeds"]
    svm = np.full(path[:, 0].shape, np.nan)
    _, here, there = np.intersect1d(seeds, separated["seeds"], return_indices=True)
    svm[here] = separated[f"{norm}_W"][there]
    values = directional_bregman_divergence(svm[:, None], path, cell["p"])
    found = {"step": steps.ravel(), "value": values.ravel()}
    given = {"svm": norm, "quantity": quantity, "seed": np.repeat(seeds, steps.shape[1])}
    return pd.DataFrame(cell | given | found)


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
