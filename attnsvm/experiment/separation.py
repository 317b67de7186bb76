"""The SVM stage of a run: the tokens of a batch are separated, and the solutions tabulated."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from attnsvm.experiment.result import BatchResult
from attnsvm.norm import norm_of
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

Solve = Callable[[BatchResult, str, Callable[[], Any]], Any]
"""Returns the solutions of the SVM of this name: computes them, or gives back known ones."""


def separate(
    result: BatchResult,
    selected: Tensor,
    norms: list[str],
    m: int,
    solve_named: Solve,
    **tolerances: Any,
) -> dict[str, SvmSolution[Tensor]]:
    """Solve Att-SVM at the selected tokens in every norm; mark and tabulate the results.

    Parameters
    ----------
    result : BatchResult
        Gets statuses, columns and arrays of every SVM.
    selected : Tensor (B, n)
        The token to separate from the others of its sample.
    norms : list of str
        The norms to minimise.
    m : int
        Largest rank of W that the parameterization allows: that of the nuclear-norm SVM.
    solve_named : callable
        Solves the SVM of a name.
    **tolerances
        gap and rank_tolerance of `solve_svm`.
    """
    batch, solutions = result.batch, {}
    given = batch.X, batch.Z, selected
    for norm in norms:
        if norm == "nuclear" and m < batch.d:
            compute = partial(solve_rank_constrained, *given, m, mask=batch.mask, **tolerances)
        else:
            compute = partial(solve_svm, *given, norm, batch.mask, **tolerances)
        solutions[norm] = solve_named(result, norm, compute)
    optimal = single_token(batch.X, batch.Z, optimal_tokens(batch)[0], batch.mask)
    result.columns["assumption_b1"] = assumption_b1(optimal)
    result.arrays["selected"] = selected
    for norm, solution in solutions.items():
        result.mark_unsolved(f"{norm} SVM", solution)
        nothing = [status is SvmStatus.unconstrained for status in solution.statuses]
        result.mark(nothing, "unconstrained", SvmStatus.unconstrained.message)
        result.tabulate(norm, solution)
        result.store(norm, solution)
    return solutions


def separate_attended(
    result: BatchResult,
    selected: Tensor,
    attended: Tensor,
    log_softmax: Tensor,
    norms: list[str],
    solve_named: Solve,
    **tolerances: Any,
) -> dict[str, SvmSolution[Tensor]]:
    """Solve Gen-SVM at the attended tokens and Att-SVM at the most attended one; return W_mm.

    Parameters
    ----------
    result, selected, norms, solve_named, **tolerances
        As in `separate`.
    attended : Tensor (B, n, T) bool
        The sets O_i.
    log_softmax : Tensor (B, n, T)
        log s_it.
    """
    batch = result.batch
    compute = partial(solve_svm, batch.X, batch.Z, selected, mask=batch.mask, **tolerances)
    one = solve_named(result, "one_token", compute)
    given = batch.X, batch.Z, attended, log_softmax
    pairs = {
        norm: solve_named(
            result, f"{norm}_fin", partial(solve_gen_svm, *given, norm, batch.mask, **tolerances)
        )
        for norm in norms
    }
    result.arrays |= {"attended": attended, "log_softmax": log_softmax}
    for norm, (fin, mm) in pairs.items():
        result.mark_unsolved(f"{norm} W_fin", fin)
        result.mark_unsolved(f"{norm} W_mm", mm)
        result.tabulate(norm, mm)
        result.store(norm, mm)
        result.store(f"{norm}_fin", fin)
    result.mark_unsolved("one-token SVM", one)
    result.store("one_token", one)
    return {norm: mm for norm, (_, mm) in pairs.items()}


def bound_attained(
    result: BatchResult,
    selected: Tensor,
    attended: Tensor,
    log_softmax: Tensor,
    W: Tensor,
    norms: list[str],
    solve_named: Solve,
    **tolerances: Any,
) -> None:
    """Compare the norms of W (B, d, d) with the least ones that have its softmax or more.

    The norm of W is at least C times that of the problem `attained`, whose certified lower bound
    gives 1 - C bound / norm(W) >= 0: zero exactly at the solutions of the problem. NaN where that
    is not solved. Its multipliers are kept to prove the bound again.
    """
    batch = result.batch
    problem, C = attained(batch.X, batch.Z, selected, attended, log_softmax, batch.mask)
    for norm in norms:
        compute = partial(solve, problem, norm, batch.T, **tolerances)
        solution = solve_named(result, f"{norm}_attained", compute)
        solved = [status is SvmStatus.solved for status in solution.statuses]
        known = torch.tensor(solved, device=W.device)
        gap = 1 - C * solution.lower_bound / norm_of(norm).value(W)
        result.columns[f"{norm}_margin_gap"] = torch.where(known, gap, torch.nan)
        multipliers = solution.certificate.multipliers
        result.arrays[f"{norm}_attained_multipliers"] = torch.where(
            known[:, None], multipliers, torch.nan
        )


def solve_as_published(result: BatchResult, selected: Tensor, norms: list[str]) -> None:
    """Add status and rank of the published scripts: default tolerances, rank at 1e-7."""
    problem = single_token(result.batch.X, result.batch.Z, selected, result.batch.mask)
    for norm in norms:
        found = Cvxpy(norm).solutions(problem)
        result.columns[f"published_{norm}_status"] = [one.cvxpy_status for one in found]
        result.columns[f"published_{norm}_rank"] = [published_rank(one.W) for one in found]
