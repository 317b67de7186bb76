r"""Re-prove a stored solution from its tokens, W and multipliers; no solver is imported.

Every float64 is a dyadic number, so token differences, margins d_k^T W z_k and
M(a) = sum_k a_k d_k z_k^T are computed exactly, in Python's integers. Frobenius norms follow
exactly (squared). Nuclear and spectral norms come from a floating-point SVD with a rigorous bound
of its error: with the computed U, s, V and the residual R = A - U s V^T,

    ||A||_op <= s_1 u v + ||R||_F,      ||A||_* <= (sum_i s_i) u v + sqrt(d) ||R||_F,
    u = ||U||_op <= sqrt(1 + ||U^T U - I||_F),  v alike.

A record is rejected unless everything that it states follows.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Integers = NDArray[np.object_]

EPS = 2.0**-52
RAY_RATIO = 10**12
MAX_GAP = 2e-2
DEPENDENT = 32 * EPS  # relative singular value from which on unit equality rows are dependent
EQUALITY = 1.1e-11  # residual of an equality, relative to ||d_k|| ||z_k|| ||W||_F
STATED = 1e-11  # how far a stated number may be from the recomputed one, relative, beyond rounding


@dataclass(frozen=True)
class Record:
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
    attended: NDArray[np.bool_] | None = None
    log_softmax: Array | None = None


@dataclass(frozen=True)
class Proof:
    """Whether a record is proved, and if not what fails."""

    proved: bool
    reason: str


class _RejectedError(Exception):
    """Raised with what does not hold."""


def verify(record: Record) -> Proof:
    """Return whether the record's status and numbers follow from its tokens, W and multipliers.

    `solved`: W is feasible, exactly; the bracket from W and the multipliers is as tight as `solved`
    demands, with what the residuals of equalities may cost, given the singular values of their rows
    (those below 32 EPS count as zero); objective, lower bound, gap, least
    margin and rank are those of W and the multipliers.
    `infeasible`: the ray is non-negative and cancels to 1e-12. `unconstrained`: no token to
    separate. `undecided` claims nothing beyond its bracket, which is checked where there is one.
    """
    try:
        rows = _Rows(record)
        _CHECKS[record.status](record, rows)
    except _RejectedError as reason:
        return Proof(False, str(reason))
    except (KeyError, ValueError, IndexError, OverflowError) as error:
        return Proof(False, f"malformed: {error!r}")
    return Proof(True, "")


class _Exact:
    """An array of dyadic numbers: integers times 2^exponent."""

    def __init__(self, integers: Integers, exponent: int) -> None:
        self.integers, self.exponent = integers, exponent

    @classmethod
    def of(cls, x: Array) -> _Exact:
        """Return the float64 array exactly."""
        _require(bool(np.isfinite(x).all()), "a number is not finite")
        mantissa, exponent = np.frexp(x)
        whole = np.ldexp(mantissa, 53).astype(np.int64)
        least = int(exponent[whole != 0].min()) if whole.any() else 0
        shift = np.where(whole != 0, exponent - least, 0)
        return cls(whole.astype(object) << shift.astype(object), least - 53)

    def fraction(self, value: Any) -> Fraction:
        """Return one of the integers (or a sum of them) as the number that it stands for."""
        return Fraction(int(value)) * Fraction(2) ** self.exponent

    def floats(self) -> Array:
        """Return the nearest float64 of each entry."""
        flat = [float(self.fraction(value)) for value in self.integers.ravel()]
        return np.array(flat).reshape(self.integers.shape)

    def squared_norm(self) -> Fraction:
        """Return the exact sum of squares."""
        total = sum(int(value) ** 2 for value in self.integers.ravel())
        return Fraction(total) * Fraction(4) ** self.exponent


class _Rows:
    """The exact rows d_k, z_k, h_k of a record: inequalities, equalities, padding."""

    def __init__(self, record: Record) -> None:
        X, Z = _Exact.of(record.X), _Exact.of(record.Z)
        n, T = record.mask.shape
        self.samples = Z
        self.sample, token = np.divmod(np.arange(n * max(T - 1, 1)), max(T - 1, 1))
        selected = record.selected[self.sample]
        token = np.minimum(token + (token >= selected), T - 1)
        _require(bool(record.mask[np.arange(n), record.selected].all()), "selected: not admissible")
        self.inequality = record.mask[self.sample, token] & (token != selected)
        self.equality = np.zeros_like(self.inequality)
        self.h = self.inequality.astype(float)
        if record.attended is not None:
            self._general(record, record.attended, token)
        self.present = self.inequality | self.equality
        self.trivial = not self.h.any()
        difference = X.integers[self.sample, selected] - X.integers[self.sample, token]
        self.D = _Exact(difference, X.exponent)
        self.squared_scale = [
            sum(int(x) ** 2 for x in d) * sum(int(z) ** 2 for z in Z.integers[i])
            for d, i in zip(difference, self.sample, strict=True)
        ]
        self.exponent = X.exponent + Z.exponent

    def _general(self, record: Record, attended: NDArray[np.bool_], token: Any) -> None:
        """Turn the rows into those of Gen-SVM."""
        first = attended.argmax(axis=1)
        _require(bool((first == record.selected).all()), "selected: not the first attended token")
        self.equality = self.inequality & attended[self.sample, token]
        if record.log_softmax is None:
            self.inequality = self.inequality & ~self.equality
            self.h = self.inequality.astype(float)
        else:
            logs = record.log_softmax
            ratio = logs[self.sample, first[self.sample]] - logs[self.sample, token]
            self.inequality = np.zeros_like(self.equality)
            self.h = np.where(self.equality, ratio, 0.0)

    def margins(self, W: _Exact) -> list[Fraction]:
        """Return d_k^T W z_k, exactly."""
        moved = self.samples.integers @ W.integers.T
        margins = (self.D.integers * moved[self.sample]).sum(axis=1)
        unit = Fraction(2) ** (self.exponent + W.exponent)
        return [int(margin) * unit for margin in margins]

    def least_margin(self, W: _Exact) -> Fraction | None:
        """Return the least margin over the inequalities, None without any; check the equalities."""
        margins = self.margins(W)
        size = float(_root(W.squared_norm())[1])
        for k in np.flatnonzero(self.equality):
            residual = abs(float(margins[k] - Fraction(float(self.h[k]))))
            _require(residual <= EQUALITY * self.scale(int(k)) * size, f"equality {k} is violated")
        least = min((margins[k] for k in np.flatnonzero(self.inequality)), default=None)
        if least is not None:
            _require(least > 0, f"least margin {float(least):.3g}: W separates nothing")
        return least

    def repair(self, W: _Exact) -> tuple[float, float]:
        """Return the distance of W to where the equalities hold, 1 / their least singular value.

        In the unit rows' singular vectors; a direction of singular value zero must be consistent to
        rounding. Zero and one without equalities.
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
        D, Q = _unit_rows(self.D, index), _unit_rows(self.samples, self.sample[index])
        E = (D[:, :, None] * Q[:, None, :]).reshape(index.size, -1)
        U, S, _ = np.linalg.svd(E, full_matrices=index.size > E.shape[1])
        apart = np.zeros(U.shape[1], dtype=bool)
        apart[: S.size] = DEPENDENT * S[0] < S
        missed = U.T @ missed
        size = float(_root(W.squared_norm())[1])
        allowed = (4 * D.shape[1] + 20) * EPS * size
        _require(bool((abs(missed[~apart]) <= allowed).all()), "dependent equalities contradict")
        S = S[apart[: S.size]]
        return float(np.linalg.norm(missed[apart] / S)), float(1 / min(S.min(initial=1.0), 1.0))

    def value(self, a: _Exact) -> Fraction:
        """Return h^T a, exactly."""
        h = _Exact.of(self.h)
        return Fraction(int(h.integers @ a.integers)) * Fraction(2) ** (h.exponent + a.exponent)

    def combine(self, a: _Exact) -> _Exact:
        """Return M(a) = sum_k a_k d_k z_k^T."""
        weighted = self.D.integers * a.integers[:, None]
        by_sample = np.zeros(self.samples.integers.shape, dtype=object)
        np.add.at(by_sample, self.sample, weighted)
        return _Exact(by_sample.T @ self.samples.integers, self.exponent + a.exponent)

    def scale(self, k: int) -> float:
        """Return ||d_k|| ||z_k|| to a few units in the last place."""
        return float(_root(Fraction(self.squared_scale[k]) * Fraction(4) ** self.exponent)[0])


def _unit_rows(A: _Exact, index: Any) -> Array:
    """Return the rows at `index` divided by their lengths; a zero row stays zero."""
    rows = A.floats()[index]
    largest = np.abs(rows).max(axis=1, keepdims=True)
    rows = rows / np.where(largest > 0, largest, 1.0)
    length = np.linalg.norm(rows, axis=1, keepdims=True)
    return np.asarray(rows / np.where(length > 0, length, 1.0))


def _check_solved(record: Record, rows: _Rows) -> None:
    """Prove the bracket and every stated number."""
    _require(not rows.trivial, "solved, but nothing asks W to be non-zero")
    W, a = _Exact.of(record.W), _Exact.of(_clean(record.multipliers, rows))
    size, error = _norms(W, record.norm)
    dual, dual_error = _norms(rows.combine(a), record.norm, dual=True)
    least, total = rows.least_margin(W), rows.value(a)
    _require(total > 0 and dual > 0, "the multipliers prove no bound")
    distance, condition = rows.repair(W)
    spread = 1.0 if record.norm == "frobenius" else math.sqrt(len(record.W))
    separating = [rows.scale(int(k)) for k in np.flatnonzero(rows.inequality)]
    lost = Fraction(max(separating, default=0.0) * distance)
    size += Fraction(spread * distance)
    margin = Fraction(1) if least is None else least
    _require(margin > lost and lost < 1, "equalities are violated by more than the margins hold")
    upper, lower = size / (margin - lost), total / dual
    longest = max(rows.scale(int(k)) for k in np.flatnonzero(rows.present))
    kappa = float(_root(W.squared_norm())[1]) * longest * condition
    _require(not rows.equality.any() or 64 * EPS * kappa <= MAX_GAP, "equalities too dependent")
    rounding = STATED + 64 * EPS * kappa * record.X.shape[2]
    target = min(max(record.gap, 64 * EPS * kappa), MAX_GAP)
    gap = float(upper / lower - 1)
    _require(gap <= target + rounding * 1e-3, f"the bracket proves a gap of {gap:.3g} only")
    exactly = (rounding if rows.equality.any() else STATED) + error
    _agree("objective", record.objective, float(size / (1 - lost)), exactly)
    _agree("lower_bound", record.lower_bound, float(lower), rounding + dual_error)
    _agree("min_margin", record.min_margin, math.inf if least is None else float(least), rounding)
    stated = record.objective / record.lower_bound - 1
    _require(abs(record.duality_gap - stated) <= 4 * EPS, "duality_gap is not that of the bounds")
    _check_rank(record)


def _check_infeasible(record: Record, rows: _Rows) -> None:
    """Prove that the ray cancels: sum_k |a_k| ||d_k|| ||z_k|| >= 1e12 ||M(a)||_F.

    The sum runs over h_k != 0, times h^T a / sum_k |h_k a_k|.
    """
    ray = _Exact.of(_clean(record.ray, rows))
    value, weight = rows.value(ray), rows.value(_Exact(abs(ray.integers), ray.exponent))
    if record.log_softmax is not None:
        weight = Fraction(float(np.abs(rows.h * record.ray).sum()))
    _require(value > 0, "the ray proves nothing")
    _require(bool(np.isnan(record.W).all()), "infeasible, but there is a W")
    _require(record.objective == math.inf, "infeasible, but the objective is finite")
    cancelled = _root(rows.combine(ray).squared_norm())[1]
    unit = Fraction(2) ** (rows.exponent + ray.exponent)
    reach = sum(
        abs(int(a)) * math.isqrt(s)
        for a, s, h in zip(ray.integers, rows.squared_scale, rows.h, strict=True)
        if h
    )
    _require(reach * unit * value >= RAY_RATIO * cancelled * weight, "the ray does not cancel")


def _check_unconstrained(record: Record, rows: _Rows) -> None:
    _require(rows.trivial, "unconstrained, but there are tokens to separate")
    _require(not record.W.any() and record.objective == 0.0, "unconstrained, but W is not zero")


def _check_undecided(record: Record, rows: _Rows) -> None:
    """Prove the part of the bracket that is stated; an undecided record claims no more."""
    if math.isfinite(record.objective):
        W = _Exact.of(record.W)
        rows.least_margin(W)
        bound, error = _norms(W, record.norm)
        size = float(bound)
        if rows.equality.any():  # the objective also has what their residuals may cost
            least = size * (1 - STATED - error)
            _require(record.objective >= least, "objective is less than norm(W)")
        else:
            _agree("objective", record.objective, size, STATED + error)


_CHECKS = {
    "solved": _check_solved,
    "infeasible": _check_infeasible,
    "unconstrained": _check_unconstrained,
    "undecided": _check_undecided,
}


def _check_rank(record: Record) -> None:
    """Prove the numerical rank: no singular value is within its error of 1e-6 sigma_1."""
    if record.rank < 0:
        return
    _require(record.duality_gap <= 1e-8, "a rank is stated without a gap of 1e-8")
    sigma = np.linalg.svd(record.W, compute_uv=False)
    error = 64 * EPS * len(sigma) * sigma[0]
    cut = 1e-6 * sigma[0]
    least, most = (sigma > cut + error).sum(), (sigma > cut - error).sum()
    _require(least <= record.rank <= most, f"rank is {least}, stated is {record.rank}")


def _clean(a: Array, rows: _Rows) -> Array:
    _require(a.shape == rows.present.shape, "multipliers: wrong shape")
    _require(bool(np.isfinite(a).all()), "a multiplier is not finite")
    _require(bool((a[rows.inequality] >= 0).all()), "a multiplier is negative")
    _require(not a[~rows.present].any(), "a multiplier belongs to no constraint")
    return a


def _norms(A: _Exact, norm: str, dual: bool = False) -> tuple[Fraction, float]:
    """Return a rigorous upper bound of the norm, or of its dual, and how far it may be above."""
    _require(norm in ("frobenius", "nuclear"), f"norm {norm!r} is unknown")
    if norm == "frobenius":
        return _root(A.squared_norm())[1], 0.0
    # One common exact scaling keeps the SVD clear of overflow and underflow.
    bits = max(int(abs(v)).bit_length() for v in A.integers.ravel())
    scaled = _Exact(A.integers, -bits)
    upper, computed = _spectral_upper(scaled.floats(), top_only=dual)
    error = 2 * (upper / computed - 1) if computed > 0 else 0.0
    return Fraction(upper) * Fraction(2) ** (A.exponent + bits), error


def _spectral_upper(A: Array, top_only: bool) -> tuple[float, float]:
    """Return an upper bound of ||A||_op (top_only) or ||A||_*, and the norm as computed.

    The bound has all rounding errors: gamma bounds that of an inner product of length m by
    m eps |x|^T |y| (Higham, Accuracy and Stability of Numerical Algorithms, section 3.1), and pays
    for the rounding of A itself. The true norm is as far below the computed one at most.
    """
    U, s, Vt = np.linalg.svd(A)
    d = len(A)
    gamma = 2 * (d + 2) * EPS
    residual = np.abs(A - (U * s) @ Vt) + gamma * (np.abs(A) + np.abs(U * s) @ np.abs(Vt))
    remainder = np.linalg.norm(residual) * (1 + d * d * EPS)
    stretch = math.prod(
        math.sqrt(1 + np.linalg.norm(np.abs(Q.T @ Q - np.eye(d)) + gamma * np.abs(Q.T) @ np.abs(Q)))
        for Q in (U, Vt.T)
    )
    main, rest = (s[0], remainder) if top_only else (s.sum(), math.sqrt(d) * remainder)
    return float((main * stretch + rest) * (1 + 4 * d * EPS)), float(main)


def _root(x: Fraction) -> tuple[Fraction, Fraction]:
    """Return lower and upper bounds of the square root, 2^-100 apart relatively."""
    if x == 0:
        return Fraction(0), Fraction(0)
    shift = 2 * max(0, 110 - (x.numerator.bit_length() - x.denominator.bit_length()) // 2)
    whole = math.isqrt((x.numerator << shift) // x.denominator)
    unit = Fraction(1, 1 << (shift // 2))
    return whole * unit, (whole + 1) * unit


def _agree(name: str, stated: float, proved: float, tolerance: float) -> None:
    close = stated == proved or abs(stated - proved) <= tolerance * abs(proved)
    _require(close, f"{name} is {proved!r}, stated is {stated!r}")


def _require(holds: bool, reason: str) -> None:
    if not holds:
        raise _RejectedError(reason)


def records(solution: Any, X: Array, Z: Array, selected: Any, mask: Any = None) -> Iterator[Record]:
    """Yield the records of a batched NumPy `SvmSolution` of Att-SVM with its input."""
    mask = np.ones(X.shape[:3], dtype=bool) if mask is None else mask
    proof = solution.certificate
    for b, status in enumerate(solution.status):
        yield Record(
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
        )
