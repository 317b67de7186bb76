"""The SVMs of a run: solved in every norm, with their columns, arrays and exclusions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from attnsvm.experiment.tables import Exclusion, Findings
from attnsvm.norm import norm_of
from attnsvm.problem import ProblemBatch
from attnsvm.selection import optimal_tokens
from attnsvm.svm import (
    SvmSolution,
    SvmStatus,
    attained,
    single_token,
    solve,
    solve_gen_svm,
    solve_rank_constrained,
    solve_svm,
)
from attnsvm.svm.reference import Cvxpy, published_rank
from attnsvm.theory import assumption_b1

Solve = Callable[[str, Callable[[], Any]], Any]
"""Returns the solutions of the SVM of a name: computes them, or gives back known ones."""

STATUS_TEXT = f"<U{max(len(status) for status in SvmStatus)}"
"""NumPy text type that is long enough for every status."""


@dataclass(frozen=True, eq=False)
class Separated:
    """The solved SVMs of a batch.

    Attributes
    ----------
    solutions : mapping of str to SvmSolution
        By norm: the SVMs of the selected tokens, or the margin part W_mm of Gen-SVM.
    findings : Findings
        Columns and arrays.
    exclusions : tuple of Exclusion
        The instances with an SVM that is not solved.
    finite : mapping of str to SvmSolution
        The finite parts W_fin of Gen-SVM, by norm.
    one_token : SvmSolution or None
        Beside Gen-SVM, the SVM of the most attended tokens.
    """

    solutions: Mapping[str, SvmSolution[Tensor]]
    findings: Findings
    exclusions: tuple[Exclusion, ...]
    finite: Mapping[str, SvmSolution[Tensor]]
    one_token: SvmSolution[Tensor] | None = None


def separate(
    batch: ProblemBatch, selected: Tensor, norms: list[str], m: int, solve: Solve, **tolerances: Any
) -> Separated:
    """Solve Att-SVM at the selected tokens in every norm.

    Parameters
    ----------
    batch : ProblemBatch
        The instances.
    selected : Tensor (B, n)
        The token to separate from the others of its sample.
    norms : list of str
        The norms to minimise.
    m : int
        Largest rank of W that the parameterization allows: that of the nuclear-norm SVM.
    solve : callable
        Solves the SVM of a name.
    **tolerances
        gap and rank_tolerance of `solve_svm`.
    """
    given = batch.X, batch.Z, selected
    solutions = {}
    for norm in norms:
        if norm == "nuclear" and m < batch.d:
            compute = partial(solve_rank_constrained, *given, m, mask=batch.mask, **tolerances)
        else:
            compute = partial(solve_svm, *given, norm, batch.mask, **tolerances)
        solutions[norm] = solve(norm, compute)
    optimal = single_token(batch.X, batch.Z, optimal_tokens(batch)[0], batch.mask)
    findings = Findings({"assumption_b1": assumption_b1(optimal)}, arrays={"selected": selected})
    exclusions: list[Exclusion] = []
    for norm, solution in solutions.items():
        nothing = [status is SvmStatus.unconstrained for status in solution.statuses]
        exclusions += unsolved(f"{norm} SVM", solution)
        exclusions.append((nothing, "unconstrained", SvmStatus.unconstrained.message))
        findings |= Findings(columns(norm, solution), arrays=arrays(norm, solution))
    return Separated(solutions, findings, tuple(exclusions), {})


def separate_attended(
    batch: ProblemBatch,
    selected: Tensor,
    attended: Tensor,
    log_softmax: Tensor,
    W: Tensor,
    norms: list[str],
    solve: Solve,
    **tolerances: Any,
) -> Separated:
    """Solve Gen-SVM at the attended tokens and Att-SVM at the most attended one.

    Parameters
    ----------
    batch, selected, norms, solve, **tolerances
        As in `separate`.
    attended : Tensor (B, n, T) bool
        The sets O_i.
    log_softmax : Tensor (B, n, T)
        log s_it.
    W : Tensor (B, d, d)
        The trained weights, whose norm is compared with the least one, see `bound_attained`.
    """
    given = batch.X, batch.Z, selected
    one = solve("one_token", partial(solve_svm, *given, mask=batch.mask, **tolerances))
    given = batch.X, batch.Z, attended
    pairs = {
        norm: solve(
            f"{norm}_fin",
            partial(solve_gen_svm, *given, log_softmax, norm, batch.mask, **tolerances),
        )
        for norm in norms
    }
    findings = Findings(arrays={"attended": attended, "log_softmax": log_softmax})
    exclusions: list[Exclusion] = []
    for norm, (fin, mm) in pairs.items():
        exclusions += [*unsolved(f"{norm} W_fin", fin), *unsolved(f"{norm} W_mm", mm)]
        stored = arrays(norm, mm) | arrays(f"{norm}_fin", fin)
        findings |= Findings(columns(norm, mm), arrays=stored)
    exclusions += unsolved("one-token SVM", one)
    findings |= Findings(arrays=arrays("one_token", one))
    findings |= bound_attained(batch, selected, attended, log_softmax, W, norms, solve, tolerances)
    return Separated(
        {norm: mm for norm, (_, mm) in pairs.items()},
        findings,
        tuple(exclusions),
        {norm: fin for norm, (fin, _) in pairs.items()},
        one,
    )


def bound_attained(
    batch: ProblemBatch,
    selected: Tensor,
    attended: Tensor,
    log_softmax: Tensor,
    W: Tensor,
    norms: list[str],
    solve_named: Solve,
    tolerances: Mapping[str, Any],
) -> Findings:
    """Compare the norms of W (B, d, d) with the least ones that have its softmax or more.

    The norm of W is at least C times that of the problem `attained`, whose certified lower bound
    gives 1 - C bound / norm(W) >= 0: zero exactly at the solutions of the problem. NaN where that
    is not solved. Its multipliers are kept to prove the bound again.
    """
    problem, C = attained(batch.X, batch.Z, selected, attended, log_softmax, batch.mask)
    found = Findings()
    for norm in norms:
        compute = partial(solve, problem, norm, batch.T, **tolerances)
        solution = solve_named(f"{norm}_attained", compute)
        solved = [status is SvmStatus.solved for status in solution.statuses]
        known = torch.tensor(solved, device=W.device)
        gap = 1 - C * solution.lower_bound / norm_of(norm).value(W)
        multipliers = solution.certificate.multipliers.masked_fill(~known[:, None], torch.nan)
        found |= Findings(
            {f"{norm}_margin_gap": torch.where(known, gap, torch.nan)},
            arrays={f"{norm}_attained_multipliers": multipliers},
        )
    return found


def solve_as_published(batch: ProblemBatch, selected: Tensor, norms: list[str]) -> Findings:
    """Return status and rank of the published scripts: default tolerances, rank at 1e-7."""
    problem = single_token(batch.X, batch.Z, selected, batch.mask)
    found = Findings()
    for norm in norms:
        solutions = Cvxpy(norm).solutions(problem)
        status = [one.cvxpy_status for one in solutions]
        ranks = [published_rank(one.W) for one in solutions]
        found |= Findings({f"published_{norm}_status": status, f"published_{norm}_rank": ranks})
    return found


def unsolved(what: str, solution: SvmSolution[Tensor]) -> list[Exclusion]:
    """Return the instances whose SVM, called `what`, is infeasible or undecided."""
    return [
        (
            [one is status for one in solution.statuses],
            status.value,
            f"{what}: {status.message}",
        )
        for status in (SvmStatus.infeasible, SvmStatus.undecided)
    ]


def columns(norm: str, solution: SvmSolution[Tensor]) -> dict[str, Any]:
    """Return the columns of the SVM of one norm."""
    counts = {
        "rank": solution.rank,
        "rank_bound": solution.rank_bound,
        "support": solution.support.flatten(1).sum(-1),
    }
    found = torch.isfinite(solution.objective).tolist()
    values = {
        "status": [status.value for status in solution.statuses],
        "objective": solution.objective,
        "lower_bound": solution.lower_bound,
        "gap": solution.duality_gap,
        "min_margin": solution.min_margin,
        "kappa": solution.kappa,
        **{name: _known(values, found) for name, values in counts.items()},
    }
    return {f"{norm}_{name}": value for name, value in values.items()}


def _known(counts: Tensor, found: Iterable[bool]) -> list[int | None]:
    """Return counts, with None for -1 (unknown) and where no solution is found."""
    given = zip(counts.tolist(), found, strict=True)
    return [count if ok and count >= 0 else None for count, ok in given]


def arrays(name: str, solution: SvmSolution[Tensor]) -> dict[str, Any]:
    """Return the arrays from which the SVM called `name` can be proved again."""
    stored = {
        "W": solution.W,
        "multipliers": solution.certificate.multipliers,
        "ray": solution.certificate.ray,
        "status": np.array([status.value for status in solution.statuses], STATUS_TEXT),
        "objective": solution.objective,
        "lower_bound": solution.lower_bound,
        "duality_gap": solution.duality_gap,
        "min_margin": solution.min_margin,
        "rank": solution.rank,
    }
    return {f"{name}_{field}": array for field, array in stored.items()}
