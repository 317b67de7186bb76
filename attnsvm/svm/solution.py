"""The types of a solver's proposal, of its certificate and verdict, and of the user's result."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeAlias, TypeVar

import torch
from numpy import ndarray
from numpy.typing import NDArray
from torch import Tensor

from attnsvm.config.words import MEANINGS
from attnsvm.display.results import Summarized, counted, margins, one_instance, spread
from attnsvm.norm import Norm
from attnsvm.svm.problem import PADDING, SvmProblem

if TYPE_CHECKING:
    from matplotlib.axes import Axes

ArrayT = TypeVar("ArrayT", Tensor, NDArray[Any])
"""Torch or NumPy: results have the array type of the input."""


class SvmStatus(StrEnum):
    """What is proved about an instance."""

    solved = "solved"
    infeasible = "infeasible"
    undecided = "undecided"
    unconstrained = "unconstrained"

    @property
    def message(self) -> str:
        """What the status means and what to do next."""
        return MEANINGS["svm"][self]


class Candidate(NamedTuple):
    """What a solver proposes, before it is certified; NaN where it found nothing.

    W is (B, d, d); multipliers and ray are (B, N), one entry per row of the problem.
    """

    W: Tensor
    multipliers: Tensor
    ray: Tensor


Method: TypeAlias = Callable[[SvmProblem], Candidate]
"""A solver: W, multipliers and rays of a batch. `certificate` computes what they prove."""


@dataclass(frozen=True)
class Certificate(Generic[ArrayT]):
    """The proof for every instance; `inf` or NaN where there is none.

    Attributes
    ----------
    multipliers : (B, N)
        a_k, one per row of the problem (row i (T - 1) + j is the j-th token of sample i other than
        the reference), scaled so that dual_norm(M(a)) = 1; then h^T a = lower, with
        h_k = max(0, 1 - lower relief_k) of the weighted SVM.
    upper, lower : (B,)
        The bracket: lower <= least norm <= upper, up to rounding, 64 eps kappa relatively.
    gap, gap_target : (B,)
        upper / lower - 1, and its largest accepted value: max(requested gap, 64 eps kappa).
    equality_residual : (B,)
        max_k |d_k^T W z_k - h_k| / (||d_k|| ||z_k|| ||W||_F) over the equalities.
    ray : (B, N)
        The Farkas ray, 1^T |a| = 1; NaN where there is none.
    ray_ratio : (B,)
        sum_k a_k ||d_k|| ||z_k|| / ||M(a)||_F of the ray; >= 1e12 proves infeasibility.
    """

    multipliers: ArrayT
    upper: ArrayT
    lower: ArrayT
    gap: ArrayT
    gap_target: ArrayT
    equality_residual: ArrayT
    ray: ArrayT
    ray_ratio: ArrayT


@dataclass(frozen=True)
class Verdict(Generic[ArrayT]):
    """Certified W (scaled to least margin one), its certificate, and what follows from both."""

    W: ArrayT
    certificate: Certificate[ArrayT]
    status: SvmStatus | tuple[SvmStatus, ...]
    min_margin: ArrayT
    kappa: ArrayT
    sigma: ArrayT
    rank: ArrayT
    rank_bound: ArrayT

    @property
    def statuses(self) -> tuple[SvmStatus, ...]:
        """The status of each instance; a tuple also for a single instance."""
        return (self.status,) if isinstance(self.status, SvmStatus) else self.status

    def having(self, status: SvmStatus) -> Tensor:
        """Return which instances have this status, (B,) bool, on the CPU."""
        return torch.tensor([each is status for each in self.statuses], dtype=torch.bool)


Judge: TypeAlias = Callable[[SvmProblem, Candidate], Verdict[Tensor]]


@dataclass(frozen=True, repr=False)
class SvmSolution(Summarized, Verdict[ArrayT]):
    """Least-norm W of each instance with its proof; arrays have the input's type and batch axis.

    Attributes
    ----------
    W : (B, d, d)
        Scaled to least margin one; NaN where no feasible W was found.
    status : tuple of SvmStatus, or a single one
    objective : (B,)
        Upper bound of the least norm; inf where there is no W. It is norm(W), unless W misses
        equalities by rounding: then it is a bound for the nearest point where they hold exactly
        (rows dependent to 32 eps count as dependent).
    lower_bound : (B,)
        Certified lower bound of the least norm.
    duality_gap : (B,)
        objective / lower_bound - 1.
    min_margin : (B,)
        min_k d_k^T W z_k over the inequalities; inf without any, -inf where there is no W. Of other
        right-hand sides, min_k (d_k^T W z_k + relief_k norm(W)) / h_k over h_k > 0 that are not
        rounding error beside ||d_k|| ||z_k|| ||W||_F.
    rank : (B,) int64
        Singular values above rank_tolerance * sigma_1; -1 where undecided: the gap exceeds 1e-8,
        or a singular value is above a tenth of this threshold and within 1e-5 sigma_1 of it, or
        a nuclear rank_bound counts some that are small, but not zero. `sigma` shows the gap. It is
        the rank of this W: in norms without a rank_bound the minimiser may have another one, as a
        norm like l10 hides singular values up to gap^(1/10).
    rank_bound : (B,) int64
        Upper bound of the numerical rank, -1 where the gap is too wide for one. Nuclear: how many
        singular values of M(a) are at least 1 - (upper - lower) / c, c = rank_tolerance * sigma_1;
        no feasible V with norm(V) <= objective, hence no optimum, has more singular values above
        c. Frobenius: min(n, d).
    sigma : (B, d)
        Singular values of W, descending.
    support : (B, n, T) bool
        Tokens whose constraint is active: an equality, or a margin within 1e-6 (or 64 eps kappa,
        the rounding error) of one; of another h_k, relative to it, or to
        ||d_k|| ||z_k|| ||W||_F / kappa if that is larger. By complementarity
        all other tokens have multiplier zero, up to the gap. An active token may have multiplier
        zero too: the neighbours of a locally optimal token (Definition 2 of arXiv 2308.16898) are
        defined by the margin alone.
    kappa : (B,)
        The largest ||d_k|| ||z_k|| ||W||_F / h_k, of Att-SVM ||W||_F max_k ||d_k|| ||z_k||, divided
        by the least singular value (at most one) of the unit rows that hold only up to rounding. It
        has no unit; float64 cannot certify a gap below about 2e-16 kappa.
    certificate : Certificate
        Multipliers, bracket and ray.
    solve_time_s : float
        Wall time of the whole batch, seconds.
    minimised : Norm
        The norm, with its dual norm and its steepest directions.
    problem : SvmProblem
        The constraints, always as batched tensors.
    """

    objective: ArrayT
    lower_bound: ArrayT
    duality_gap: ArrayT
    support: ArrayT
    solve_time_s: float
    minimised: Norm
    problem: SvmProblem

    @property
    def norm(self) -> str:
        """The name of the norm."""
        return self.minimised.name

    def summary(self) -> dict[str, Any]:
        """Return norm, sizes, the statuses, counted, and the ranges of the solved instances."""
        problem = self.problem
        sizes: dict[str, Any] = {"instances": problem.B, "n": problem.n, "d": problem.d}
        if problem.size != (problem.d, problem.d):
            sizes = {"instances": problem.B, "rows": problem.N, "W": problem.size}
        solved = [status is SvmStatus.solved for status in self.statuses]
        digits = {"objective": 9, "duality_gap": 2, "rank": 9}
        shown = {
            name: spread(torch.as_tensor(getattr(self, name)).reshape(-1)[solved], count)
            for name, count in digits.items()
        }
        return {"norm": self.norm, **sizes, "status": counted(self.statuses), **shown}

    def __len__(self) -> int:
        """Return the number of instances."""
        return len(self.statuses)

    def __getitem__(self, index: int | slice | Tensor) -> SvmSolution[ArrayT]:
        """Return the solutions of the instances at `index`; with an integer, of one.

        Raises
        ------
        TypeError
            If the solution has no batch axis.
        """
        if isinstance(self.status, SvmStatus):
            raise TypeError("a solution without a batch axis cannot be indexed")
        at = one_instance(index, len(self))

        def chosen(values: Any) -> Any:
            if isinstance(values, tuple):
                return tuple(values[k] for k in torch.arange(len(values))[at].tolist())
            return values[at]

        return replace(over_fields(chosen, self), problem=self.problem.take(at))

    def plot(self, instance: int = 0, ax: Axes | None = None) -> Axes:
        """Draw the margins d_k^T W z_k of an instance, sample by sample, the active ones marked.

        By default on new axes.
        """
        at = one_instance(instance, len(self))
        problem, status = self.problem.take(at), self.statuses[at][0]
        W = torch.as_tensor(self.W).reshape(-1, *problem.size)[at]
        support = torch.as_tensor(self.support).reshape(len(self), problem.n, -1)[at]
        active = support.gather(2, problem.token.reshape(1, problem.n, -1)).flatten()
        rows = (problem.kind[0] != PADDING).cpu()
        norm = torch.as_tensor(self.objective).reshape(-1)[at].item()
        text = f", {self.norm} norm {norm:.6g}" if math.isfinite(norm) else ""
        return margins(
            ax,
            f"{status.value}{text}",
            sample=problem.sample.cpu()[rows].numpy(),
            margin=problem.margins(W)[0].cpu()[rows].numpy(),
            equality=problem.equality[0].cpu()[rows].numpy(),
            active=active.cpu()[rows].numpy(),
        )


ResultT = TypeVar("ResultT", bound=Any)


def over_fields(function: Callable[..., Any], *results: ResultT) -> ResultT:
    """Return a result whose arrays and tuples, nested ones too, are `function` of those given."""
    changed: dict[str, Any] = {}
    for name in (f.name for f in fields(results[0])):
        values = [getattr(result, name) for result in results]
        if isinstance(values[0], Tensor | ndarray | tuple):
            changed[name] = function(*values)
        elif isinstance(values[0], Certificate):
            changed[name] = over_fields(function, *values)
    return replace(results[0], **changed)
