"""Trained W against the law of joint training: with a linear head, or of a network's layers."""

import dataclasses
from functools import partial

import torch
from torch import Tensor

from attnsvm.experiment.results import Findings, Selected, distance
from attnsvm.experiment.svms import Solve, arrays
from attnsvm.head import Joint, Linear
from attnsvm.loss import Exponential, Logistic
from attnsvm.norm import norm_of
from attnsvm.problem import ProblemBatch
from attnsvm.svm import SvmSolution, SvmStatus
from attnsvm.theory import joint

LAWFUL = {(head, loss) for head in (Linear, Joint) for loss in (Logistic, Exponential)}
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
    law = partial(joint.law, batch, tokens, norm=norm)
    if predicted is None:
        offsets, _ = joint.weights(gamma, size)
        search = partial(joint.growing_ratio, head, rate, partial(law, offsets))
        ratio = solve_named(f"{norm}_law_predicted_ratio", search)
    else:
        ratio = torch.full_like(size, predicted)
    ratios = {
        "law": path.head_parameters["v"].norm(dim=1) / size,
        "law_predicted": ratio,
        "relaxed": torch.full_like(size, torch.inf),
    }
    lost = gamma.isnan().any(1) | path.diverged | (size == 0)
    found, solutions = Findings(arrays={"gamma": gamma, **arrays("classifier", head)}), {}
    for name, r in ratios.items():
        r = ratios[name] = r.masked_fill(lost, torch.nan)
        solutions[name], one = _compare(selected, batch, norm, name, gamma, r, solve_named)
        found |= one
    ratio = ratios["law_predicted"]
    if predicted is None:
        image = joint.growing_image(head, rate, solutions["law_predicted"])
        ratio = joint.solved_ratio(ratio, image)
    unknown = (ratios["law"].isnan() & ~gamma.isnan().any(1)).tolist()
    statuses = zip(head.statuses, *(one.statuses for one in solutions.values()), strict=True)
    solved = SvmStatus.solved
    unsolved = (next((one for one in found if one is not solved), solved) for found in statuses)
    status = ["" if lacks else one.value for one, lacks in zip(unsolved, unknown, strict=True)]
    return found | Findings(
        {
            "gamma_least": gamma.amin(1),
            "gamma_most": gamma.amax(1),
            "law_ratio": ratios["law"],
            "law_ratio_predicted": ratio,
            "law_status": status,
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
    law, found = _compare(selected, batch, norm, "law", offsets, ratio, solve_named)
    seen = some & (trained.batch.mask.sum(-1) > 1)
    least = torch.where(seen, offsets, torch.inf).amin(1)
    most = torch.where(seen, offsets, -torch.inf).amax(1)
    statuses = zip(law.statuses, ratio.isnan().tolist(), strict=True)
    return found | Findings(
        {
            "adjoint_spread": (most - least).clamp(min=0) * ratio,
            "law_status": ["" if lost else one.value for one, lost in statuses],
            "law_boundary": joint.boundary(batch, offsets, ratio, law),
        }
    )


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
    found = Findings(arrays=weights | arrays(svm, law))
    return law, found | distance(f"one_minus_corr_{name}", selected.trained.path, W)
