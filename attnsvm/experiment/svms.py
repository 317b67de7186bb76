"""The SVMs of a run, solved in every norm, and the comparison of trained weights with them.

And with the law of joint training: with a linear head, or of a network's layers.
"""

import dataclasses
import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from attnsvm import svm
from attnsvm.experiment import results
from attnsvm.experiment.results import Exclusion, Findings, Selected, Separated, Trained, distance
from attnsvm.head import Joint, Linear
from attnsvm.linalg import one_minus_correlation
from attnsvm.loss import Exponential, Logistic, Loss
from attnsvm.norm import norm_of
from attnsvm.problem import ProblemBatch
from attnsvm.record.columns import NORMS, svmeq_name
from attnsvm.selection import TokenSelection, optimal_tokens
from attnsvm.svm import SvmSolution, SvmStatus, reference
from attnsvm.svm.equalities import restoring
from attnsvm.svm.problem import PADDING
from attnsvm.theory import assumption_b1, convergence_types, direction_change, joint
from attnsvm.theory.comparison import margin_gap, svmeq, svmeq_factor, svmeq_least_squares
from attnsvm.theory.token_graph import FLAT, RiskInside, label_components
from attnsvm.training import Trajectory

Solve = Callable[[str, Callable[..., Any]], Any]
"""Returns the solutions of the SVM of a name: computes them, or gives back known ones."""

FALLS = "the risk inside a component falls for ever, as attention to a token goes to zero"

STATUS_TEXT = f"<U{max(len(status) for status in SvmStatus)}"
"""NumPy text type that is long enough for every status."""


# --- separate -------------------------------------------------------------------------------------


def separate(
    batch: ProblemBatch, selected: Tensor, norms: list[str], m: int, solve_named: Solve
) -> Separated:
    """Solve Att-SVM at the selected tokens (B, n) in every norm; nuclear: with rank(W) <= m."""
    tokens = batch.X, batch.Z, selected
    optimal = svm.single_token(batch.X, batch.Z, optimal_tokens(batch)[0], batch.mask)
    findings = Findings({"assumption_b1": assumption_b1(optimal)}, arrays={"selected": selected})
    exclusions, solutions = list[Exclusion](), {}
    for norm in norms:
        compute = partial(svm.solve_svm, *tokens, norm, batch.mask)
        if norm == "nuclear" and m < batch.d:
            compute = partial(svm.solve_rank_constrained, *tokens, m, mask=batch.mask)
        solutions[norm] = solution = solve_named(norm, compute)
        exclusions += unsolved(solution, f"{norm} SVM: ")
        exclusions += unsolved(solution, "", SvmStatus.unconstrained)
        findings |= Findings(columns(norm, solution), arrays=arrays(norm, solution))
    return Separated(solutions, findings, exclusions)


def separate_attended(
    trained: Trained, selection: TokenSelection, norms: list[str], solve_named: Solve
) -> Separated:
    """Solve Gen-SVM at the attended tokens and Att-SVM at the most attended one, in every norm.

    The norm of the trained W is at least C times that of the problem `attained`, the least one with
    its softmax or more. Its certified lower bound gives the column of the margin gap,
    1 - C bound / norm(W) >= 0: zero exactly at the solutions of that problem, NaN where it is not
    solved. Its multipliers are kept to prove the bound again.
    """
    batch, log_softmax, W = trained.batch, trained.path.log_softmax, trained.path.W
    tokens = batch.X, batch.Z, selection.selected
    single = solve_named("one_token", partial(svm.solve_svm, *tokens, mask=batch.mask))
    sets = _separate_sets(batch, selection.attended, log_softmax, norms, solve_named)
    exclusions = [*sets.exclusions, *unsolved(single, "one-token SVM: ")]
    findings = sets.findings | Findings(arrays=arrays("one_token", single))
    problem, C = svm.attained(*tokens, selection.attended, log_softmax, batch.mask)
    for norm in norms:
        bound = solve_named(f"{norm}_attained", partial(svm.solve, problem, norm, batch.T))
        known = bound.having(SvmStatus.solved).to(W.device)
        gap = 1 - C * bound.lower_bound / norm_of(norm).value(W)
        multipliers = bound.certificate.multipliers.masked_fill(~known[:, None], torch.nan)
        findings |= Findings(
            {f"{norm}_margin_gap": torch.where(known, gap, torch.nan)},
            arrays={f"{norm}_attained_multipliers": multipliers},
        )
    return Separated(sets.solutions, findings, exclusions, sets.finite, single)


def separate_components(
    batch: ProblemBatch, loss: Loss, norms: list[str], solve_named: Solve
) -> Separated:
    """Solve the Graph-SVM of arXiv 2403.08081: Gen-SVM at the components of the labels.

    Equal tokens of a sample are one there. W_fin has the log-ratios of least risk, recorded
    relative to the first token of each set.
    """
    inside, first = label_components(batch)
    sets, distinct = inside & first, dataclasses.replace(batch, mask=first)
    risk = RiskInside(batch, inside, loss)
    logs = solve_named("log_softmax", lambda **_: risk.least())
    logs = (logs - logs.gather(2, sets.int().argmax(2, keepdim=True))).where(sets, 0.0)
    separated = _separate_sets(distinct, sets, logs, norms, solve_named)
    W_fin = separated.finite[norms[0]].W.flatten(1)
    size = risk(W_fin)[1].norm(dim=1)
    findings = separated.findings | Findings({"fin_gradient": size}, arrays={"distinct": first})
    reason = "W_fin: no minimiser of the risk was found"
    falls = risk.falls(W_fin, sets & (sets.sum(2, keepdim=True) > 1))
    exclusions = [(falls, "rejected", FALLS), *separated.exclusions]
    exclusions.append((~(size <= FLAT), SvmStatus.undecided.value, reason))
    for mm in separated.solutions.values():
        exclusions += unsolved(mm, "", SvmStatus.unconstrained)
    return dataclasses.replace(separated, findings=findings, exclusions=exclusions)


def _separate_sets(
    batch: ProblemBatch, sets: Tensor, log_softmax: Tensor, norms: list[str], solve_named: Solve
) -> Separated:
    """Solve Gen-SVM at the tokens `sets` (B, n, T) in every norm."""
    findings = Findings(arrays={"attended": sets, "log_softmax": log_softmax})
    exclusions, finite, solutions = list[Exclusion](), {}, {}
    for norm in norms:
        arguments = batch.X, batch.Z, sets, log_softmax, norm, batch.mask
        fin, mm = solve_named(f"{norm}_fin", partial(svm.solve_gen_svm, *arguments))
        finite[norm], solutions[norm] = fin, mm
        exclusions += [*unsolved(fin, f"{norm} W_fin: "), *unsolved(mm, f"{norm} W_mm: ")]
        stored = arrays(norm, mm) | arrays(f"{norm}_fin", fin)
        findings |= Findings(columns(norm, mm), arrays=stored)
    return Separated(solutions, findings, exclusions, finite)


def solve_as_published(batch: ProblemBatch, selected: Tensor, norms: list[str]) -> Findings:
    """Return status and rank of the published scripts: default tolerances, rank at 1e-7."""
    problem = svm.single_token(batch.X, batch.Z, selected, batch.mask)
    published: dict[str, Any] = {}
    for norm in norms:
        solutions = reference.solutions(problem, norm)
        published[f"published_{norm}_status"] = [each.cvxpy_status for each in solutions]
        published[f"published_{norm}_rank"] = [reference.published_rank(e.W) for e in solutions]
    return Findings(published)


def unsolved(solution: SvmSolution[Tensor], svm: str, *statuses: SvmStatus) -> list[Exclusion]:
    """Return the instances whose SVM has a status, by default is infeasible or undecided."""
    statuses = statuses or (SvmStatus.infeasible, SvmStatus.undecided)
    return [(solution.having(each), each.value, f"{svm}{each.message}") for each in statuses]


def columns(norm: str, solution: SvmSolution[Tensor]) -> dict[str, Any]:
    """Return the columns of the SVM of one norm; counts that are unknown are None."""
    support = solution.support.flatten(1).sum(-1)
    counts = {"rank": solution.rank, "rank_bound": solution.rank_bound, "support": support}
    finite = solution.objective.isfinite()
    plain = ("objective", "lower_bound", "min_margin", "kappa")
    values: dict[str, Any] = {name: getattr(solution, name) for name in plain}
    values["status"] = [status.value for status in solution.statuses]
    values["gap"] = solution.duality_gap
    for name, count in counts.items():
        known = (finite & (count >= 0)).tolist()
        values[name] = [n if ok else None for n, ok in zip(count.tolist(), known, strict=True)]
    return {f"{norm}_{name}": value for name, value in values.items()}


def arrays(name: str, solution: SvmSolution[Tensor]) -> dict[str, Any]:
    """Return the arrays from which the SVM called `name` can be proved again."""
    certificate, numbers = (
        solution.certificate,
        ("lower_bound", "duality_gap", "min_margin", "rank"),
    )
    stored = {
        "W": solution.W,
        "multipliers": certificate.multipliers,
        "ray": certificate.ray,
        "status": np.array([status.value for status in solution.statuses], STATUS_TEXT),
        "objective": solution.objective,
        **{number: getattr(solution, number) for number in numbers},
    }
    return {f"{name}_{field}": array for field, array in stored.items()}


# --- compare --------------------------------------------------------------------------------------


def compare(
    selected: Selected, separated: Separated, implicit_bias: str | None, settled: float
) -> Findings:
    """Compare the trained weights with the SVMs of the tokens of largest softmax.

    `implicit_bias` is the norm of the SVM that training converges to; `settled` the largest
    1 - correlation at which a direction counts as its limit.
    """
    path, solutions = selected.trained.path, separated.solutions
    arguments = selected.trained.batch, selected.selection, path, solutions, implicit_bias, settled
    types = [
        "" if word in ("tie", "diverged") else kind
        for kind, (word, _) in zip(convergence_types(*arguments), selected.status, strict=True)
    ]
    findings = Findings({"direction_change": direction_change(path), "convergence": types})
    for norm, solution in solutions.items():
        findings |= Findings({f"{norm}_margin_gap": margin_gap(path.W, solution)})
        findings |= distance(f"one_minus_corr_{norm}", path, solution.W)
        if norm not in NORMS:
            gaps = [margin_gap(W, solution) for W in path.snapshots.unbind(1)]
            findings |= Findings(
                curves={f"margin_gap_{norm}": (path.steps, torch.stack(gaps, dim=1))}
            )
    return findings


def compare_attended(path: Trajectory, separated: Separated) -> Findings:
    """Compare the trained weights with W_fin + C W_mm of Gen-SVM, and with one token's SVM."""
    single, findings, W = separated.one_token, Findings(), path.snapshots
    if single is not None:
        findings |= distance("one_minus_corr_1token", path, single.W)
    for norm, mm in separated.solutions.items():
        pair = separated.finite[norm].W[:, None], mm.W[:, None]
        findings |= distance(f"one_minus_corr_{norm}", path, mm.W)
        findings |= distance(svmeq_name(norm), path, svmeq(W, *pair))
        findings |= Findings({f"svmeq_C_{norm}": svmeq_factor(W, *pair)[:, -1]})
        if norm == "frobenius":
            findings |= distance("one_minus_corr_svmeq_lsq", path, svmeq_least_squares(W, *pair))
    return findings


def compare_components(path: Trajectory, separated: Separated) -> Findings:
    """Compare the trained weights with both parts of the Graph-SVM.

    Their part in the cyclic subspace is compared with W_fin, the rest with W_mm. The rest has equal
    logits within components, so that it has a margin.
    """
    findings = compare_attended(path, separated)
    for norm, mm in separated.solutions.items():
        apart, problem = restoring(mm.problem), mm.problem
        unequal = problem.kind.masked_fill(problem.equality, PADDING)
        margins = dataclasses.replace(mm, problem=dataclasses.replace(problem, kind=unequal))
        findings |= Findings({f"{norm}_margin_gap": margin_gap(apart(path.W), margins)})
        if norm == "frobenius":
            rest = torch.stack([apart(W) for W in path.snapshots.unbind(1)], dim=1)
            fin, inside = separated.finite[norm].W[:, None], path.snapshots - rest
            cyclic = problem.equality.any(1)[:, None]
            missed = (inside - fin).norm(dim=(2, 3)).where(cyclic, torch.nan)
            findings |= results.quantity("fin_distance", path.steps, missed)
            for name, pair in {"fin": (inside, fin), "rest": (rest, mm.W[:, None])}.items():
                apart_by = one_minus_correlation(*pair)
                findings |= results.quantity(f"one_minus_corr_{name}", path.steps, apart_by)
    return findings


WITH_LAW = {(head, loss) for head in (Linear, Joint) for loss in (Logistic, Exponential)}
"""Types of a trained head and of a loss with the law."""


def compare_with_law(
    selected: Selected, norm: str, predicted: float | None, solve_named: Solve
) -> Findings:
    """Compare the trained W with the weighted SVMs of ratio r: measured, predicted, infinite.

    `norm` is that of the SVM that W converges to if the head is not trained, and `predicted` the
    ratio of `ratio_of_steps`.
    """
    batch, path = selected.trained.batch, selected.trained.path
    tokens, rate = selected.selection.selected, batch.head.rate
    head = solve_named("classifier", partial(joint.max_margin_head, batch, tokens))
    gamma, size = joint.head_margins(head), norm_of(norm).value(path.W.nan_to_num(0.0))
    ratio = torch.full_like(size, math.nan if predicted is None else predicted)
    if predicted is None:
        offsets, _ = joint.weights(gamma, size)
        law = partial(joint.law, batch, tokens, offsets, norm=norm)
        search = partial(joint.growing_ratio, head, rate, law)
        ratio = solve_named(f"{norm}_law_predicted_ratio", search)
    known = ~(gamma.isnan().any(1) | path.diverged | (size == 0))
    ratios = {
        "law": path.head_parameters["v"].norm(dim=1) / size,
        "law_predicted": ratio,
        "relaxed": torch.full_like(size, torch.inf),
    }
    findings, solutions = Findings(arrays={"gamma": gamma, **arrays("classifier", head)}), {}
    for name, r in ratios.items():
        r = ratios[name] = r.where(known, torch.nan)
        solutions[name], compared = _compare(selected, batch, norm, name, gamma, r, solve_named)
        findings |= compared
    unknown = ratios["law"].isnan() & ~gamma.isnan().any(1)
    return findings | Findings(
        {
            "gamma_least": gamma.amin(1),
            "gamma_most": gamma.amax(1),
            "law_ratio": ratios["law"],
            "law_ratio_predicted": ratios["law_predicted"],
            "law_status": _first_unsolved(unknown, head, *solutions.values()),
            "law_boundary": joint.boundary(batch, gamma, ratios["law"], solutions["law"]),
        }
    )


def compare_with_law_of_layers(selected: Selected, norm: str, solve_named: Solve) -> Findings:
    """Compare W of every layer with the weighted SVM of all rows that the prediction depends on.

    The adjoint of a row k, the derivative of the risk in what attention gives it, takes the place
    of the slope of the loss: offsets -log ||r_k||, with ratio 1 / norm(W).
    """
    trained = selected.trained
    log_adjoint, reached = (trained.network.arrays[name] for name in ("log_adjoint", "reached"))
    batch = dataclasses.replace(trained.batch, mask=reached)
    some = (reached.sum(-1) > 1) & log_adjoint.isfinite()
    offsets = torch.where(some, -log_adjoint, 0.0)
    size = norm_of(norm).value(trained.path.W.nan_to_num(0.0))
    ratio = torch.where(trained.path.diverged | (size == 0), torch.nan, 1 / size)
    law, findings = _compare(selected, batch, norm, "law", offsets, ratio, solve_named)
    seen = some & (trained.batch.mask.sum(-1) > 1)
    least = torch.where(seen, offsets, torch.inf).amin(1)
    most = torch.where(seen, offsets, -torch.inf).amax(1)
    return findings | Findings(
        {
            "adjoint_spread": (most - least).clamp(min=0) * ratio,
            "law_status": _first_unsolved(ratio.isnan(), law),
            "law_boundary": joint.boundary(batch, offsets, ratio, law),
        }
    )


def _first_unsolved(unknown: Tensor, *solutions: SvmSolution[Tensor]) -> list[str]:
    """Return the status of the first SVM that is not solved, or solved; empty where `unknown`."""
    solved, unclear = SvmStatus.solved, unknown.tolist()
    rows = zip(*(solution.statuses for solution in solutions), strict=True)
    first = [next((each for each in row if each is not solved), solved).value for row in rows]
    return ["" if lost else status for status, lost in zip(first, unclear, strict=True)]


def _compare(
    selected: Selected,
    batch: ProblemBatch,
    norm: str,
    name: str,
    gamma: Tensor,
    ratio: Tensor,
    solve_named: Solve,
) -> tuple[SvmSolution[Tensor], Findings]:
    """Return the law of these offsets and ratios, NaN where it is not known, and the distance."""
    svm, (offsets, r) = f"{norm}_{name}", joint.weights(gamma, ratio)
    tokens = selected.selection.selected
    law = solve_named(svm, partial(joint.law, batch, tokens, offsets, r, norm))
    W = law.W.masked_fill(ratio.isnan()[:, None, None], torch.nan)
    weights = {f"{svm}_offsets": offsets, f"{svm}_ratio": r}
    findings = Findings(arrays=weights | arrays(svm, law))
    return law, findings | distance(f"one_minus_corr_{name}", selected.trained.path, W)
