"""Re-prove one stored SVM from its tokens, W and multipliers; nothing else of attnsvm is imported.

A stored SVM is rejected unless everything that it states follows.
"""

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from attnsvm.verify.constraints import ExactRows, StoredSvm
from attnsvm.verify.exact import (
    EPS,
    Array,
    Exact,
    RejectedError,
    require,
    root,
    spread,
    upper_bound,
)

RAY_RATIO = 10**12
MAX_GAP = 2e-2
NEAR = 1e-5  # distance from the threshold of the rank, relative to the largest singular value
STATED = 1e-11  # relative difference allowed between stated and recomputed number, plus rounding


@dataclass(frozen=True)
class Proof:
    """Whether a stored SVM is proved, and if not what fails; its rows unless they are malformed."""

    proved: bool
    reason: str
    rows: ExactRows | None = None


def verify(stored: StoredSvm) -> Proof:
    """Return whether the status and numbers follow from the tokens, W and multipliers.

    `solved`: W is feasible, exactly; the bracket from W and the multipliers is tight, including the
    cost of the residuals of equalities, given the singular values of their rows (those below 32 EPS
    count as zero); objective, lower bound, gap, least margin and rank follow from W and the
    multipliers. `infeasible`: the ray is non-negative and cancels to 1e-12. `unconstrained`: there
    is no token to separate. `undecided`: only the bracket is checked, if there is one.
    """
    rows = None
    try:
        every = rows = ExactRows(stored)
        if not np.isnan(stored.ray).all():
            total = float(np.abs(_clean(stored.ray, every)).sum())
            _agree("sum of the ray", total, 1.0, (len(stored.ray) + 10) * EPS)
        for rows in (ways := _ways(stored, every)):
            try:
                _CHECKS[stored.status](stored, rows)
                break
            except RejectedError:
                if rows is ways[-1]:
                    raise
    except RejectedError as reason:
        return Proof(False, str(reason), rows)
    except (KeyError, ValueError, IndexError, OverflowError) as error:
        return Proof(False, f"malformed: {error!r}")
    return Proof(True, "", rows)


def _ways(stored: StoredSvm, rows: ExactRows) -> list[ExactRows]:
    """Return the rows, and those without what is faint, as the certificate prefers them.

    All rows scale W unless rounding then hides more than the gap, and less if they do not.
    """
    if stored.status not in ("solved", "undecided") or not math.isfinite(stored.objective):
        return [rows]
    clear = ExactRows(stored, clear=True)
    if not clear.limits.any():
        return [rows]
    hidden, of_clear = (64 * EPS * way.kappa for way in (rows, clear))
    return [clear, rows] if hidden > max(stored.gap, of_clear) else [rows, clear]


def _check_solved(stored: StoredSvm, rows: ExactRows) -> None:
    """Prove the bracket and every stated number."""
    require(not rows.trivial, "solved, but there is no token to separate")
    size, error = upper_bound(rows.W, stored.norm)
    least = rows.least_margin(size)
    distance, lost = rows.repair[0], rows.lost
    size += Fraction(spread(stored.norm, len(stored.W)) * distance)
    margin = Fraction(1) if least is None else least
    require(margin > lost and lost < 1, "equalities are violated by more than the margins allow")
    kappa = rows.kappa
    held = rows.equality.any() or rows.limits.any()
    require(not held or 64 * EPS * kappa <= MAX_GAP, "equalities too dependent")
    rounding = STATED + 64 * EPS * kappa * stored.X.shape[2]
    lower = _check_lower_bound(stored, rows, rounding)
    require(lower > 0, "the multipliers prove no bound")
    target = min(max(stored.gap, 64 * EPS * kappa), MAX_GAP)
    gap = float(size / (margin - lost) / lower - 1)
    require(gap <= target + rounding * 1e-3, f"the bracket proves only a gap of {gap:.3g}")
    exactly = (rounding if held else STATED) + error
    _agree("objective", stored.objective, float(size / (1 - lost)), exactly)
    _agree("min_margin", stored.min_margin, math.inf if least is None else float(least), rounding)
    _check_gap(stored)
    _check_rank(stored)


def _check_infeasible(stored: StoredSvm, rows: ExactRows) -> None:
    """Prove that the ray cancels; there is no W, and the lower bound follows."""
    require(_proves_infeasible(stored, rows), "the ray does not cancel")
    _check_without_W(stored, rows)


def _proves_infeasible(stored: StoredSvm, rows: ExactRows) -> bool:
    """Return whether sum_k |a_k| ||d_k|| ||z_k|| >= 1e12 ||M(a)||_F for the ray a.

    The sum runs over h_k != 0, times h^T a / sum_k |h_k a_k|.
    """
    ray, h = Exact.of(_clean(stored.ray, rows)), rows.required(math.inf)
    value, weight = (
        rows.value(a, math.inf)[0] for a in (ray, Exact(abs(ray.integers), ray.exponent))
    )
    if stored.log_softmax is not None:
        weight = Fraction(float(np.abs(h * stored.ray).sum()))
    if value <= 0:
        return False
    cancelled = root(rows.combine(ray).squared_norm)[1]
    unit = Fraction(2) ** (rows.exponent + ray.exponent)
    reach = sum(
        abs(int(a)) * math.isqrt(s)
        for a, s, needed in zip(ray.integers, rows.squared_scale, h, strict=True)
        if needed
    )
    return reach * unit * value >= RAY_RATIO * cancelled * weight


def _check_without_W(stored: StoredSvm, rows: ExactRows) -> None:
    require(bool(np.isnan(stored.W).all()), f"{stored.status}, but there is a W")
    _states(stored, objective=math.inf, duality_gap=math.inf, min_margin=-math.inf, rank=-1)
    _check_lower_bound(stored, rows)


def _check_unconstrained(stored: StoredSvm, rows: ExactRows) -> None:
    require(rows.trivial, "unconstrained, but there are tokens to separate")
    _clean(stored.multipliers, rows)
    require(not stored.W.any(), "unconstrained, but W is not zero")
    _states(stored, objective=0.0, lower_bound=0.0, duality_gap=0.0, min_margin=math.inf, rank=0)


def _states(stored: StoredSvm, **numbers: float) -> None:
    """Require these numbers, which follow from the status."""
    for name, must in numbers.items():
        stated = getattr(stored, name)
        require(stated == must, f"{stored.status}, but {name} is {stated}")


def _check_undecided(stored: StoredSvm, rows: ExactRows) -> None:
    """Prove the bracket that is stated, and that what is stored proves no more."""
    require(not rows.trivial, "undecided, but there is no token to separate")
    if not math.isfinite(stored.objective):
        _check_without_W(stored, rows)
        proved = np.isfinite(stored.ray).all() and _proves_infeasible(stored, rows)
        require(not proved, "undecided, but the ray proves that no W is feasible")
        return
    bound, error = upper_bound(rows.W, stored.norm)
    least = rows.least_margin(bound)
    size, kappa = float(bound), rows.kappa
    rounding = STATED + 64 * EPS * kappa * stored.X.shape[2]
    if least is not None:  # norm(W) is an upper bound of the least norm only at margin one
        require(abs(float(least) - 1) <= rounding, f"least margin {float(least)!r}: must be one")
    if (
        rows.equality.any() or rows.limits.any()
    ):  # the objective includes the cost of their residuals
        least_size = size * (1 - STATED - error)
        require(stored.objective >= least_size, "objective is less than norm(W)")
    else:
        _agree("objective", stored.objective, size, STATED + error)
    _agree("min_margin", stored.min_margin, math.inf if least is None else float(least), rounding)
    _check_lower_bound(stored, rows)
    _check_gap(stored)
    target = min(max(stored.gap, 64 * EPS * kappa), MAX_GAP)
    tight = stored.duality_gap <= target * (1 - 1e-6) - 4 * EPS
    require(not tight, "undecided, but the bracket is tight")
    _check_rank(stored)


def _check_lower_bound(
    stored: StoredSvm, rows: ExactRows, rounding: float | None = None
) -> Fraction:
    """Prove the lower bound h^T a, with multipliers of dual norm one, and return it exactly.

    Of the weighted SVM it is sum_S h_k a_k / (1 + sum_S relief_k a_k), for any set S of rows.
    It is 0 if the multipliers prove no bound. Without a relative `rounding` it is up to the
    rounding error of M(a), which may cancel.
    """
    a = Exact.of(_clean(stored.multipliers, rows))
    dual, error = upper_bound(rows.combine(a), stored.norm, dual=True)
    total, taken = rows.value(a, stored.lower_bound)
    if total <= 0 or dual == 0:
        any_bound = total > 0 and rounding is None  # M(a) is zero, exactly
        require(stored.lower_bound == 0 or any_bound, "the multipliers prove no bound")
        return Fraction(0)
    if rounding is None:
        terms = zip(np.abs(stored.multipliers), rows.scales, rows.present, strict=True)
        reach = float(sum(x * scale for x, scale, present in terms if present))
        rounding = STATED + 64 * EPS * stored.X.shape[2] * reach / float(dual)
    rounding += error
    proved = float(total / (dual + taken))
    least, most = max(0.0, proved * (1 - rounding)), proved * (1 + rounding)
    require(least <= stored.lower_bound <= most, f"lower_bound is {proved!r}")
    _agree("dual norm of the multipliers", 1.0, float(dual), rounding)
    apart = abs(float(total / (1 + taken)) - stored.lower_bound)
    allowed = (len(rows.h) + 2) * EPS / 2 * float(np.abs(rows.h * stored.multipliers).sum())
    allowed *= 4 if taken else 1  # two sums, a product and a division
    require(apart <= allowed, "lower_bound is not the sum of the multipliers")
    return total / (dual + taken)


def _check_gap(stored: StoredSvm) -> None:
    """Prove the duality gap, to the last bit."""
    bounded = stored.lower_bound > 0
    gap = stored.objective / stored.lower_bound - 1 if bounded else math.inf
    require(stored.duality_gap == gap, f"duality_gap is {gap!r}, stated is {stored.duality_gap!r}")


_CHECKS = {
    "solved": _check_solved,
    "infeasible": _check_infeasible,
    "unconstrained": _check_unconstrained,
    "undecided": _check_undecided,
}


def _check_rank(stored: StoredSvm) -> None:
    """Prove the numerical rank, or that it is undecided: a singular value is near the threshold.

    A bound may leave a nuclear one undecided, too (`SvmSolution.rank`).
    """
    require(stored.rank < 0 or stored.duality_gap <= 1e-8, "a rank is stated without a gap of 1e-8")
    sigma = np.asarray(np.linalg.svd(stored.W, compute_uv=False), dtype=np.float64)
    above = sigma[stored.max_rank :] > stored.rank_tolerance * sigma[0] * (1 + 1e-12)
    require(stored.max_rank is None or not above.any(), f"its rank is more than {stored.max_rank}")
    rank = _clear_rank(stored, sigma)
    free = stored.rank < 0 and (stored.duality_gap > 1e-8 or stored.norm == "nuclear")
    require(free or rank == stored.rank, f"rank is {rank}, stated is {stored.rank}")


def _clear_rank(stored: StoredSvm, sigma: Array) -> int:
    """Return the rank at the threshold, -1 if a singular value is near it.

    Of a rank that is stated it must be nearer by the rounding error, of none it may be farther.
    """
    cut, error = stored.rank_tolerance, (1 if stored.rank < 0 else -1) * 64 * EPS * len(sigma)
    cuts = cut + NEAR + error, max(cut / 10, cut - NEAR) - error
    few, many = (int((sigma > limit * sigma[0]).sum()) for limit in cuts)
    return few if few == many else -1


def _clean(a: Array, rows: ExactRows) -> Array:
    require(a.shape == rows.present.shape, "multipliers: wrong shape")
    require(bool(np.isfinite(a).all()), "a multiplier is not finite")
    require(bool((a[rows.inequality] >= 0).all()), "a multiplier is negative")
    require(not a[~rows.present].any(), "a multiplier of padding is not zero")
    return a


def _agree(name: str, stated: float, proved: float, tolerance: float) -> None:
    close = math.isfinite(proved) and abs(stated - proved) <= tolerance * abs(proved)
    close |= stated == proved
    require(close, f"{name} is {proved!r}, stated is {stated!r}")
