"""The tokens that the SVM separates: `selection=top`, `optimal`, `multi`; excluded instances.

`top` selects the token of largest softmax at the end of training, `optimal` the token of highest
score without training, `multi` all attended tokens.
"""

from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor

from attnsvm.config.names import keywords_checked
from attnsvm.data.problem import ProblemBatch
from attnsvm.display.results import Batched
from attnsvm.head import Parameters
from attnsvm.linalg import own_settings
from attnsvm.training import Trajectory


@dataclass(frozen=True, eq=False, repr=False)
class TokenSelection(Batched):
    """The tokens selected by the attention at the last step (arXiv 2308.16898, Def. 1 and sec. 6).

    Attributes
    ----------
    selected : Tensor
        argmax_t s_it, shape (B, n), int64; the first of tied tokens (see `tie`).
    optimal : Tensor
        argmax_t gamma_it, shape (B, n), int64; the first of tied tokens (see `tie`).
    attended : Tensor
        O_i = {t : s_it >= attended}, shape (B, n, T), bool.
    ambiguous : Tensor
        Some s_it is in (negligible, attended), shape (B,), bool.
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

    def summary(self) -> dict[str, Any]:
        """Return the sizes, and how many instances have selected one token in every sample."""
        B, n, T = self.attended.shape
        optimal = (self.selected == self.optimal).all(-1) & self.saturated
        counted = {"saturated": self.saturated, "optimal": optimal, "tied": self.tie}
        sizes = {"instances": B, "n": n, "T": T}
        return sizes | {name: int(of.sum()) for name, of in counted.items()}

    def __len__(self) -> int:
        """Return the number of instances."""
        return len(self.selected)

    @property
    def tie(self) -> Tensor:
        """Whether scores or attention are tied, shape (B,), bool."""
        return self.tied_scores | self.tied_softmax


@keywords_checked
@own_settings()
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
        Their trajectory, which `train` returns.
    saturation : float
        Smallest top attention of a saturated instance, in [0, 1].
    attended : float
        Smallest attention of an attended token, in (0, 1].
    negligible : float
        Largest attention of an unattended token; a token between the two is ambiguous.
    """
    if not isinstance(cast(object, path), Trajectory):
        got = type(path).__name__
        raise TypeError(f"path: {got}; must be the Trajectory that train returns: path, not path.W")
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


@own_settings()
def optimal_tokens(
    batch: ProblemBatch, parameters: Parameters | None = None
) -> tuple[Tensor, Tensor]:
    """Return opt_i = argmax_t gamma_it, shape (B, n), and which instances have a tie, shape (B,).

    The tokens of highest score gamma_it = Y_i h(x_it) are the globally optimal tokens of
    arXiv 2308.16898, Def. 1. A tie is exact equality of two largest scores of a sample.
    `parameters` of a trained head, each (B, ...), take the place of those of the batch.
    """
    gamma = batch.scores(parameters)
    return gamma.argmax(-1), _tied(gamma)


def _tied(values: Tensor) -> Tensor:
    """Return whether the maximum of some row of an instance (B, n, T) is taken twice, (B,)."""
    return ((values == values.amax(-1, keepdim=True)).sum(-1) > 1).any(-1)


@own_settings()
def tied_optimal(batch: ProblemBatch) -> Tensor:
    """Return where the solution depends on which of tied tokens counts as optimal, (B,).

    Equal tokens cannot be separated, whichever of them is selected; different tokens can lead to
    different solutions.
    """
    gamma = batch.scores()
    tied = (gamma == gamma.amax(-1, keepdim=True)).unsqueeze(-1)
    highest = batch.X.masked_fill(~tied, -torch.inf).amax(2)
    lowest = batch.X.masked_fill(~tied, torch.inf).amin(2)
    return (highest > lowest).flatten(1).any(-1)
