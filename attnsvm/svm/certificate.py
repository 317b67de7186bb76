r"""What is proved about a candidate solution, computed from the problem alone.

With rows d_k, z_k, h_k and M(a) = sum_k a_k d_k z_k^T:

- any W with mu = min_k d_k^T W z_k / h_k > 0 gives the upper bound  norm(W) / mu;
- any a, a_k >= 0 on inequalities, gives the lower bound  h^T a / dual_norm(M(a));
- an a with M(a) = 0 and h^T a > 0 proves that no W is feasible, whatever the norm (Farkas).

With relief, rows are  d_k^T W z_k >= max(0, h_k - relief_k norm(W)).  Then

- any W without negative margins has  mu = min_k (d_k^T W z_k + relief_k norm(W)) / h_k;
- any a >= 0 and any set S of rows give the lower bound
  sum_S a_k h_k / (dual_norm(M(a)) + sum_S a_k relief_k): with A_k = d_k z_k^T and norm(W) = 1,
  min_S (<A_k, W> + relief_k) sum_S a_k <= <M(a), W> + sum_S a_k relief_k;
- a ray must have h^T a > 0 on rows without relief.

W satisfies equalities, and active rows with h_k <= 0, only up to rounding. So it does rows whose
h_k is small beside ||d_k|| ||z_k|| ||W||_F: there the ratio of margin and h_k is rounding error,
and mu may be that of the other rows alone. The upper bound is then that of the nearest point where
all these rows hold, whose distance follows from their singular values (`_repair`).

This bracket needs no solver and is independent of the scale of W and a. Every comparison is one of
ratios that change neither with the units of a row, with its right-hand side, nor with those of W.
Only a tight bracket makes an instance `solved`, only a ray makes it `infeasible`. No solver is
imported here.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from attnsvm.linalg import EPS
from attnsvm.linalg.decompositions import singular_values
from attnsvm.norm import Norm, norm_of
from attnsvm.svm import tolerances
from attnsvm.svm.problem import SvmProblem, frobenius, least, power_of_two
from attnsvm.svm.ranks import decided_rank, rank_bound
from attnsvm.svm.solution import Candidate, Certificate, SvmStatus, Verdict

HELD = 10  # rounds in which rows are held
MANY = 256  # with more equality rows, of d^2 entries each, a Gram matrix is used to save memory


class Primal(NamedTuple):
    """What a W proves: it is scaled; `sigma` (B, d) are its singular values, the rest is (B,)."""

    W: Tensor
    min_margin: Tensor
    residual: Tensor
    sigma: Tensor
    upper: Tensor
    kappa: Tensor

    def accuracy(self, lower: Tensor) -> Tensor:
        """Return the gap to a lower bound, or that which rounding hides if it is larger, (B,)."""
        return torch.maximum(self.upper / lower - 1, tolerances.ROUNDING * self.kappa)


def certify(
    problem: SvmProblem, candidate: Candidate, norm: str | Norm, gap: float, rank_tolerance: float
) -> Verdict[Tensor]:
    """Return what the bracket and the ray of `candidate` prove about `problem`.

    `gap` is the largest accepted upper / lower - 1. Singular values above rank_tolerance * sigma_1
    count; a rank is reported only where it is decided, else -1 (`decided_rank`).
    """
    norm = norm_of(norm)
    a, lower, sigma_dual = lower_bound(problem, candidate.multipliers, norm)
    W, min_margin, residual, sigma, upper, kappa = _primal(problem, candidate.W, lower, norm, gap)
    kappa = torch.maximum(kappa, _dual_condition(problem, a))
    bounded = upper.isfinite()
    W = torch.where(bounded[:, None, None], W, torch.nan)
    min_margin = torch.where(bounded, min_margin, -torch.inf)
    kappa = torch.where(bounded, kappa, torch.inf)
    target = torch.clamp(tolerances.ROUNDING * kappa, min=gap, max=tolerances.MAX_GAP)
    trivial = problem.trivial
    reached = torch.where(trivial, 0.0, upper / lower - 1).nan_to_num(torch.inf, torch.inf)
    ray, ray_ratio = check_ray(problem, candidate.ray)
    certificate = Certificate(a, upper, lower, reached, target, residual, ray, ray_ratio)
    rounding = problem.unit_rounding * kappa
    proved = (problem.rhs_at_norm(upper) * a).sum(dim=1).clamp(min=0.0)
    spread = (upper - proved).clamp(min=0.0) + rounding * upper
    slack = spread / (rank_tolerance * sigma[:, 0])
    bound = rank_bound(problem, sigma_dual, slack, norm, trivial, bounded)
    rank = decided_rank(sigma, rank_tolerance, bound if norm.bounds_rank else None)
    return Verdict(
        W,
        certificate,
        _statuses(certificate, trivial),
        min_margin,
        kappa,
        torch.where(bounded[:, None], sigma, torch.nan),
        torch.where(reached <= tolerances.RANKED_GAP, rank, -1),
        bound,
    )


def _primal(problem: SvmProblem, W: Tensor, lower: Tensor, norm: Norm, gap: float) -> Primal:
    """Return the better of two proofs: all separating rows scale W, or those that are not faint.

    The second one is tried where the first one does not reach `gap`.
    """
    scaling = problem.separating & problem.homogeneous[:, None]
    proof = _primal_of(problem, W, norm, scaling)
    wide = ~(proof.accuracy(lower) <= gap) & ~problem.relieved
    if not wide.any():
        return proof
    clear = scaling & ~problem.faint(W, gap)
    index = (wide & (clear != scaling).any(dim=1)).nonzero()[:, 0]
    if not index.numel():
        return proof
    other = _primal_of(problem.take(index), W[index], norm, clear[index])
    worse = ~(proof.accuracy(lower)[index] <= other.accuracy(lower[index]))
    for best, of_other in zip(proof, other, strict=True):
        best[index[worse]] = of_other[worse]
    return proof


def _primal_of(problem: SvmProblem, W: Tensor, norm: Norm, scaling: Tensor) -> Primal:
    """Return what W proves if the rows `scaling`, (B, N), give it its scale and others are held.

    kappa is the largest ratio of ||d_k|| ||z_k|| ||W||_F to h_k of the rows that scale W, else the
    least one of rows that W = 0 misses, over the least singular value of the rows that are held.
    """
    W, min_margin, residual = _least_margin_one(problem, W, norm, scaling)
    distance, condition, held = _repair(problem, W, scaling)
    sigma = singular_values(W.nan_to_num(0.0))
    # norm(W') <= norm(W) + c ||W' - W||_F, c = spread, and W' has margins of at least
    # h_k - s_k ||W' - W||_F in the rows that scale it: it is scaled to least margin one.
    size = norm.of_spectrum(sigma) if norm.rotation_invariant else norm.value(W.nan_to_num(0.0))
    lost = torch.where(scaling, problem.scale / problem.h, 0.0).amax(dim=1) * distance
    upper = (size + norm.spread(max(problem.size)) * distance) / (1 - lost)
    reach = problem.scale * sigma.norm(dim=1, keepdim=True) / problem.h.abs()
    needed = (problem.h != 0) & ~problem.met_by_zero
    nearest = least(reach, needed)[:, None].clamp(min=1.0)
    kappa = torch.where(scaling, reach, nearest).amax(dim=1) * condition
    kappa = torch.where(problem.trivial, 0.0, kappa)
    unproved = held & (tolerances.ROUNDING * kappa > tolerances.MAX_GAP) | ~(lost < 1)
    upper = torch.where(_largest(W).isnan() | unproved, torch.inf, upper)
    return Primal(W, min_margin, residual, sigma, upper, kappa)


def _dual_condition(problem: SvmProblem, a: Tensor) -> Tensor:
    """Return sum_k |a_k| ||d_k|| ||z_k|| / ||M(a)||_F where W keeps its scale, else 0, (B,).

    It is how far M(a) cancels; where margins scale W, kappa is at least as large.
    """
    if problem.homogeneous.all():
        return torch.zeros_like(a[:, 0])
    size = frobenius(problem.combine(a))
    reach = (a.abs() * problem.scale).sum(dim=1)
    return torch.where((size > 0) & ~problem.homogeneous, reach / size, 0.0)


def _least_margin_one(
    problem: SvmProblem, W: Tensor, norm: Norm, scaling: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Return W / mu (NaN where no margin is proved), its least margin and equality residual.

    mu is the least ratio of margin and h_k of the rows `scaling`. Their margins count as positive
    only above the rounding error of computing them, or where the row is exactly zero. Other
    inequalities, without relief, may be missed as equalities may.
    """
    limits = problem.inequality & ~scaling & ~problem.relieved[:, None]
    near = problem.equality | limits  # met up to rounding
    unit = power_of_two(_largest(W))  # otherwise squares of W could underflow
    W = W / torch.where(scaling.any(dim=1), unit, 1.0)[:, None, None]
    relieved = margins = problem.margins(W)
    if problem.relief is not None:
        relieved = margins + problem.relief * norm.value(W.nan_to_num(0.0))[:, None]
    mu = least(relieved / problem.h, scaling)
    proved = (margins > problem.rounding(W)) | ~problem.inequality | limits
    if not proved.all():
        proved = proved | (problem.zero & margins.isfinite())
    proved = proved.all(dim=1) & (mu > 0)
    stretch = torch.where(mu.isfinite(), mu, 1.0)
    W, mu = W / stretch[:, None, None], mu / stretch
    residual = torch.zeros_like(mu)
    if near.any():
        missed = problem.h - margins / stretch[:, None]
        reach = problem.scale * frobenius(W)[:, None]
        missed = torch.where(missed == 0, 0.0, missed / reach)
        missed = torch.where(limits, missed.clamp(min=0.0), missed.abs())
        residual = torch.where(near, missed, 0.0).nan_to_num(torch.inf, torch.inf).amax(dim=1)
    scaled = scaling.any(dim=1)
    if not scaled.all():
        clear = problem.separating & ~problem.faint(W)
        mu = torch.where(scaled, mu, least(margins / problem.h, clear))
    feasible, trivial = proved & (residual <= tolerances.MAX_RESIDUAL), problem.trivial
    mu = torch.where(trivial, torch.inf, torch.where(feasible, mu, -torch.inf))
    W = torch.where(feasible[:, None, None], W, torch.nan)
    W, residual = torch.where(trivial[:, None, None], 0.0, W), torch.where(trivial, 0.0, residual)
    return W, mu, residual


def _repair(problem: SvmProblem, W: Tensor, scaling: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return ||W - W'||_F to a feasible W', 1 / the least singular value of the rows held, and any.

    At W' the equalities hold exactly, and of the inequalities that do not scale W those that are
    not met by more than rounding, or than the distance itself; the others keep a slack. The last
    result, (B,), says whether any are held; else the others are zero and one.
    """
    held, limits = problem.equality, problem.inequality & ~scaling & ~problem.relieved[:, None]
    if not (held | limits).any():
        return torch.zeros_like(problem.h[:, 0]), torch.ones_like(problem.h[:, 0]), held.any(dim=1)
    slack = torch.where(limits, problem.margins(W) - problem.h, torch.inf)
    lost = problem.rounding(W)
    for _ in range(HELD):
        held = held | (slack <= lost)
        distance, condition = _distance(problem, W, held)
        lost = problem.scale * distance[:, None]
        missed = ((slack <= lost) & ~held).any(dim=1)
        if not missed.any():
            break
    return torch.where(missed, torch.inf, distance), condition, held.any(dim=1)


def _distance(problem: SvmProblem, W: Tensor, held: Tensor) -> tuple[Tensor, Tensor]:
    """Return ||W - W'||_F to the nearest W' with equality in the rows `held`, and 1 / their s_r.

    With the unit rows E = U S V^T and their residuals r = e - E W, it is ||S^{-1} U^T r||.
    Directions with s_i <= DEPENDENT s_1 count as zero: the equalities hold together only if
    U_i^T r is rounding error there, (2 d + 10) EPS ||W||_F; otherwise the distance is infinite.
    """
    distance, condition = torch.zeros_like(problem.h[:, 0]), torch.ones_like(problem.h[:, 0])
    unit = torch.where(problem.scale > 0, problem.scale, 1.0)
    residual = (problem.h - problem.margins(W)) / unit
    known = _largest(W) > 0  # neither NaN nor the zero of a trivial instance
    rows = torch.where(known, held.sum(dim=1), 0)
    for r in sorted(set(rows[rows > 0].tolist())):
        group = (rows == r).nonzero()[:, 0]
        index = held[group].nonzero()[:, 1].reshape(-1, r)
        part = group[:, None]
        D, Q = problem.D[part, index] / unit[part, index, None], problem.queries[part, index]
        U, S = _left_spectrum(D, Q)
        apart = S > tolerances.DEPENDENT * S[:, :1]
        missed = (U.mT @ residual[part, index, None])[..., 0]
        rounding = problem.unit_rounding * frobenius(W[group])[:, None]
        consistent = (apart | (missed.abs() <= rounding)).all(dim=1)
        moved = torch.where(apart, missed / S, 0.0).norm(dim=1)
        distance[group] = torch.where(consistent, moved, torch.inf)
        condition[group] = 1 / torch.where(apart, S, 1.0).amin(dim=1).clamp(max=1.0)
    return distance, condition


def _left_spectrum(D: Tensor, Q: Tensor) -> tuple[Tensor, Tensor]:
    """Return U (B, r, r) and S (B, r) of the rows vec(d_k z_k^T) = U S V^T, S descending.

    From the Gram matrix if there are many rows and its condition number is below EPS^(-1/2).
    """
    r = D.shape[1]
    if r > MANY:
        values, U = torch.linalg.eigh((D @ D.mT) * (Q @ Q.mT))
        if (values[:, 0] > EPS**0.5 * values[:, -1]).all():
            return U.flip(2), values.flip(1).sqrt()
    E = (D[..., :, None] * Q[..., None, :]).flatten(2)
    U, S, _ = torch.linalg.svd(E, full_matrices=r > E.shape[2])
    return U, torch.nn.functional.pad(S, (0, r - S.shape[1]))


def lower_bound(problem: SvmProblem, a: Tensor, norm: Norm) -> tuple[Tensor, Tensor, Tensor]:
    """Return a scaled to dual_norm(M(a)) = 1, its bound, and the sizes of the scaled M(a).

    Sizes are the singular values (B, d) for a norm that bounds ranks, else the dual norm (B, 1).
    """
    a = _dual_feasible(problem, a)
    M = problem.combine(a)
    if norm.bounds_rank:
        sizes = singular_values(M)
        size = norm.dual.of_spectrum(sizes)
    else:
        size = norm.dual.value(M)
        sizes = size[:, None]
    dual = torch.where(size > tolerances.FAINT, size, torch.inf)
    a = a / dual[:, None]
    bound = _bound(problem, a)
    if problem.relief is not None:  # a ray bounds norm(W), too, but W need not be unique there
        is_ray = (problem.h * a).sum(dim=1) > tolerances.RAY_RATIO * bound
        a, bound = torch.where(is_ray[:, None], 0.0, a), torch.where(is_ray, 0.0, bound)
    return a, bound, sizes / dual[:, None]


def _bound(problem: SvmProblem, a: Tensor) -> Tensor:
    """Return h^T a, at least zero; with relief the L with sum_k a_k max(0, h_k - L relief_k) = L.

    For every set S of rows, L >= sum_S a_k h_k / (1 + sum_S a_k relief_k), with equality where S
    are the rows with h_k > L relief_k. From all rows, the sets shrink until they are those.
    """
    if problem.relief is None:
        return (problem.h * a).sum(dim=1).clamp(min=0.0)
    bound = last = torch.zeros_like(a[:, 0])
    for _ in range(problem.N):
        counted = torch.where(problem.h > last[:, None] * problem.relief, a, 0.0)
        value, slope = ((x * counted).sum(dim=1) for x in (problem.h, problem.relief))
        bound = torch.maximum(last, value / (1 + slope))
        if not (bound > last).any():
            break
        last = bound
    return bound


def _dual_feasible(problem: SvmProblem, a: Tensor) -> Tensor:
    """Return a with a_k >= 0 on inequalities, zero where padding or NaN, of largest size one."""
    a = torch.where(problem.inequality, a.clamp(min=0.0), a)
    a = torch.where(problem.kind == 0, 0.0, a).nan_to_num(0.0, 0.0, 0.0)
    return a / power_of_two(a.abs().amax(dim=1, keepdim=True))


def bounds(problem: SvmProblem, W: Tensor, a: Tensor, norm: str | Norm) -> tuple[Tensor, Tensor]:
    """Return the upper bound by the proof that `certify` takes, and the lower bound, (B,) each."""
    norm = norm_of(norm)
    lower = lower_bound(problem, a, norm)[1]
    return _primal(problem, W, lower, norm, tolerances.GAP).upper, lower


def check_ray(problem: SvmProblem, ray: Tensor) -> tuple[Tensor, Tensor]:
    """Return the ray with 1^T |a| = 1 and how well it cancels:  sum_k |a_k| s_k / ||M(a)||_F.

    s_k = ||d_k|| ||z_k||. The sum runs over the rows with h_k != 0 and is multiplied by
    h^T a / sum_k |h_k a_k|. A ratio r means: no W whose margins are exact to s_k ||W||_F / r is
    feasible. It is at most kappa of every feasible W. ||M(a)||_F is replaced by at least
    max(EPS sum_k |a_k| s_k, FAINT), its rounding error, so r is infinite only for a ray of rows
    that are exactly zero.
    """
    if not ray.isfinite().any():  # the usual case, all instances are feasible
        return torch.full_like(ray, torch.nan), torch.zeros_like(ray[:, 0])
    a, h = _dual_feasible(problem, ray), problem.rhs_at_norm(torch.inf)
    alone = problem.zero & (h * a > 0)  # d_k^T W z_k = 0 for every W: one row is the proof
    a = torch.where(alone | ~alone.any(dim=1, keepdim=True), a, 0.0)
    total = a.abs().sum(dim=1)
    a = a / torch.where(total > 0, total, 1.0)[:, None]
    value, weight = (h * a).sum(dim=1), (h * a).abs().sum(dim=1)
    reach = a.abs() * problem.scale
    asked = torch.where(h != 0, reach, 0.0).sum(dim=1)
    size = frobenius(problem.combine(a)).clamp(min=tolerances.FAINT)
    size = torch.maximum(size, EPS * reach.sum(dim=1))
    ratio = torch.where(alone.any(dim=1), torch.inf, asked * value / weight / size)
    ratio = torch.where(value > 0, ratio, 0.0).nan_to_num(0.0, torch.inf)
    return torch.where((ratio > 0)[:, None], a, torch.nan), ratio


def _statuses(certificate: Certificate[Tensor], trivial: Tensor) -> tuple[SvmStatus, ...]:
    """Return the status of each instance.

    A tight bracket takes precedence over a ray. A ray proves infeasibility only if the upper bound
    is infinite: with a ray and a finite bracket that is not tight, the instance is undecided.
    """
    solved = certificate.gap.abs() <= certificate.gap_target
    infeasible = (certificate.ray_ratio >= tolerances.RAY_RATIO) & ~certificate.upper.isfinite()
    code = torch.where(trivial, 0, torch.where(solved, 1, torch.where(infeasible, 2, 3)))
    names = (SvmStatus.unconstrained, SvmStatus.solved, SvmStatus.infeasible, SvmStatus.undecided)
    return tuple(names[k] for k in code.tolist())


def _largest(W: Tensor) -> Tensor:
    """Return max |w_ij|, (B,); NaN where W has a NaN."""
    return W.abs().amax(dim=(1, 2))
