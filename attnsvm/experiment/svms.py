"""The SVMs of a run, solved in every norm, and the comparison of trained weights with them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from attnsvm import svm
from attnsvm.experiment.results import Exclusion, Findings, Status, Trained
from attnsvm.linalg import one_minus_correlation
from attnsvm.norm import norm_of
from attnsvm.record.columns import NORMS, svmeq_name
from attnsvm.selection import optimal_tokens
from attnsvm.svm import SvmSolution, SvmStatus, reference
from attnsvm.svm.equalities import restoring
from attnsvm.theory import assumption_b1, convergence_types, direction_change
from attnsvm.theory.comparison import margin_gap, svmeq, svmeq_factor, svmeq_least_squares
from attnsvm.theory.token_graph import FLAT, RiskInside, label_components

if TYPE_CHECKING:
    from attnsvm.experiment.stages import Stages

Svm = SvmSolution[Tensor]

FALLS = "the risk inside a component falls for ever, as attention to a token goes to zero"

STATUS_TEXT = f"<U{max(len(status) for status in SvmStatus)}"
"""NumPy text type that is long enough for every status."""

NUMBERS = ("objective", "lower_bound", "duality_gap", "min_margin")
"""Fields of an SVM that are columns and arrays."""


def columns(norm: str, solution: Svm) -> dict[str, Any]:
    """Return the columns of the SVM of one norm; counts that are unknown are None."""
    values = {name.removeprefix("duality_"): getattr(solution, name) for name in NUMBERS}
    values |= {"kappa": solution.kappa, "status": [each.value for each in solution.statuses]}
    finite = solution.objective.isfinite()
    support = solution.support.flatten(1).sum(-1)
    counts = {"rank": solution.rank, "rank_bound": solution.rank_bound, "support": support}
    for name, count in counts.items():
        known = (finite & (count >= 0)).tolist()
        values[name] = [n if ok else None for n, ok in zip(count.tolist(), known, strict=True)]
    return {f"{norm}_{name}": value for name, value in values.items()}


def arrays(name: str, solution: Svm) -> dict[str, Any]:
    """Return the arrays from which the SVM called `name` can be proved again."""
    stored = {of: getattr(solution, of) for of in ("W", "rank", *NUMBERS)}
    stored |= {of: getattr(solution.certificate, of) for of in ("multipliers", "ray")}
    stored["status"] = np.array([status.value for status in solution.statuses], STATUS_TEXT)
    return {f"{name}_{of}": array for of, array in stored.items()}


@dataclass(eq=False)
class Work:
    """A batch at work: trained instances, the `TokenSelection` of these, and their SVMs.

    `solutions` are by norm the SVMs of the selected tokens, or the margin parts W_mm of Gen-SVM.
    `findings` are recorded, and `exclusions` are the instances with an SVM that is not solved.
    `status` is that before the SVMs.
    """

    run: Stages
    trained: Trained
    selection: Any = None
    status: Sequence[Status] = ()
    findings: Findings = field(default_factory=Findings)
    exclusions: list[Exclusion] = field(default_factory=list)
    solutions: dict[str, Svm] = field(default_factory=dict)

    def solve(self, method: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        """Return the solution of an SVM by a method of `svm`."""
        svm = self.run.config.svm
        with self.run.timed("svm", "solving"):
            return method(*arguments, **options, gap=svm.gap, rank_tolerance=svm.rank_tolerance)

    def keep(self, name: str, solution: Svm, label: str | None = None) -> Svm:
        """Record the arrays of the SVM called `name`, and return its solution.

        With a label, instances without a solution are excluded.
        """
        solution = self.run.known(name, solution, self.trained)
        self.findings.arrays.update(arrays(name, solution))
        if label is not None:
            self.exclude(solution, label, SvmStatus.infeasible, SvmStatus.undecided)
        return solution

    def exclude(self, solution: Svm, label: str, *statuses: SvmStatus) -> None:
        """Exclude the instances whose SVM has one of these statuses."""
        self.exclusions += [(solution.having(s), s.value, f"{label}{s.message}") for s in statuses]

    def distance(self, name: str, direction: Tensor, W: Tensor | None = None) -> None:
        """Record 1 - correlation of the trained weights (B, S, d, d) with a direction (B, d, d).

        Or with a direction for each snapshot, or of other weights W.
        """
        target = direction[:, None] if direction.ndim == 3 else direction
        W = self.trained.path.snapshots if W is None else W
        self.findings.quantity(name, one_minus_correlation(W, target))


# --- one token of each sample ---------------------------------------------------------------------


def separate(work: Work, selected: Tensor) -> None:
    """Solve Att-SVM at the selected tokens (B, n) in every norm; nuclear: with rank(W) <= m."""
    batch, run, columns_of = work.trained.batch, work.run, work.findings.columns
    m = run.objects.parameterization.max_rank(batch.d)
    optimal = svm.single_token(batch.X, batch.Z, optimal_tokens(batch)[0], batch.mask)
    columns_of["assumption_b1"] = assumption_b1(optimal)
    work.findings.arrays["selected"] = selected
    tokens, options = (batch.X, batch.Z, selected), {"mask": batch.mask}
    for norm in run.config.svm.norms:
        if norm == "nuclear" and m < batch.d:
            solution = work.solve(svm.solve_rank_constrained, *tokens, m, **options)
        else:
            solution = work.solve(svm.solve_svm, *tokens, norm, **options)
        solution = work.keep(norm, solution, f"{norm} SVM: ")
        work.exclude(solution, "", SvmStatus.unconstrained)
        work.solutions[norm] = solution
        columns_of.update(columns(norm, solution))
    if run.config.svm.published:
        problem = svm.single_token(*tokens, batch.mask)
        with run.timed("published", "published method"):
            for norm in run.config.svm.norms:
                columns_of.update(as_published(problem, norm))


def as_published(problem: svm.SvmProblem, norm: str) -> dict[str, Any]:
    """Return status and rank of the published scripts: default tolerances, rank at 1e-7."""
    solutions = reference.solutions(problem, norm)
    return {
        f"published_{norm}_status": [each.cvxpy_status for each in solutions],
        f"published_{norm}_rank": [reference.published_rank(each.W) for each in solutions],
    }


def compare(work: Work) -> None:
    """Compare the trained weights with the SVMs of the tokens of largest softmax."""
    path, values = work.trained.path, work.findings.columns
    bias, near = work.run.objects.implicit_bias(), work.run.config.selection.settled
    arguments = work.trained.batch, work.selection, path, work.solutions, bias, near
    values["convergence"] = [
        "" if word in ("tie", "diverged") else kind
        for kind, (word, _) in zip(convergence_types(*arguments), work.status, strict=True)
    ]
    values["direction_change"] = direction_change(path)
    for norm, solution in work.solutions.items():
        values[f"{norm}_margin_gap"] = margin_gap(path.W, solution)
        work.distance(f"one_minus_corr_{norm}", solution.W)
        if norm not in NORMS:
            gaps = [margin_gap(W, solution) for W in path.snapshots.unbind(1)]
            work.findings.curves[f"margin_gap_{norm}"] = torch.stack(gaps, dim=1)


# --- Gen-SVM --------------------------------------------------------------------------------------


def gen_svm(work: Work, sets: Tensor, log_softmax: Tensor, mask: Tensor) -> dict[str, Tensor]:
    """Solve Gen-SVM at the tokens `sets` (B, n, T); compare the weights with W_fin + C W_mm.

    Returns the finite parts W_fin by norm.
    """
    finite = {}
    batch, W = work.trained.batch, work.trained.path.snapshots
    work.findings.arrays.update(attended=sets, log_softmax=log_softmax)
    for norm in work.run.config.svm.norms:
        fin, mm = work.solve(svm.solve_gen_svm, batch.X, batch.Z, sets, log_softmax, norm, mask)
        fin = work.keep(f"{norm}_fin", fin, f"{norm} W_fin: ")
        mm = work.solutions[norm] = work.keep(norm, mm, f"{norm} W_mm: ")
        finite[norm], pair = fin.W, (fin.W[:, None], mm.W[:, None])
        work.distance(f"one_minus_corr_{norm}", mm.W)
        work.distance(svmeq_name(norm), svmeq(W, *pair))
        work.findings.columns[f"svmeq_C_{norm}"] = svmeq_factor(W, *pair)[:, -1]
        work.findings.columns.update(columns(norm, mm))
        if norm == "frobenius":
            work.distance("one_minus_corr_svmeq_lsq", svmeq_least_squares(W, *pair))
    return finite


def attended(work: Work) -> None:
    """Solve Gen-SVM at the attended tokens, and Att-SVM at the most attended one; bound norm(W).

    It is at least C times that of the problem `attained`, the least one with the softmax of the
    trained W or more. Its certified lower bound gives the column of the margin gap,
    1 - C bound / norm(W) >= 0: zero exactly at the solutions of that problem, NaN where it is not
    solved. Its multipliers are kept to prove the bound again.
    """
    batch, path, sets = work.trained.batch, work.trained.path, work.selection.attended
    tokens = batch.X, batch.Z, work.selection.selected
    gen_svm(work, sets, path.log_softmax, batch.mask)
    single = work.solve(svm.solve_svm, *tokens, mask=batch.mask)
    single = work.keep("one_token", single, "one-token SVM: ")
    work.distance("one_minus_corr_1token", single.W)
    problem, C = svm.attained(*tokens, sets, path.log_softmax, batch.mask)
    for norm in work.run.config.svm.norms:
        bound = work.solve(svm.solve, problem, norm, batch.T)
        known = bound.having(SvmStatus.solved)
        gap = 1 - C * bound.lower_bound / norm_of(norm).value(path.W)
        work.findings.columns[f"{norm}_margin_gap"] = gap.masked_fill(~known, torch.nan)
        multipliers = bound.certificate.multipliers.masked_fill(~known[:, None], torch.nan)
        work.findings.arrays[f"{norm}_attained_multipliers"] = multipliers


def components(work: Work) -> None:
    """Solve the Graph-SVM of arXiv 2403.08081: Gen-SVM at the components of the labels.

    Equal tokens of a sample are one there. W_fin has the log-ratios of least risk, recorded
    relative to the first token of each set. The part of the trained weights in the cyclic subspace
    is compared with W_fin, the rest with W_mm: it has equal logits within components, so that it
    has a margin.
    """
    batch, W = work.trained.batch, work.trained.path.snapshots
    inside, first = label_components(batch)
    sets, risk = inside & first, RiskInside(batch, inside, work.run.objects.loss)
    logs = work.solve(lambda **_: risk.least())
    logs = (logs - logs.gather(2, sets.int().argmax(2, keepdim=True))).where(sets, 0.0)
    finite = gen_svm(work, sets, logs, first)
    W_fin = finite[work.run.config.svm.norms[0]].flatten(1)
    falls = risk.falls(W_fin, sets & (sets.sum(2, keepdim=True) > 1))
    work.exclusions.insert(0, (falls, "rejected", FALLS))
    size = risk(W_fin)[1].norm(dim=1)
    reason = "W_fin: no minimiser of the risk was found"
    work.exclusions.append((~(size <= FLAT), SvmStatus.undecided.value, reason))
    work.findings.columns["fin_gradient"] = size
    work.findings.arrays["distinct"] = first
    for norm, mm in work.solutions.items():
        work.exclude(mm, "", SvmStatus.unconstrained)
        problem, apart = mm.problem, restoring(mm.problem)
        margins = dataclasses.replace(mm, problem=problem.keeping(problem.inequality))
        rest = torch.stack([apart(V) for V in W.unbind(1)], dim=1)
        work.findings.columns[f"{norm}_margin_gap"] = margin_gap(rest[:, -1], margins)
        if norm == "frobenius":
            inside, fin = W - rest, finite[norm]
            cyclic = problem.equality.any(1)[:, None]
            missed = (inside - fin[:, None]).norm(dim=(2, 3)).where(cyclic, torch.nan)
            work.findings.quantity("fin_distance", missed)
            work.distance("one_minus_corr_fin", fin, inside)
            work.distance("one_minus_corr_rest", mm.W, rest)
