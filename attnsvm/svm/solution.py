"""What a solver claims and what the user gets: one status per instance, failing closed."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, NamedTuple

from torch import Tensor

if TYPE_CHECKING:
    from attnsvm.svm.certificate import Certificate


class SvmStatus(StrEnum):
    """What is proved about an instance."""

    solved = "solved"
    infeasible = "infeasible"
    undecided = "undecided"
    unconstrained = "unconstrained"

    @property
    def message(self) -> str:
        """What the status means and what to do next."""
        return _MESSAGES[self]


_MESSAGES = {
    SvmStatus.solved: "the bracket is tight: W is optimal to the reported duality gap",
    SvmStatus.infeasible: "no W separates the selected tokens, as certificate.ray proves; "
    "select other tokens or raise d (d >= max(T - 1, n) is feasible for almost every dataset)",
    SvmStatus.undecided: "neither optimality nor infeasibility is proved: lower_bound and "
    "objective bracket the least norm as far as float64 got; look at kappa, "
    "rescale the tokens or ask for a wider gap, and count the instance apart",
    SvmStatus.unconstrained: "there is no token to separate, so W = 0; select from T > 1 tokens",
}


class Claim(NamedTuple):
    """What a solver claims, to be judged by the certificate; NaN where it claims nothing.

    W is (B, d, d); multipliers and ray are (B, N), one entry per row of the problem.
    """

    W: Tensor
    multipliers: Tensor
    ray: Tensor


@dataclass(frozen=True)
class SvmSolution:
    """Least-norm W of each instance with its proof; arrays have the input's kind and batch axis.

    Attributes
    ----------
    W : (B, d, d)
        Scaled to least margin one; NaN where no feasible W was found.
    status : tuple of SvmStatus, or a single one
    objective : (B,)
        Upper bound of the least norm; inf where there is no W. It is norm(W), but for what the
        rounding errors of equalities may cost: then it is that of the nearest point where they
        hold, were float64's rows exact (rows dependent to 32 eps count as dependent).
    lower_bound : (B,)
        Certified lower bound of the least norm.
    duality_gap : (B,)
        objective / lower_bound - 1.
    min_margin : (B,)
        min_k d_k^T W z_k over the inequalities; inf without any, -inf where there is no W.
    rank : (B,) int64
        Singular values above rank_tolerance * sigma_1; -1 where the gap exceeds 1e-8.
    rank_bound : (B,) int64
        Upper bound of the numerical rank, -1 where the gap is too wide for one. Nuclear: how many
        singular values of M(a) are at least 1 - (upper - lower) / c, c = rank_tolerance * sigma_1;
        no feasible V with norm(V) <= objective, so no optimum either, has more singular values
        above c. Frobenius: min(n, d).
    sigma : (B, d)
        Singular values of W, descending.
    support : (B, n, T) bool
        Tokens whose constraint is active: an equality, or a margin within 1e-6 (or 64 eps kappa,
        the rounding error) of one. By complementarity no other token has a multiplier that
        matters; a token may be active with multiplier zero, and the neighbours of a locally
        optimal token (Definition 2 of arXiv 2308.16898) are defined by the margin alone.
    kappa : (B,)
        ||W||_F max_k ||d_k|| ||z_k||, divided by the least singular value (at most one) of the
        equalities' unit rows; float64 cannot certify a gap below about 2e-16 kappa.
    certificate : Certificate
        Multipliers, bracket and ray.
    solve_time_s : float
        Wall time of the whole batch, seconds.
    norm : str
    """

    W: Any
    status: Any
    objective: Any
    lower_bound: Any
    duality_gap: Any
    min_margin: Any
    rank: Any
    rank_bound: Any
    sigma: Any
    support: Any
    kappa: Any
    certificate: Certificate
    solve_time_s: float
    norm: str
