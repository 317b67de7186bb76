"""The notation of the field: what figures call solutions, columns, and cells of a sweep."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .cells import DIGITS, CellAxes, number
from .style import plain

SVMS = {
    "frobenius": r"$W_{\mathrm{mm}}$",
    "nuclear": r"$W_{\star,\mathrm{mm}}$",
    "svmeq": r"$W_{\mathrm{svmeq}}$",
    "1token": r"$W_{\mathrm{1token}}$",
}
"""Norm of an SVM, or end of the column that compares with it -> its solution."""

DISTANCE = r"$1-\mathrm{{corr}}(W, {})$".format
"""Label of the 1-correlation with a solution, whose name in mathematics is given without $."""

RULES = {"w": "$W$", "kq": "$(K, Q)$"}
"""Parameterization -> what is trained."""

COLUMNS = {
    "d": "token dimension $d$", "n": "samples $n$", "T": "tokens $T$", "p": "$p$",
    "m": "columns $m$ of $K$ and $Q$", "lam": r"$\lambda$", "lr": r"step size $\eta$",
    "W_norm": r"$\|W\|_F$", "max_softmax": "largest softmax, mean over samples",
    "attended_tokens": "attended tokens per sample", "margin_gap_nuclear": "nuclear margin gap",
    "balance_gap": r"$\|K^\top K-Q^\top Q\|_F / \|K\|_F\|Q\|_F$",
    "ridge": r"ridge (weight of $\|K\|^2+\|Q\|^2$)",
    **{f"one_minus_corr_{svm}": DISTANCE(name.strip("$")) for svm, name in SVMS.items()},
    **{f"{norm}_rank": f"rank of {SVMS[norm]}" for norm in ("frobenius", "nuclear")},
}  # fmt: skip
"""Column of a table -> label of its axis."""

SYMBOLS = {"n": "n", "T": "T", "d": "d", "m": "m", "p": "p", "lam": r"\lambda", "lr": r"\eta",
           "beta": r"\beta"}  # fmt: skip
"""Fields of numbers that have a letter in the theory."""

VALUES: dict[str, dict[Any, str]] = {
    "parameterization": RULES,
    "gradient": {"direct": "published arithmetic", "log_domain": "exact"},
    "optimizer": {
        "normalized_gd": "normalised GD", "gd": "GD", "steepest": "steepest", "muon": "Muon",
        "adam": "Adam", "momentum": "momentum", "polyak": "Polyak", "safe_gd": "safe GD",
    },
    "norm": {
        "frobenius": "Frobenius", "spectral": "spectral", "nuclear": "nuclear", "l1": r"$\ell_1$",
        "max": r"$\ell_\infty$", "schatten4": "Schatten-4", "l1.75": r"$\ell_{1.75}$",
        "l3": r"$\ell_3$",
    },
    "causal": {True: "causal mask", False: "no mask"},
    "residual": {True: "residual", False: "no residual"},
    "train": {True: "head learned", False: "head fixed"},
    "nesterov": {True: "Nesterov", False: ""},
    "beta": {0.0: ""},
    "ridge": {0.0: "no ridge"},
    "growth": {0.0: "constant steps"},
    "schedule": {"linear": "", "decay": "falling steps"},
}  # fmt: skip
"""Field -> what its values are called; values without a word go without saying."""

UNITS = {"init": "{} start", "loss": "{} loss", "steps": "{} steps", "growth": "growth {}",
         "ridge": "ridge {}", "norm": "{} norm", "schedule": "{} steps"}  # fmt: skip
"""Field -> how its other values are called."""


def label(axes: CellAxes, cell: Mapping[str, Any]) -> str:
    """Return the name of a cell in a figure: `$d=4$, exact`.

    Without the fields that its optimizer does not have; as a user types it if nothing is left.
    """
    parts = (_part(axes, name, value, "optimizer" in cell) for name, value in cell.items())
    return ", ".join(filter(None, parts)) or plain(axes.label(cell))


def values(axes: CellAxes, cell: Mapping[str, Any]) -> str:
    """Return what the values of a cell are called in a figure: `4, exact`."""
    numbers = {name: number(one, axes.digits.get(name, DIGITS)) for name, one in cell.items()}
    words = {name: VALUES.get(name, {}).get(one) for name, one in cell.items()}
    return ", ".join(words[name] or plain(numbers[name]) for name in cell)


def _part(axes: CellAxes, name: str, value: Any, of_optimizer: bool) -> str:
    missing = value is None or value != value
    if missing and of_optimizer and axes.typed.get(name, "").startswith("optimizer."):
        return ""
    word, typed, name = number(value, axes.digits.get(name, DIGITS)), name, name.rpartition(".")[2]
    if not missing and value in VALUES.get(name, {}):
        return VALUES[name][value]
    if name in SYMBOLS and not missing and not isinstance(value, str):
        return f"${SYMBOLS[name]}={word}$"
    return plain(UNITS[name].format(word) if name in UNITS else f"{typed}={word}")


def column(name: str) -> str:
    """Return the label of the axis of a column, as itself if it has no other name."""
    return COLUMNS.get(name.rpartition(".")[2], plain(name))
