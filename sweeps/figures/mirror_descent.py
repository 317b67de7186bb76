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
from ..facets import Look, facets, labels, panel_of
from . import CAPTIONS, MOST_PANELS, CellAxes, Drawing, Figure, Pages, SweepFrames, Tables
from ._numbers import arrays_of, certified, history_of, joined, outcomes
from ._selections import of_pairs

STATISTIC: statistics.Statistic = "mean"
"""That of the published figures."""

POWER = re.compile(r"frobenius|l(\d+(\.\d+)?)")
"""Norms of a strictly convex potential: their SVM has one solution."""

OTHER = "bregman_other_tokens"
OF_OTHER_TOKENS = ", tokens of the other run"

FIGURES = {
    "": ("bregman", "log_domain"), "_published": ("bregman", "direct"),
    "_correlation": ("one_minus_corr", "log_domain"), "_gap": ("margin_gap", "log_domain"),
}  # fmt: skip
"""End of a figure's name -> its quantity, and the gradient of training."""


def tables(frames: SweepFrames) -> dict[str, pd.DataFrame]:
    """Return the quantities over the steps and at the last one, selected tokens, and counts.

    `bregman` is D(W_svm / ||W_svm||_p, W / ||W||_p) with the p of training;
    `bregman_other_tokens` is the same for the SVM of the tokens that the run of that p selects.
    """
    keys = list(dict.fromkeys([*frames.axes.names, "p", "gradient"]))
    history = history_of(frames, certified(frames), keys)
    words = history["quantity"].astype(str).str.extract("^(one_minus_corr|margin_gap)_(.+)$")
    recorded = history.assign(quantity=words[0], svm=words[1])[words[0].notna()]
    found = pd.concat([recorded, _divergences(frames, keys)], ignore_index=True)
    table = statistics.summaries(found, [*keys, "svm", "quantity", "step"], "value", STATISTIC)
    table = table.sort_values("svm", key=lambda norms: norms.map(_place), kind="stable")
    last = table.groupby(keys, dropna=False)["step"].transform("max")
    return {
        "mirror_descent": table,
        "mirror_descent_end": table[table["step"] == last].reset_index(drop=True),
        "mirror_descent_tokens": of_pairs(frames),
        "mirror_descent_counts": outcomes(frames.trials, frames.axes),
    }


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
    """Return the figures for W, and those for (K, Q)."""
    kinds = set(tables["mirror_descent_counts"].get("parameterization", [""]))
    known = set(tables["mirror_descent"]["gradient"])
    drawings: list[Drawing] = []
    for kind, (end, shown) in product(sorted(kinds, reverse=True), FIGURES.items()):  # W first
        if shown[1] not in known and (end or known):
            continue
        cell = {"parameterization": kind} if kind else {}
        here = {name: rows_of(table, cell) for name, table in tables.items()}
        name = f"mirror_descent{'' if kind in ('w', '') else f'_{kind}'}{end}"
        drawings += Pages(
            name, partial(_figure, *shown), x=("gradient",), panels=("p", "steps"),
            room=MOST_PANELS, **CAPTIONS[f"mirror_descent{end}"],
        ).draw(here, axes, remarks)  # fmt: skip
    return drawings


def _figure(quantity: str, gradient: str, tables: Tables, axes: CellAxes) -> Figure:
    table = tables["mirror_descent"]
    shown = [quantity, *([OTHER] if gradient == "direct" else [])]
    table = table[(table["gradient"] == gradient) & table["quantity"].isin(shown)]
    table = table[table["step"] > 0]
    norms = sorted(set(table["svm"]), key=_place)
    looks: dict[str, Look] = {}
    for norm, colour in style.colours(norms).items():
        word = notation.VALUES["norm"].get(norm, style.plain(norm))
        looks[norm] = {"color": colour, "label": f"{word} SVM"}
        looks[norm + OF_OTHER_TOKENS] = {"color": colour, "linestyle": ":", "label": "_"}
    curve = table["svm"].where(table["quantity"] != OTHER, table["svm"] + OF_OTHER_TOKENS)
    apart = axes.besides("gradient", "steps", "parameterization") or ["p"]
    table = table.assign(
        column=labels(axes, table, apart),
        curve=pd.Categorical(curve, [name for name in looks if name in set(curve)]),
    )
    return facets(
        table, "step", STATISTIC, hue="curve", col="column", looks=looks,
        panels=panel_of(quantity), x_label="step", log_x=True,
    )[0]  # fmt: skip


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
