"""Re-prove one stored SVM from its tokens, W and multipliers; nothing else of attnsvm is imported.

Token differences, margins d_k^T W z_k and M(a) = sum_k a_k d_k z_k^T are computed exactly. A stored
SVM is rejected unless everything that it states follows.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnsvm.verify.exact import (
    EPS,
    Array,
    Exact,
    RejectedError,
    norms,
    require,
    root,
    unit_rows,
)

RAY_RATIO = 10**12
MAX_GAP = 2e-2
DEPENDENT = 32 * EPS  # largest relative singular value at which unit equality rows are dependent
EQUALITY = 1.1e-11  # residual of an equality, relative to ||d_k|| ||z_k|| ||W||_F
RANK_TOLERANCE = 1e-6  # default threshold of the rank, relative to the largest singular value
STATED = 1e-11  # relative difference allowed between stated and recomputed number, plus rounding


@dataclass(frozen=True)
class StoredSvm:
    """One stored instance: its input, its solution and what is stated about it.

    X (n, T, d), Z (n, d), mask (n, T), selected (n,), W (d, d), multipliers and ray (N,) with rows
    as in `attnsvm.svm.SvmProblem`; scalars as in `SvmSolution`. With `attended` (n, T) it is
    Gen-SVM: its finite part where `log_softmax` (n, T) is given, its margin part where not;
    `selected` is then the first attended token of each sample.
    """

    X: Array
    Z: Array
    mask: NDArray[np.bool_]
    selected: NDArray[np.int64]
    norm: str
    status: str
    W: Array
    multipliers: Array
    ray: Array
    objective: float
    lower_bound: float
    duality_gap: float
    min_margin: float
    rank: int
    gap: float = 1e-9
    rank_tolerance: float = RANK_TOLERANCE
    attended: NDArray[np.bool_] | None = None
    log_softmax: Array | None = None


@dataclass(frozen=True)
class Proof:
    """Whether a stored SVM is proved, and if not what fails."""

    proved: bool
    reason: str


def verify(stored: StoredSvm) -> Proof:
    """Return whether the status and numbers follow from the tokens, W and multipliers.

    `solved`: W is feasible, exactly; the bracket from W and the multipliers is tight, including the
    cost of the residuals of equalities, given the singular values of their rows (those below 32 EPS
    count as zero); objective, lower bound, gap, least margin and rank follow from W and the
    multipliers. `infeasible`: the ray is non-negative and cancels to 1e-12. `unconstrained`: there
    is no token to separate. `undecided`: only the bracket is checked, if there is one.
    """
    try:
        rows = _Rows(stored)
        _CHECKS[stored.status](stored, rows)
    except RejectedError as reason:
        return Proof(False, str(reason))
    except (KeyError, ValueError, IndexError, OverflowError) as error:
        return Proof(False, f"malformed: {error!r}")
    return Proof(True, "")


class _Rows:
    """The exact rows d_k, z_k, h_k of a stored SVM: inequalities, equalities, padding."""

    def __init__(self, stored: StoredSvm) -> None:
        X, Z = Exact.of(stored.X), Exact.of(stored.Z)
        n, T = stored.mask.shape
        self.samples = Z
        self.sample, token = np.divmod(np.arange(n * max(T - 1, 1)), max(T - 1, 1))
        selected = stored.selected[self.sample]
        token = np.minimum(token + (token >= selected), T - 1)
        require(bool(stored.mask[np.arange(n), stored.selected].all()), "selected: masked token")
        self.inequality = stored.mask[self.sample, token] & (token != selected)
        self.equality = np.zeros_like(self.inequality)
        self.h = self.inequality.astype(float)
        if stored.attended is not None:
            self._general(stored, stored.attended, token)
        self.present = self.inequality | self.equality
        self.trivial = not self.h.any()
        difference = X.integers[self.sample, selected] - X.integers[self.sample, token]
        self.D = Exact(difference, X.exponent)
        self.squared_scale = [
            sum(int(x) ** 2 for x in d) * sum(int(z) ** 2 for z in Z.integers[i])
            for d, i in zip(difference, self.sample, strict=True)
        ]
        self.exponent = X.exponent + Z.exponent

    def _general(self, stored: StoredSvm, attended: NDArray[np.bool_], token: Any) -> None:
        """Change the rows to those of Gen-SVM."""
        first = attended.argmax(axis=1)
        require(bool((first == stored.selected).all()), "selected: not the first attended token")
        self.equality = self.inequality & attended[self.sample, token]
        if stored.log_softmax is None:
            self.inequality = self.inequality & ~self.equality
            self.h = self.inequality.astype(float)
        else:
            logs = stored.log_softmax
            ratio = logs[self.sample, first[self.sample]] - logs[self.sample, token]
            self.inequality = np.zeros_like(self.equality)
            self.h = np.where(self.equality, ratio, 0.0)

    def margins(self, W: Exact) -> list[Fraction]:
        """Return d_k^T W z_k, exactly."""
        moved = self.samples.integers @ W.integers.T
        margins = (self.D.integers * moved[self.sample]).sum(axis=1)
        unit = Fraction(2) ** (self.exponent + W.exponent)
        return [int(margin) * unit for margin in margins]

    def least_margin(self, W: Exact) -> Fraction | None:
        """Check the equalities; return the least margin of the inequalities, None without any."""
        margins = self.margins(W)
        size = float(root(W.squared_norm())[1])
        for k in np.flatnonzero(self.equality):
            residual = abs(float(margins[k] - Fraction(float(self.h[k]))))
            require(residual <= EQUALITY * self.scale(int(k)) * size, f"equality {k} is violated")
        least = min((margins[k] for k in np.flatnonzero(self.inequality)), default=None)
        if least is not None:
            require(least > 0, f"least margin {float(least):.3g}: must be > 0")
        return least

    def repair(self, W: Exact) -> tuple[float, float]:
        """Return the distance of W to where the equalities hold, 1 / their least singular value.

        Computed in the singular vectors of the unit rows; a direction of singular value zero must
        be consistent up to rounding. Without equalities the results are zero and one.
        """
        index = np.flatnonzero(self.equality)
        if not index.size:
            return 0.0, 1.0
        scale = [self.scale(int(k)) or 1.0 for k in index]
        margins = self.margins(W)
        missed = np.array(
            [float((Fraction(float(self.h[k])) - margins[k]) / Fraction(s))
             for k, s in zip(index, scale, strict=True)]
        )  # fmt: skip
        D, Q = unit_rows(self.D, index), unit_rows(self.samples, self.sample[index])
        E = (D[:, :, None] * Q[:, None, :]).reshape(index.size, -1)
        U, S, _ = np.linalg.svd(E, full_matrices=index.size > E.shape[1])
        apart = np.zeros(U.shape[1], dtype=bool)
        apart[: S.size] = DEPENDENT * S[0] < S
        missed = U.T @ missed
        size = float(root(W.squared_norm())[1])
        allowed = (4 * D.shape[1] + 20) * EPS * size
        require(bool((abs(missed[~apart]) <= allowed).all()), "dependent equalities contradict")
        S = S[apart[: S.size]]
        return float(np.linalg.norm(missed[apart] / S)), float(1 / min(S.min(initial=1.0), 1.0))

    def value(self, a: Exact) -> Fraction:
        """Return h^T a, exactly."""
        h = Exact.of(self.h)
        return Fraction(int(h.integers @ a.integers)) * Fraction(2) ** (h.exponent + a.exponent)

    def combine(self, a: Exact) -> Exact:
        """Return M(a) = sum_k a_k d_k z_k^T."""
        weighted = self.D.integers * a.integers[:, None]
        by_sample = np.zeros(self.samples.integers.shape, dtype=object)
        np.add.at(by_sample, self.sample, weighted)
        return Exact(by_sample.T @ self.samples.integers, self.exponent + a.exponent)

    def scale(self, k: int) -> float:
        """Return ||d_k|| ||z_k|| to a few units in the last place."""
        return float(root(Fraction(self.squared_scale[k]) * Fraction(4) ** self.exponent)[0])


def _check_solved(stored: StoredSvm, rows: _Rows) -> None:
    """Prove the bracket and every stated number."""
    require(not rows.trivial, "solved, but there is no token to separate")
    W, a = Exact.of(stored.W), Exact.of(_clean(stored.multipliers, rows))
    size, error = norms(W, stored.norm)
    dual, dual_error = norms(rows.combine(a), stored.norm, dual=True)
    least, total = rows.least_margin(W), rows.value(a)
    require(total > 0 and dual > 0, "the multipliers prove no bound")
    distance, condition = rows.repair(W)
    spread = 1.0 if stored.norm == "frobenius" else math.sqrt(len(stored.W))
    separating = [rows.scale(int(k)) for k in np.flatnonzero(rows.inequality)]
    lost = Fraction(max(separating, default=0.0) * distance)
    size += Fraction(spread * distance)
    margin = Fraction(1) if least is None else least
    require(margin > lost and lost < 1, "equalities are violated by more than the margins allow")
    upper, lower = size / (margin - lost), total / dual
    longest = max(rows.scale(int(k)) for k in np.flatnonzero(rows.present))
    kappa = float(root(W.squared_norm())[1]) * longest * condition
    require(not rows.equality.any() or 64 * EPS * kappa <= MAX_GAP, "equalities too dependent")
    rounding = STATED + 64 * EPS * kappa * stored.X.shape[2]
    target = min(max(stored.gap, 64 * EPS * kappa), MAX_GAP)
    gap = float(upper / lower - 1)
    require(gap <= target + rounding * 1e-3, f"the bracket proves only a gap of {gap:.3g}")
    exactly = (rounding if rows.equality.any() else STATED) + error
    _agree("objective", stored.objective, float(size / (1 - lost)), exactly)
    _agree("lower_bound", stored.lower_bound, float(lower), rounding + dual_error)
    _agree("min_margin", stored.min_margin, math.inf if least is None else float(least), rounding)
    stated = stored.objective / stored.lower_bound - 1
    require(abs(stored.duality_gap - stated) <= 4 * EPS, "duality_gap does not match the bounds")
    _check_rank(stored)


def _check_infeasible(stored: StoredSvm, rows: _Rows) -> None:
    """Prove that the ray cancels: sum_k |a_k| ||d_k|| ||z_k|| >= 1e12 ||M(a)||_F.

    The sum runs over h_k != 0, times h^T a / sum_k |h_k a_k|.
    """
    ray = Exact.of(_clean(stored.ray, rows))
    value, weight = rows.value(ray), rows.value(Exact(abs(ray.integers), ray.exponent))
    if stored.log_softmax is not None:
        weight = Fraction(float(np.abs(rows.h * stored.ray).sum()))
    require(value > 0, "the ray has h^T a <= 0")
    require(bool(np.isnan(stored.W).all()), "infeasible, but there is a W")
    require(stored.objective == math.inf, "infeasible, but the objective is finite")
    cancelled = root(rows.combine(ray).squared_norm())[1]
    unit = Fraction(2) ** (rows.exponent + ray.exponent)
    reach = sum(
        abs(int(a)) * math.isqrt(s)
        for a, s, h in zip(ray.integers, rows.squared_scale, rows.h, strict=True)
        if h
    )
    require(reach * unit * value >= RAY_RATIO * cancelled * weight, "the ray does not cancel")


def _check_unconstrained(stored: StoredSvm, rows: _Rows) -> None:
    require(rows.trivial, "unconstrained, but there are tokens to separate")
    require(not stored.W.any() and stored.objective == 0.0, "unconstrained, but W is not zero")


def _check_undecided(stored: StoredSvm, rows: _Rows) -> None:
    """Prove the part of the bracket that is stated; an undecided SVM states nothing else."""
    if math.isfinite(stored.objective):
        W = Exact.of(stored.W)
        rows.least_margin(W)
        bound, error = norms(W, stored.norm)
        size = float(bound)
        if rows.equality.any():  # the objective includes the cost of their residuals
            least = size * (1 - STATED - error)
            require(stored.objective >= least, "objective is less than norm(W)")
        else:
            _agree("objective", stored.objective, size, STATED + error)


_CHECKS = {
    "solved": _check_solved,
    "infeasible": _check_infeasible,
    "unconstrained": _check_unconstrained,
    "undecided": _check_undecided,
}


def _check_rank(stored: StoredSvm) -> None:
    """Prove the numerical rank, up to singular values within their error of the threshold."""
    if stored.rank < 0:
        return
    require(stored.duality_gap <= 1e-8, "a rank is stated without a gap of 1e-8")
    sigma = np.linalg.svd(stored.W, compute_uv=False)
    error = 64 * EPS * len(sigma) * sigma[0]
    cut = stored.rank_tolerance * sigma[0]
    least, most = (sigma > cut + error).sum(), (sigma > cut - error).sum()
    require(least <= stored.rank <= most, f"rank is {least}, stated is {stored.rank}")


def _clean(a: Array, rows: _Rows) -> Array:
    require(a.shape == rows.present.shape, "multipliers: wrong shape")
    require(bool(np.isfinite(a).all()), "a multiplier is not finite")
    require(bool((a[rows.inequality] >= 0).all()), "a multiplier is negative")
    require(not a[~rows.present].any(), "a multiplier of padding is not zero")
    return a


def _agree(name: str, stated: float, proved: float, tolerance: float) -> None:
    close = stated == proved or abs(stated - proved) <= tolerance * abs(proved)
    require(close, f"{name} is {proved!r}, stated is {stated!r}")


def stored_svms(
    solution: Any,
    X: Array,
    Z: Array,
    selected: Any,
    mask: Any = None,
    rank_tolerance: float = RANK_TOLERANCE,
) -> Iterator[StoredSvm]:
    """Yield each instance of a batched NumPy `SvmSolution` of Att-SVM, with its input."""
    mask = np.ones(X.shape[:3], dtype=bool) if mask is None else mask
    proof = solution.certificate
    for b, status in enumerate(solution.status):
        yield StoredSvm(
            X=X[b],
            Z=Z[b],
            mask=mask[b],
            selected=np.asarray(selected[b]),
            norm=solution.norm,
            status=str(status),
            W=solution.W[b],
            multipliers=proof.multipliers[b],
            ray=proof.ray[b],
            objective=float(solution.objective[b]),
            lower_bound=float(solution.lower_bound[b]),
            duality_gap=float(solution.duality_gap[b]),
            min_margin=float(solution.min_margin[b]),
            rank=int(solution.rank[b]),
            rank_tolerance=rank_tolerance,
        )
