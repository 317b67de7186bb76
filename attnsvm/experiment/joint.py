"""W trained together with a linear head, compared with the law of joint training."""

from functools import partial

import torch

from attnsvm.experiment.results import Findings, Selected, distance
from attnsvm.experiment.svms import Solve, arrays
from attnsvm.head import Joint, Linear
from attnsvm.loss import Exponential, Logistic
from attnsvm.norm import norm_of
from attnsvm.svm import SvmStatus
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
        ratios[name], svm = r.masked_fill(lost, torch.nan), f"{norm}_{name}"
        offsets, r = joint.weights(gamma, ratios[name])
        solutions[name] = one = solve_named(svm, partial(law, offsets, r))
        W = one.W.masked_fill(ratios[name].isnan()[:, None, None], torch.nan)
        found |= distance(f"one_minus_corr_{name}", path, W)
        weights = {f"{svm}_offsets": offsets, f"{svm}_ratio": r}
        found |= Findings(arrays=weights | arrays(svm, one))
    ratio = ratios["law_predicted"]
    if predicted is None:
        image = joint.growing_image(head, rate, solutions["law_predicted"])
        ratio = joint.solved_ratio(ratio, image)
    unknown = (ratios["law"].isnan() & ~gamma.isnan().any(1)).tolist()
    statuses = zip(head.statuses, solutions["law"].statuses, unknown, strict=True)
    return found | Findings(
        {
            "gamma_least": gamma.amin(1),
            "gamma_most": gamma.amax(1),
            "law_ratio": ratios["law"],
            "law_ratio_predicted": ratio,
            "law_status": [
                "" if lacks else (law if first is SvmStatus.solved else first).value
                for first, law, lacks in statuses
            ],
            "law_boundary": joint.boundary(batch, gamma, ratios["law"], solutions["law"]),
        }
    )
