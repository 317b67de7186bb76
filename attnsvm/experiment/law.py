"""Trained weights against the law of joint training: of a linear head, or of a network's layers."""

import dataclasses
import math
from functools import partial

import torch
from torch import Tensor

from attnsvm.config.sources import package_of
from attnsvm.experiment.svms import Svm, Work
from attnsvm.head import Joint, Linear
from attnsvm.loss import Exponential, Logistic
from attnsvm.norm import norm_of
from attnsvm.svm import SvmStatus
from attnsvm.theory import joint

HEADS, LOSSES = (Linear, Joint), (Logistic, Exponential)
"""Types of a trained head and of a loss with the law."""


def compare_with_law(work: Work) -> None:
    """Compare the trained weights with the law, in the norm of the SVM that W converges to.

    Nothing is compared of a run without the law.
    """
    objects, trained = work.run.objects, work.trained
    rules = objects.optimizer, objects.parameterization, objects.head, objects.loss
    ours = all(package_of(type(rule).__module__) == "attnsvm" for rule in rules)
    lawful = objects.head.train and type(objects.head) in HEADS and type(objects.loss) in LOSSES
    norm = objects.implicit_bias()
    if norm is None or not ours or not (lawful or trained.key):
        return
    size = norm_of(norm).value(trained.path.W.nan_to_num(0.0))
    lost = trained.path.diverged | (size == 0)
    if trained.key:
        of_layers(work, norm, (1 / size).masked_fill(lost, torch.nan))
    else:
        of_head(work, norm, size, lost)


def of_head(work: Work, norm: str, size: Tensor, lost: Tensor) -> None:
    """Compare W with the weighted SVMs of ratio r: measured, predicted, infinite.

    `size` is norm(W), and `lost` says where it is unknown or zero.
    """
    batch, objects, selected = work.trained.batch, work.run.objects, work.selection.selected
    head = work.keep("classifier", work.solve(joint.max_margin_head, batch, selected))
    gamma, rate = joint.head_margins(head), batch.head.rate
    predicted = joint.ratio_of_steps(objects.optimizer, objects.parameterization, rate)
    if predicted is None:
        law = partial(joint.law, batch, selected, joint.weights(gamma, size)[0], norm=norm)
        ratio = work.solve(joint.growing_ratio, head, rate, law)
    else:
        ratio = torch.full_like(size, predicted)
    ratios = {
        "law": work.trained.path.head_parameters["v"].norm(dim=1) / size,
        "law_predicted": ratio,
        "relaxed": torch.full_like(size, math.inf),
    }
    unknown = gamma.isnan().any(1)
    ratios = {name: r.masked_fill(unknown | lost, torch.nan) for name, r in ratios.items()}
    laws = {name: solved(work, norm, name, gamma, r, batch.mask) for name, r in ratios.items()}
    work.findings.arrays["gamma"] = gamma
    work.findings.columns.update(
        gamma_least=gamma.amin(1),
        gamma_most=gamma.amax(1),
        law_ratio=ratios["law"],
        law_ratio_predicted=ratios["law_predicted"],
        law_status=first_unsolved(ratios["law"].isnan() & ~unknown, head, *laws.values()),
        law_boundary=joint.boundary(batch, gamma, ratios["law"], laws["law"]),
    )


def of_layers(work: Work, norm: str, ratio: Tensor) -> None:
    """Compare W of every layer with the weighted SVM of all rows that the prediction depends on.

    The adjoint of a row k, the derivative of the risk in what attention gives it, takes the place
    of the slope of the loss: offsets -log ||r_k||, with ratio 1 / norm(W).
    """
    batch, network = work.trained.batch, work.trained.network.arrays
    log_adjoint, reached = network["log_adjoint"], network["reached"]
    some = (reached.sum(-1) > 1) & log_adjoint.isfinite()
    offsets = torch.where(some, -log_adjoint, 0.0)
    law = solved(work, norm, "law", offsets, ratio, reached)
    seen = some & (batch.mask.sum(-1) > 1)
    least = torch.where(seen, offsets, torch.inf).amin(1)
    most = torch.where(seen, offsets, -torch.inf).amax(1)
    of_reached = dataclasses.replace(batch, mask=reached)
    work.findings.columns.update(
        adjoint_spread=(most - least).clamp(min=0) * ratio,
        law_status=first_unsolved(ratio.isnan(), law),
        law_boundary=joint.boundary(of_reached, offsets, ratio, law),
    )


def solved(work: Work, norm: str, name: str, gamma: Tensor, ratio: Tensor, mask: Tensor) -> Svm:
    """Return the law of these offsets and ratios, NaN where it is not known; compare W with it."""
    name_of, (offsets, r) = f"{norm}_{name}", joint.weights(gamma, ratio)
    batch = dataclasses.replace(work.trained.batch, mask=mask)
    law = work.solve(joint.law, batch, work.selection.selected, offsets, r, norm)
    law = work.keep(name_of, law)
    work.findings.arrays.update({f"{name_of}_offsets": offsets, f"{name_of}_ratio": r})
    work.distance(
        f"one_minus_corr_{name}", law.W.masked_fill(ratio.isnan()[:, None, None], math.nan)
    )
    return law


def first_unsolved(unknown: Tensor, *solutions: Svm) -> list[str]:
    """Return the status of the first SVM that is not solved, or solved; empty where `unknown`."""
    words = ["solved"] * len(unknown)
    for solution in solutions[::-1]:
        for k, status in enumerate(solution.statuses):
            words[k] = words[k] if status is SvmStatus.solved else status.value
    return ["" if lost else word for word, lost in zip(words, unknown.tolist(), strict=True)]
