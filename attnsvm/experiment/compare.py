"""The comparison of trained weights with the SVMs: columns and curves."""

from __future__ import annotations

import torch

from attnsvm.comparison import margin_gap, svmeq, svmeq_factor, svmeq_least_squares
from attnsvm.experiment.svms import Separated
from attnsvm.experiment.tables import Findings, distance
from attnsvm.experiment.trained import Selected
from attnsvm.record.columns import NORMS, svmeq_name
from attnsvm.theory import convergence_types, direction_change
from attnsvm.training import Trajectory


def compare(
    selected: Selected, separated: Separated, implicit_bias: str | None, settled: float
) -> Findings:
    """Compare the trained weights with the SVMs of the tokens of largest softmax.

    `implicit_bias` is the norm of the SVM that training converges to; `settled` the largest
    1 - correlation at which a direction counts as its limit.
    """
    path, status = selected.trained.path, selected.status
    given = selected.trained.batch, selected.selection, path, separated.solutions
    columns = {
        "direction_change": direction_change(path),
        "convergence": [
            "" if word in ("tie", "diverged") else kind
            for kind, (word, _) in zip(
                convergence_types(*given, implicit_bias, settled), status, strict=True
            )
        ],
    }
    found = Findings(columns)
    for norm, solution in separated.solutions.items():
        found |= Findings({f"{norm}_margin_gap": margin_gap(path.W, solution)})
        found |= distance(f"one_minus_corr_{norm}", path, solution.W)
        if norm not in NORMS:
            gaps = [margin_gap(W, solution) for W in path.snapshots.unbind(1)]
            found |= Findings(curves={f"margin_gap_{norm}": (path.steps, torch.stack(gaps, dim=1))})
    return found


def compare_attended(path: Trajectory, separated: Separated) -> Findings:
    """Compare the trained weights with W_fin + C W_mm of Gen-SVM, and with one token's SVM."""
    one, found, W = separated.one_token, Findings(), path.snapshots
    if one is not None:
        found |= distance("one_minus_corr_1token", path, one.W)
    for norm, mm in separated.solutions.items():
        pair = separated.finite[norm].W[:, None], mm.W[:, None]
        found |= distance(f"one_minus_corr_{norm}", path, mm.W)
        found |= distance(svmeq_name(norm), path, svmeq(W, *pair))
        found |= Findings({f"svmeq_C_{norm}": svmeq_factor(W, *pair)[:, -1]})
        if norm == "frobenius":
            found |= distance("one_minus_corr_svmeq_lsq", path, svmeq_least_squares(W, *pair))
    return found
