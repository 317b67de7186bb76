"""What the trained weights of an instance converge to: optimal, locally optimal or other tokens."""

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from attnsvm.data.problem import ProblemBatch
from attnsvm.linalg import one_minus_correlation, own_settings
from attnsvm.selection import TokenSelection
from attnsvm.svm import SvmSolution, SvmStatus
from attnsvm.training import Trajectory


@own_settings()
def direction_change(path: Trajectory) -> Tensor:
    """Return 1 - correlation of the final W with W half-way, (B,).

    Half-way is the last snapshot at no more than half of the steps, or of the largest radius. NaN
    without such a snapshot besides the last one, or where W is zero there.
    """
    half = int((path.steps <= path.steps[-1] / 2).sum()) - 1
    if half in (-1, len(path.steps) - 1):
        return torch.full_like(path.loss[:, -1], torch.nan)
    return one_minus_correlation(path.W, path.snapshots[:, half])


@own_settings()
def convergence_types(
    batch: ProblemBatch,
    selection: TokenSelection,
    path: Trajectory,
    solutions: Mapping[str, SvmSolution[Tensor]],
    norm: str | None,
    at_most: float,
) -> list[str]:
    """Return what each trained instance converged to: the first type that applies.

    - `unsaturated`: the attention of some sample is not on one token;
    - `infeasible`: no W separates the selected tokens;
    - `undecided`: neither that nor a W that separates them is proved;
    - `global`: the optimal tokens are selected;
    - `unknown`: there is no SVM in the norm of what was trained;
    - `undecided`: that SVM is not solved;
    - `local`: the selected tokens score above their neighbours, the tokens of margin 1 under the
      solution in that norm (Definition 2 of arXiv 2308.16898);
    - `not_local`: they do not, and W has settled: its direction is near that half-way, and near the
      solution in that norm. Either alone is not enough: steps of gd become too small to change
      anything long before the limit, and a path may pass near the SVM of tokens that it leaves;
    - `unsettled`: they do not, but the limit may select other tokens.

    The batch has the trained parameters of the head, `selection` is by the trained weights, and
    `solutions` are by norm the SVMs of `selection.selected`. `norm` is that of the SVM that
    training converges to (`Parameterization.implicit_bias`); `at_most` the largest 1 - correlation
    of a W that has settled, with W half-way and with the solution.
    """
    gamma = batch.scores()
    chosen = gamma.gather(2, selection.selected[..., None])
    every = solutions.values()  # feasible in all norms if in one
    infeasible = torch.stack([each.having(SvmStatus.infeasible) for each in every]).any(0)
    separated = torch.stack([each.objective.isfinite() for each in every]).any(0)
    rules = [
        ("unsaturated", ~selection.saturated),
        ("infeasible", infeasible),
        ("undecided", ~separated),
        ("global", (selection.selected == selection.optimal).all(1)),
    ]
    solution = solutions.get(norm or "")
    if solution is None:
        rules.append(("unknown", torch.ones(batch.B, dtype=torch.bool)))
    else:
        near = one_minus_correlation(path.W, solution.W) <= at_most
        above = ((gamma < chosen) | ~solution.support).flatten(1).all(1)
        rules += [
            ("undecided", solution.having(SvmStatus.undecided)),
            ("local", above),
            ("not_local", near & (direction_change(path) <= at_most)),
        ]
    types, where = zip(*rules, strict=True)
    return list(np.select([V.cpu().numpy() for V in where], types, "unsettled").tolist())
