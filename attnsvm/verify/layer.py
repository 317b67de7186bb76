"""The numbers of one layer that follow from its W and its SVMs, by arithmetic of their own.

Nothing here imports torch or the library: correlations, margin gaps and ranks of a record are
compared with these as well as with those that the library computes again.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from attnsvm.verify.constraints import ExactRows, StoredSvm
from attnsvm.verify.directions import (
    one_minus_correlation,
    svmeq,
    svmeq_factors,
    svmeq_least_squares,
)
from attnsvm.verify.exact import EPS, Array, Exact, computed, upper_bound
from attnsvm.verify.svm import Proof, verify

TABLED = {"objective": "objective", "lower_bound": "lower_bound", "gap": "duality_gap",
          "min_margin": "min_margin"}  # fmt: skip
"""Column of `trials.parquet`, without its norm -> number of `solutions.npz`."""

KAPPA = 1e-6
"""Relative error of kappa where equality rows are nearly dependent."""

SPAN = 1e-9
"""Relative error of the direction W_fin + C W_mm."""


@dataclass(frozen=True)
class Expected:
    """What a stored value may be: a number of an interval (low, high), or another value.

    Whole numbers are in an interval of whole numbers only; one of NaN holds NaN only.
    """

    choices: tuple[Any, ...]

    def allows(self, stated: Any) -> bool:
        """Whether `stated` is in an interval, or one of the values, and of its type."""
        return any(_allows(choice, stated) for choice in self.choices)

    def __str__(self) -> str:
        return " or ".join(map(_text, self.choices))


def _allows(choice: Any, stated: Any) -> bool:
    if not isinstance(choice, tuple):
        return type(stated) is type(choice) and stated == choice
    low, high = choice
    if math.isnan(low) or math.isnan(high):
        return type(stated) is float and math.isnan(stated)
    return type(stated) is type(low) and bool(low <= stated <= high)


def _text(choice: Any) -> str:
    if not isinstance(choice, tuple):
        return str(choice)
    low, high = choice
    if isinstance(low, int):
        return str(low) if low == high else f"{low} to {high}"
    return f"{low if low == high else (low + high) / 2:.17g}"


MISSING = Expected((None,))


def number(value: float, error: float = 0.0) -> Expected:
    """Return the numbers within `error` of `value`; an infinite value allows itself only.

    With an infinite error rounding decides even whether the number is defined.
    """
    value, error = float(value), float(error)
    if math.isinf(value):
        error = 0.0
    near = (value - error, value + error)
    return Expected((near, (math.nan, math.nan)) if math.isinf(error) else (near,))


def whole(low: int, high: int) -> Expected:
    """Return the whole numbers from `low` to `high`."""
    return Expected(((int(low), int(high)),))


@dataclass
class LayerProof:
    """What follows from the arrays of one instance, or of one layer and head.

    Attributes
    ----------
    config : mapping
        The recorded config.
    at : mapping
        The stored arrays.
    """

    config: Mapping[str, Any]
    at: Mapping[str, Any]
    svms: dict[str, StoredSvm] = field(init=False)
    proofs: dict[str, Proof] = field(init=False)

    def __post_init__(self) -> None:
        self.svms = StoredSvm.all_of(self.at, self.config["svm"])
        self.proofs = {name: verify(svm) for name, svm in self.svms.items()}

    def refusals(self) -> Iterator[tuple[str, str]]:
        """Yield the SVMs that are not proved, and the factors whose product is not W."""
        for name, proof in self.proofs.items():
            if not proof.proved:
                yield name, f"{self.svms[name].status}: {proof.reason}"
        m = self.config["parameterization"].get("m")
        tokens = self.config["selection"]["tokens"]
        nuclear = self.svms.get("nuclear")
        if tokens != "multi" and m is not None and nuclear is not None and _beyond(nuclear, m):
            yield "nuclear", f"its rank is more than m = {m}"
        if "trained_K" in self.at:
            K, Q, W = (self.at[f"trained_{name}"] for name in "KQW")
            apart = 8 * (K.shape[1] + 2) * EPS * np.linalg.norm(K) * np.linalg.norm(Q)
            same = K.shape == Q.shape and bool((np.abs(W - K @ Q.T) <= apart).all())
            if not same and np.isfinite(W).all():
                yield "trained_K", "K Q^T is not the trained W"

    def support(self, name: str) -> tuple[Any, Any]:
        """Return the support tokens of an SVM, (n, T), for certain and possibly; none without W."""
        rows = self.proofs[name].rows
        if self.proofs[name].proved and rows is not None and np.isfinite(self.svms[name].W).all():
            return rows.support()
        none = np.zeros(self.svms[name].mask.shape, dtype=bool)
        return none, none

    def columns(self) -> dict[str, Expected]:
        """Return what the columns that are proved here may hold."""
        columns: dict[str, Expected] = {}
        tokens, norms = self.config["selection"]["tokens"], list(self.config["svm"]["norms"])
        for norm in norms:
            svm = self.svms[norm]
            columns[f"{norm}_status"] = Expected((svm.status,))
            for column, name in TABLED.items():
                columns[f"{norm}_{column}"] = number(getattr(svm, name))
            proof = self.proofs[norm]
            found = svm_columns(svm, proof.rows) if proof.proved and proof.rows else {}
            columns |= {f"{norm}_{name}": value for name, value in found.items()}
        if tokens == "optimal":
            return columns
        W = self.at["trained_W"]
        for norm in norms:
            gap = self._margin_gap(norm, W)
            if tokens == "multi":
                gap = attained_gap(self.at, norm, self.proofs["one_token"].rows)
                factors = svmeq_factors(W, *self._parts(norm), SPAN)
                columns[f"svmeq_C_{norm}"] = Expected((factors,))
            columns[f"{norm}_margin_gap"] = number(*gap)
        return columns | {name: number(*pair) for name, pair in self._correlations(W).items()}

    def _parts(self, norm: str) -> tuple[Array, Array]:
        return self.svms[f"{norm}_fin"].W, self.svms[norm].W

    def _margin_gap(self, norm: str, W: Array) -> tuple[float, float]:
        """Return 1 - ||W_mm|| min_k d_k^T W z_k / ||W|| and its error bound."""
        svm, rows = self.svms[norm], self.proofs[norm].rows
        if svm.status != "solved" or rows is None or not (np.isfinite(W).all() and W.any()):
            return math.nan, 0.0
        W = W / max(float(np.abs(W).max()), np.finfo(float).tiny)  # its scale does not matter
        margins, length = rows.margins_of(Exact.of(W)), float(np.linalg.norm(W))
        index = np.flatnonzero(rows.inequality)
        least = min((float(margins[k]) for k in index), default=math.inf)
        apart = max((rows.rounding(int(k), length) for k in index), default=0.0)
        ratio = svm.objective / computed(W, norm)
        error = ratio * (apart + 64 * len(W) * EPS * abs(least)) + 4 * EPS
        return 1 - ratio * least, error

    def _correlations(self, W: Array) -> dict[str, tuple[float, float]]:
        """Return every 1 - correlation of W (d, d), with error bounds."""
        norms = self.config["svm"]["norms"]
        multi = self.config["selection"]["tokens"] == "multi"
        targets = {"one_minus_corr_1token": "one_token"} if multi else {}
        targets |= {f"one_minus_corr_{norm}": norm for norm in norms}
        found = {
            column: one_minus_correlation(W, self.svms[name].W) for column, name in targets.items()
        }
        for norm in norms if multi else ():
            parts = self._parts(norm)
            name = "" if norm == "frobenius" else f"_{norm}"
            best = svmeq(W, *parts)
            found[f"one_minus_corr_svmeq{name}"] = one_minus_correlation(W, best, SPAN)
            if norm == "frobenius":
                published = svmeq_least_squares(W, *parts)
                found["one_minus_corr_svmeq_lsq"] = one_minus_correlation(W, published, SPAN)
        return found


def svm_columns(stored: StoredSvm, rows: ExactRows) -> dict[str, Expected]:
    """Return what kappa, rank, rank_bound and support of a proved SVM may be."""
    if not math.isfinite(stored.objective):
        missing = dict.fromkeys(("rank", "rank_bound", "support"), MISSING)
        return {"kappa": number(math.inf), **missing}
    return {
        "kappa": number(rows.kappa, KAPPA * rows.kappa),
        "rank": MISSING if stored.rank < 0 else whole(stored.rank, stored.rank),
        "rank_bound": _rank_bound(stored, rows),
        "support": whole(*(int(tokens.sum()) for tokens in rows.support())),
    }


def _rank_bound(stored: StoredSvm, rows: ExactRows) -> Expected:
    """Return the bound of the numerical rank, see `SvmSolution.rank_bound`."""
    n, d = stored.Z.shape
    if rows.trivial:
        return whole(0, 0)
    if stored.norm == "frobenius":
        return whole(min(n, d), min(n, d))
    if stored.norm != "nuclear":
        return MISSING
    spread = max(stored.objective - stored.lower_bound, 0.0)
    spread += (2 * d + 10) * EPS * rows.kappa * stored.objective
    slack = spread / (stored.rank_tolerance * np.linalg.norm(stored.W, 2))
    M = rows.combine(Exact.of(stored.multipliers)).floats()
    sizes = np.linalg.svd(M, compute_uv=False)
    error = 1e-8 * slack + 64 * d * EPS
    least, most = (int((sizes >= 1 - slack + sign * error).sum()) for sign in (1, -1))
    known = whole(least, most).choices if slack < 1 + error else ()
    return Expected((*known, *(MISSING.choices if slack >= 1 - error else ())))


def attained_gap(at: Mapping[str, Any], norm: str, rows: ExactRows | None) -> tuple[float, float]:
    """Return 1 - C h^T a / (dual_norm(M(a)) norm(W)) and its error bound; NaN without multipliers.

    It is the margin gap of Gen-SVM: how far the norm of W is above the least one with its softmax.
    With `rows` d_k, z_k of the most attended tokens alpha_i against the others, the trained W has
    margins d_k^T W z_k = C h_k at attended tokens and >= C h_k, h_k = 1, at the others, so that
    norm(W) is at least C h^T a / dual_norm(M(a)) for every a, a_k >= 0 at the others.
    """
    a, W = at[f"{norm}_attained_multipliers"], at["trained_W"]
    if rows is None or not (np.isfinite(a).all() and a.any()):
        return math.nan, 0.0
    log_s, present = at["log_softmax"], rows.present
    attended = at["attended"][rows.sample, rows.token]
    outside = present & ~attended
    if not outside.any() or (a[outside] < 0).any() or a[~present].any():
        return math.nan, 0.0
    first = log_s[rows.sample, at["selected"][rows.sample]]
    ratio = np.where(present, first - log_s[rows.sample, rows.token], 0.0)
    terms = a * np.where(outside, ratio[outside].min(), ratio)
    size = float(upper_bound(rows.combine(Exact.of(a)), norm, dual=True)[0])
    if not size * computed(W, norm) > 0:
        return math.nan, 0.0
    bound = float(terms.sum()) / (size * computed(W, norm))
    reach = sum(abs(a[k]) * rows.scale(int(k)) for k in np.flatnonzero(a))
    lost = reach / size + np.abs(terms).sum() / max(abs(float(terms.sum())), 1e-300)
    return 1 - bound, 64 * (len(W) + log_s.shape[1]) * EPS * (abs(bound) * lost + 1)


def _beyond(svm: StoredSvm, m: int) -> bool:
    """Return whether the numerical rank of W is above m."""
    if not np.isfinite(svm.W).all():
        return False
    sigma = np.linalg.svd(svm.W, compute_uv=False)
    return bool((sigma[m:] > svm.rank_tolerance * sigma[0] * (1 + 1e-12)).any())
