"""Mirror descent with l_p potentials against the l_p SVMs (arXiv 2410.14581)."""

import re
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from .. import notation, statistics, style
from ..cells import groups, rows_of
from ..facets import curves, labels, named, panel_of
from . import CAPTIONS, MOST_PANELS, CellAxes, Drawing, Figure, LoadedSweep, Tables, paged
from ._numbers import arrays_of, certified, history_of, joined, outcomes, tidy
from ._selections import of_pairs

STATISTIC: statistics.Statistic = "mean"
"""That of the published figures."""

POWER = re.compile(r"frobenius|l(\d+(\.\d+)?)")
"""Norms of a strictly convex potential: their SVM has one solution."""

RULE = "parameterization"

OTHER = "bregman_other_tokens"
TOKENS = {"bregman": "its own tokens", OTHER: "tokens of the other run"}

FIGURES = {
    "": ("bregman", "log_domain"),
    "_published": ("bregman", "direct"),
    "_correlation": ("one_minus_corr", "log_domain"),
    "_gap": ("margin_gap", "log_domain"),
}
"""End of a figure's name -> its quantity, and the gradient of training."""


def tables(frames: LoadedSweep) -> Tables:
    """Return the quantities over the steps, selected tokens, and counts.

    `bregman` is D(W_svm / ||W_svm||_p, W / ||W||_p) with the p of training;
    `bregman_other_tokens` is the same for the SVM of the tokens that the run of that p selects.
    """
    keys = list(dict.fromkeys([*frames.axes, "optimizer.p", "optimizer.gradient"]))
    history = history_of(frames, certified(frames), keys)
    words = history["quantity"].astype(str).str.extract("^(one_minus_corr|margin_gap)_(.+)$")
    recorded = history.assign(quantity=words[0], svm=words[1])[words[0].notna()]
    values = pd.concat([recorded, _divergences(frames, keys)], ignore_index=True)
    table = statistics.summaries(values, [*keys, "svm", "quantity", "step"], "value", STATISTIC)
    table = table.sort_values("svm", key=lambda norms: norms.map(_place), kind="stable")
    return {
        "mirror_descent": table,
        "mirror_descent_tokens": of_pairs(frames),
        "mirror_descent_counts": outcomes(frames),
    }


def _divergences(frames: LoadedSweep, keys: Sequence[str]) -> pd.DataFrame:
    """Return the Bregman divergences over the steps of the certified instances with a path.

    NaN, hence counted as excluded, where the run of the SVM has not certified it.
    """
    apart = [key for key in keys if key not in ("optimizer.p", "optimizer.steps")]
    parts = []
    for _, cells in groups(certified(frames).dropna(subset="optimizer.p"), apart):
        runs = []
        for run, part in cells.groupby("run", sort=False):
            if "snapshots" in (arrays := arrays_of(frames, run)):
                kept = np.isin(arrays["seeds"], part["seed"])
                arrays = {name: values[kept] for name, values in arrays.items()}
                runs.append(({key: part[key].iloc[0] for key in keys}, arrays))
        for (cell, own), name in ((run, name) for run in runs for name in run[1]):
            norm = name.removesuffix("_W")
            if norm == name or (power := _power(norm)) is None:
                continue
            others = [of for key, of in runs if key["optimizer.p"] == power and name in of]
            for quantity, of in {"bregman": [own], OTHER: others}.items():
                if len(of) == 1:
                    svm = np.full(own[name].shape, np.nan)
                    pairs = np.intersect1d(own["seeds"], of[0]["seeds"], return_indices=True)
                    svm[pairs[1]] = of[0][name][pairs[2]]
                    value = directional_bregman_divergence(
                        svm[:, None], own["snapshots"], cell["optimizer.p"]
                    )
                    seeds = own["seeds"][:, None]
                    rows = tidy(("", "step"), value=value, seed=seeds, step=own["steps"])
                    parts.append(rows.assign(svm=norm, quantity=quantity, **cell))
    return joined(parts, [*keys, "svm", "quantity", "seed", "step", "value"])


def _power(norm: str) -> float | None:
    """Return p of the entry-wise l_p norm of that name, p > 1; None of others."""
    match = POWER.fullmatch(norm)
    return None if match is None or norm == "l1" else float(match[1] or 2)


def _place(norm: str) -> tuple[float, str]:
    """Return the place of a norm: entry-wise ones by their exponent, then the others."""
    return _power(norm) or np.inf, norm


def draw(tables: Tables, axes: CellAxes, remarks: Sequence[str]) -> list[Drawing]:
    """Return the figures for W, and those for (K, Q)."""
    known = set(tables["mirror_descent"]["optimizer.gradient"])
    drawings: list[Drawing] = []
    cells = groups(tables["mirror_descent_counts"], [name for name in [RULE] if name in axes.names])
    for cell, _ in [*cells][::-1]:
        part = {name: rows_of(table, cell) for name, table in tables.items()}
        prefix = "mirror_descent" if cell.get(RULE, "w") == "w" else f"mirror_descent_{cell[RULE]}"
        for end, (quantity, gradient) in FIGURES.items():
            if gradient in known or not (end or known):
                drawings += paged(
                    {f"{prefix}{end}": partial(_figure, quantity, gradient)},
                    part,
                    axes,
                    remarks,
                    caption=CAPTIONS[f"mirror_descent{end}"],
                    inner=["optimizer.gradient"],
                    panels=["optimizer.p", "optimizer.steps"],
                    room=MOST_PANELS,
                )
    return drawings


def _figure(quantity: str, gradient: str, tables: Tables, axes: CellAxes) -> Figure:
    table = tables["mirror_descent"]
    shown = [quantity, *([OTHER] if gradient == "direct" else [])]
    table = table[(table["optimizer.gradient"] == gradient) & table["quantity"].isin(shown)]
    norms = sorted({*table["svm"]}, key=_place)
    words = {norm: f"{notation.VALUES['norm'].get(norm, style.plain(norm))} SVM" for norm in norms}
    apart = axes.besides("optimizer.gradient", "optimizer.steps", RULE) or ["optimizer.p"]
    return curves(
        table.assign(
            col=labels(axes, table, apart),
            hue=named(table["svm"], words),
            dash=named(table["quantity"], TOKENS),
        ),
        "step",
        STATISTIC,
        panels=panel_of(quantity),
        log_x=True,
    )


def directional_bregman_divergence(W: Any, V: Any, p: float) -> np.ndarray:
    """Return D(w, v) of w = W / ||W||_p, v = V / ||V||_p, which is 0 exactly if these are equal.

    D(w, v) = psi(w) - psi(v) - <psi'(v), w - v> of psi(w) = sum_ij |w_ij|^p / p, for 1 < p < inf.
    It is 1 - <psi'(v), w>, so at most 2; with p = 2 it is 1 - correlation; NaN where a matrix is
    zero or not finite. The published figures show it for the SVM's W and the trained V. W and V are
    (..., d, d), their leading axes broadcast.
    """
    w, v = _unit(W, p), _unit(V, p)
    slope = np.sign(v) * np.abs(v) ** (p - 1)
    # entry by entry, since each entry's terms are >= 0 together
    terms = np.abs(w) ** p / p + (1 - 1 / p) * np.abs(v) ** p - slope * w
    return np.maximum(terms.sum((-2, -1)), 0.0)


def _unit(W: Any, p: float) -> np.ndarray:
    """Return W / ||W||_p; NaN where W is zero or not finite."""
    W = np.asarray(W, dtype=float)
    largest = np.abs(W).max((-2, -1), keepdims=True)
    usable = np.isfinite(largest) & (largest > 0)
    W = np.where(usable, W, np.nan) / np.where(usable, largest, 1.0)
    return W / (np.abs(W) ** p).sum((-2, -1), keepdims=True) ** (1 / p)
