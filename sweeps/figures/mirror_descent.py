"""Mirror descent with l_p potentials against the l_p SVMs (arXiv 2410.14581)."""

import re
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import product
from typing import Any

import numpy as np
import pandas as pd

from .. import notation, statistics, style
from ..cells import rows_of
from ..facets import curves, labels, named, panel_of
from . import CAPTIONS, MOST_PANELS, CellAxes, Drawing, Figure, LoadedSweep, Tables, paged
from ._numbers import arrays_of, certified, history_of, joined, outcomes
from ._selections import of_pairs

STATISTIC: statistics.Statistic = "mean"
"""That of the published figures."""

POWER = re.compile(r"frobenius|l(\d+(\.\d+)?)")
"""Norms of a strictly convex potential: their SVM has one solution."""

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
    """Return the quantities over the steps and at the last one, selected tokens, and counts.

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
    last = table.groupby(keys, dropna=False)["step"].transform("max")
    return {
        "mirror_descent": table,
        "mirror_descent_end": table[table["step"] == last].reset_index(drop=True),
        "mirror_descent_tokens": of_pairs(frames),
        "mirror_descent_counts": outcomes(frames.rows, frames.cells),
    }


def _divergences(frames: LoadedSweep, keys: Sequence[str]) -> pd.DataFrame:
    """Return the Bregman divergences over the steps of the certified instances with a path."""
    apart = [key for key in keys if key not in ("optimizer.p", "optimizer.steps")]
    parts: list[pd.DataFrame] = []
    for _, cells in certified(frames).groupby(apart, dropna=False, sort=True):
        runs = [
            (dict(zip(keys, part.iloc[0][list(keys)], strict=True)), arrays)
            for run, part in cells.groupby("run", sort=False)
            if (arrays := _with_path(frames, run, part)) and part["optimizer.p"].notna().all()
        ]
        for (cell, arrays), name in ((run, name) for run in runs for name in run[1]):
            norm = name.removesuffix("_W")
            if norm == name or _power(norm) is None:
                continue
            own = {"svm": norm, **cell}
            parts.append(_over_steps({**own, "quantity": "bregman"}, arrays, arrays[name], arrays))
            others = [
                there for of, there in runs if of["optimizer.p"] == _power(norm) and name in there
            ]
            if len(others) == 1:
                svm = others[0][name]
                parts.append(_over_steps({**own, "quantity": OTHER}, arrays, svm, others[0]))
    return joined(parts, [*keys, "svm", "quantity", "seed", "step", "value"])


def _with_path(frames: LoadedSweep, run: object, trials: pd.DataFrame) -> dict[str, np.ndarray]:
    """Return the arrays of these instances of a run; none without a path on record."""
    arrays = arrays_of(frames, run)
    if "snapshots" not in arrays:
        return {}
    kept = np.isin(arrays["seeds"], trials["seed"])
    return {name: values[kept] for name, values in arrays.items()}


def _power(norm: str) -> float | None:
    """Return p of the entry-wise l_p norm of that name, p > 1; None of others."""
    match = POWER.fullmatch(norm)
    return None if match is None or norm == "l1" else float(match[1] or 2)


def _place(norm: str) -> tuple[float, str]:
    """Return the place of a norm: entry-wise ones by their exponent, then the others."""
    return _power(norm) or np.inf, norm


def _over_steps(
    columns: Mapping[str, Any],
    trained: Mapping[str, np.ndarray],
    W: np.ndarray,
    separated: Mapping[str, np.ndarray],
) -> pd.DataFrame:
    """Return the divergence of the trained directions from the W of the same instances.

    NaN, hence counted as excluded, where the other run has no certified SVM.
    """
    path, steps, seeds = trained["snapshots"], trained["steps"], trained["seeds"]
    svm = np.full(path[:, 0].shape, np.nan)
    _, here, there = np.intersect1d(seeds, separated["seeds"], return_indices=True)
    svm[here] = W[there]
    values = directional_bregman_divergence(svm[:, None], path, columns["optimizer.p"])
    seed = np.repeat(seeds, steps.shape[1])
    return pd.DataFrame({**columns, "seed": seed, "step": steps.ravel(), "value": values.ravel()})


def draw(tables: Tables, axes: CellAxes, remarks: Sequence[str] = ()) -> list[Drawing]:
    """Return the figures for W, and those for (K, Q)."""
    rules = set(tables["mirror_descent_counts"].get("parameterization", [""]))
    known = set(tables["mirror_descent"]["optimizer.gradient"])
    drawings: list[Drawing] = []
    for rule, (end, (quantity, gradient)) in product(sorted(rules, reverse=True), FIGURES.items()):
        if gradient not in known and (end or known):
            continue
        cell = {"parameterization": rule} if rule else {}
        part = {name: rows_of(table, cell) for name, table in tables.items()}
        prefix = "mirror_descent" if rule in ("w", "") else f"mirror_descent_{rule}"
        figures = {f"{prefix}{end}": partial(_figure, quantity, gradient)}
        drawings += paged(
            figures,
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
    words = {norm: notation.VALUES["norm"].get(norm, style.plain(norm)) for norm in norms}
    apart = axes.besides("optimizer.gradient", "optimizer.steps", "parameterization") or [
        "optimizer.p"
    ]
    return curves(
        table.assign(
            col=labels(axes, table, apart),
            hue=named(table["svm"], {norm: f"{word} SVM" for norm, word in words.items()}),
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
