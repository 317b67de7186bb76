"""Which tokens an instance attends to, read from its trajectory, and which score highest."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from attnsvm.head import Parameters
from attnsvm.problem import ProblemBatch
from attnsvm.training import Trajectory


@dataclass(frozen=True, eq=False)
class TokenSelection:
    """The attention at the last step, read as tokens (arXiv 2308.16898, Def. 1 and sec. 6).

    Attributes
    ----------
    selected : Tensor
        argmax_t s_it, shape (B, n), int64; the first of tied tokens, and `tie` says so.
    optimal : Tensor
        argmax_t gamma_it, shape (B, n), int64; the first of tied tokens, and `tie` says so.
    attended : Tensor
        O_i = {t : s_it >= attended}, shape (B, n, T), bool.
    ambiguous : Tensor
        Some s_it lies in (negligible, attended), shape (B,), bool.
    max_masked : Tensor
        Largest s_it below `attended`, shape (B,); 0 if there is none.
    top_softmax : Tensor
        max_t s_it, shape (B, n).
    saturated : Tensor
        min_i max_t s_it >= saturation, shape (B,), bool.
    tied_scores : Tensor
        Two admissible tokens of a sample share the largest score, shape (B,), bool.
    tied_softmax : Tensor
        Two admissible tokens of a sample share the largest attention, shape (B,), bool.
    """

    selected: Tensor
    optimal: Tensor
    attended: Tensor
    ambiguous: Tensor
    max_masked: Tensor
    top_softmax: Tensor
    saturated: Tensor
    tied_scores: Tensor
    tied_softmax: Tensor

    @property
    def tie(self) -> Tensor:
        """Whether either is tied, shape (B,), bool."""
        return self.tied_scores | self.tied_softmax


def select_tokens(
    batch: ProblemBatch,
    path: Trajectory,
    *,
    saturation: float = 0.999,
    attended: float = 1e-3,
    negligible: float = 1e-6,
) -> TokenSelection:
    """Return the tokens that each sample attends to at the end of `path`.

    Parameters
    ----------
    batch : ProblemBatch
        The instances that were trained.
    path : Trajectory
        Their training.
    saturation : float
        Smallest top attention of a saturated instance, in [0, 1].
    attended : float
        Attention from which a token counts as attended, in (0, 1].
    negligible : float
        Attention up to which a token counts as not attended; between the two it is ambiguous.
    """
    optimal, tied_scores = optimal_tokens(batch, path.head_parameters if batch.head.train else None)
    s = path.log_softmax.exp()
    top, selected = path.log_softmax.max(-1)
    is_attended = s >= attended
    return TokenSelection(
        selected=selected,
        optimal=optimal,
        attended=is_attended,
        ambiguous=((s > negligible) & ~is_attended).flatten(1).any(-1),
        max_masked=s.masked_fill(is_attended, 0.0).flatten(1).amax(-1),
        top_softmax=top.exp(),
        saturated=(top.exp() >= saturation).all(-1),
        tied_scores=tied_scores,
        tied_softmax=_tied(path.log_softmax),
    )


def optimal_tokens(
    batch: ProblemBatch, parameters: Parameters | None = None
) -> tuple[Tensor, Tensor]:
    """Return opt_i = argmax_t gamma_it, shape (B, n), and which instances have a tie, shape (B,).

    The tokens of highest score gamma_it = Y_i h(x_it) are the globally optimal tokens of
    arXiv 2308.16898, Def. 1. A tie is exact equality of two largest scores of a sample.
    `parameters` are those of a trained head, each (B, ...); the batch's by default.
    """
    gamma = batch.scores(parameters)
    return gamma.argmax(-1), _tied(gamma)


def _tied(values: Tensor) -> Tensor:
    """Return whether the maximum of some row of an instance (B, n, T) is taken twice, (B,)."""
    return ((values == values.amax(-1, keepdim=True)).sum(-1) > 1).any(-1)
