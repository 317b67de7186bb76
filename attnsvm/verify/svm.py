"""Re-prove one stored SVM from its tokens, W and multipliers; nothing else of attnsvm is imported.

A stored SVM is rejected unless everything that it states follows.
"""

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from attnsvm.verify.constraints import ExactRows, Rows, StoredSvm
from attnsvm.verify.exact import EPS, Array, Exact, RejectedError, require, root, upper_bound

RAY_RATIO = 10**12
MAX_GAP = 2e-2
NEAR = 1e-5  # distance from the threshold of the rank, relative to the largest singular value
STATED = 1e-11  # relative difference allowed between stated and recomputed number, plus rounding


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
        rows = ExactRows(stored)
        if not np.isnan(stored.ray).all():
            total = float(np.abs(_clean(stored.ray, rows)).sum())
            _agree("sum of the ray", total, 1.0, (len(stored.ray) + 10) * EPS)
        if stored.status == "unconstrained":
            _check_unconstrained(stored, rows)
        elif stored.status == "infeasible" or not math.isfinite(stored.objective):
            _check_without_W(stored, rows)
        else:
            _check_bracket(stored, rows)
    except RejectedError as reason:
        return Proof(False, str(reason))
    except (KeyError, ValueError, IndexError, OverflowError, TypeError) as error:
        return Proof(False, f"malformed: {error!r}")
    return Proof(True, "")


def _check_bracket(stored: StoredSvm, rows: ExactRows) -> None:
    """Prove the bracket by the rows that scale W, all or those that are clear."""
    require(not rows.trivial, f"{stored.status}, but there is no token to separate")
    require(stored.status in ("solved", "undecided"), f"status is {stored.status}")
    _check_gap(stored)
    _check_rank(stored)
    reasons = []
    for scaling in rows.scaling():
        try:
            return _check_bracket_by(stored, rows, scaling)
        except RejectedError as reason:
            reasons.append(reason)
    raise reasons[0]


def _check_bracket_by(stored: StoredSvm, rows: ExactRows, scaling: Rows) -> None:
    """Prove the bracket and its numbers; solved is what is tight, and nothing else."""
    upper, solved = rows.upper(scaling), stored.status == "solved"
    hidden = 64 * EPS * upper.kappa
    rounding = STATED + hidden * stored.X.shape[2]
    contradicts = f"lower_bound={stored.lower_bound!r} contradicts objective={stored.objective!r}"
    require(stored.lower_bound <= stored.objective * (1 + rounding), contradicts)
    exactly = (rounding if upper.held else STATED) + upper.error
    _agree("objective", stored.objective, float(upper.bound), exactly)
    _agree("min_margin", stored.min_margin, float(upper.least), rounding)
    lower = _check_lower_bound(stored, rows, rounding if solved else None)
    target = min(max(stored.gap, hidden), MAX_GAP)
    if not solved:
        if scaling.any():  # else norm(W) were no upper bound
            _agree("least margin", 1.0, float(upper.least), rounding)
        tight = stored.duality_gap <= target * (1 - 1e-6) - 4 * EPS
        require(not tight, "undecided, but the bracket is tight")
        return
    require(not upper.held or hidden <= MAX_GAP, "equalities too dependent")
    require(lower > 0, "the multipliers prove no bound")
    gap = float(upper.proved / lower - 1)
    require(gap >= -target, f"the dual contradicts the value by {-gap:.3g}")
    require(gap <= target + rounding * 1e-3, f"the bracket proves only a gap of {gap:.3g}")


def _check_without_W(stored: StoredSvm, rows: ExactRows) -> None:
    """Prove that the ray cancels if no W is feasible, else that it does not; prove the bound."""
    require(not rows.trivial, f"{stored.status}, but there is no token to separate")
    infeasible = bool(np.isfinite(stored.ray).all()) and _proves_infeasible(stored, rows)
    must = "infeasible" if infeasible else "undecided"
    require(stored.status == must, f"{stored.status}, but the ray proves that it is {must}")
    require(bool(np.isnan(stored.W).all()), f"{stored.status}, but there is a W")
    _states(stored, objective=math.inf, duality_gap=math.inf, min_margin=-math.inf, rank=-1)
    _check_lower_bound(stored, rows)


def _proves_infeasible(stored: StoredSvm, rows: ExactRows) -> bool:
    """Return whether sum_k |a_k| ||d_k|| ||z_k|| >= 1e12 ||M(a)||_F for the ray a.

    The sum runs over h_k != 0, times h^T a / sum_k |h_k a_k|.
    """
    ray, needed = Exact.of(_clean(stored.ray, rows)), rows.needed(math.inf)
    value, _ = rows.value(ray, math.inf)
    unit = Fraction(2) ** ray.exponent
    terms = Exact.of(np.where(needed, np.abs(rows.h), 0.0))
    weight = int(terms.integers @ abs(ray.integers)) * Fraction(2) ** terms.exponent * unit
    if value <= 0:
        return False
    cancelled = root(rows.combine(ray).squared_norm)[1]
    reach = sum(
        abs(int(a)) * math.isqrt(s)
        for a, s, used in zip(ray.integers, rows.squared_scale, needed, strict=True)
        if used
    )
    return reach * Fraction(2) ** rows.exponent * unit * value >= RAY_RATIO * cancelled * weight


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


def _check_lower_bound(
    stored: StoredSvm, rows: ExactRows, rounding: float | None = None
) -> Fraction:
    """Prove the lower bound h^T a / dual_norm(M(a)), with a dual norm of one; return it exactly.

    Of the weighted SVM it is sum_S h_k a_k / (dual_norm(M(a)) + sum_S relief_k a_k), for any set S
    of rows.
    It is 0 if the multipliers prove no bound, and where M(a) = 0 any bound is true. Without a
    relative `rounding` it is up to the rounding error of M(a), which may cancel.
    """
    a = Exact.of(_clean(stored.multipliers, rows))
    dual, error = upper_bound(rows.combine(a), stored.norm, dual=True)
    total, taken = rows.value(a, stored.lower_bound)
    if total <= 0 or dual == 0:
        require(stored.lower_bound == 0 or total > 0, "the multipliers prove no bound")
        return Fraction(0)
    if rounding is None:
        reach = float(np.abs(stored.multipliers)[rows.present] @ rows.scales[rows.present])
        rounding = STATED + 64 * EPS * stored.X.shape[2] * reach / float(dual)
    rounding += error
    proved = total / (dual + taken)
    _agree("lower_bound", max(stored.lower_bound, 0.0), float(proved), rounding)
    _agree("dual norm of the multipliers", 1.0, float(dual), rounding)
    apart = abs(float(total / (1 + taken)) - stored.lower_bound)
    allowed = (len(rows.h) + 2) * EPS / 2 * float(np.abs(rows.h * stored.multipliers).sum())
    allowed *= 4 if taken else 1  # two sums, a product and a division
    require(apart <= allowed, "lower_bound is not the sum of the multipliers")
    return proved


def _check_gap(stored: StoredSvm) -> None:
    """Prove the duality gap, to the last bit."""
    bounded = stored.lower_bound > 0
    gap = stored.objective / stored.lower_bound - 1 if bounded else math.inf
    require(stored.duality_gap == gap, f"duality_gap is {gap!r}, stated is {stored.duality_gap!r}")


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
