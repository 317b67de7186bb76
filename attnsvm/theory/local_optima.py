"""The locally optimal selections of an instance, each with its certified SVM, before training."""

import dataclasses
import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from attnsvm.config.names import keywords_checked
from attnsvm.linalg import own_settings
from attnsvm.norm import Norm
from attnsvm.problem import ProblemBatch
from attnsvm.selection import select_tokens
from attnsvm.svm import SvmSolution, SvmStatus, solve_svm
from attnsvm.training import train

SELECTIONS = 4096
"""Largest number of selections of an instance that are listed."""

AT_ONCE = 20_000
"""Largest number of SVMs that are solved together."""


@dataclass(frozen=True, eq=False)
class LocalOptima:
    """Selections of tokens of one instance with their SVMs.

    Attributes
    ----------
    tokens : Tensor
        One token of each sample, (P, n), int64.
    solution : SvmSolution
        The SVM of each selection in one norm.
    local : list of bool or None
        Whether each is locally optimal (Definition 2 of arXiv 2308.16898): its SVM is feasible, and
        every selected token scores above its neighbours, those of margin 1. None: not decided.
    optimal : Tensor
        Whether every selected token has the highest score of its sample, (P,), bool.
    complete : bool
        Whether these are all: otherwise those that random starts reached.
    share : Tensor
        Share of the random starts that end at each, (P,); NaN without starts. The rest ends at
        other tokens, or has not saturated.
    """

    tokens: Tensor
    solution: SvmSolution[Tensor]
    local: list[bool | None]
    optimal: Tensor
    complete: bool
    share: Tensor


@keywords_checked
@own_settings()
def local_optima(
    batch: ProblemBatch,
    norm: str | Norm = "frobenius",
    *,
    starts: int = 0,
    parameterization: str = "w",
    steps: int = 3000,
) -> list[LocalOptima]:
    """Return the locally optimal selections of every instance.

    All of them if an instance has at most 4096 selections, prod_i T_i; otherwise those that random
    starts reach. One whose SVM is `undecided` is kept, with `local` None.

    Parameters
    ----------
    batch : ProblemBatch
        B instances.
    norm : str or Norm
        Of the SVM: that of the parameterization, frobenius for W and nuclear for (K, Q).
    starts : int
        Number of random starts: `uniform` weights of the seeds 0, 1, ..., trained by normalised
        gradient descent.
    parameterization : str
        What these train, w or kq.
    steps : int
        Their steps, of 0.1.

    Raises
    ------
    ValueError
        If an instance has more selections than can be listed and there are no starts.
    """
    counts = selection_counts(batch)
    complete = [count <= SELECTIONS for count in counts]
    if not all(complete) and not starts:
        raise ValueError(
            f"starts=0: must be >= 1, the number of random starts, for {max(counts)} selections of "
            f"tokens; up to {SELECTIONS} are listed"
        )
    none = torch.empty(0, batch.n, dtype=torch.int64, device=batch.X.device)
    reached = _reached(batch, starts, parameterization, steps) if starts else [none] * batch.B
    lists = [
        every_selection(mask) if every else torch.unique(ends[(ends >= 0).all(-1)], dim=0)
        for mask, every, ends in zip(batch.mask, complete, reached, strict=True)
    ]
    result = []
    for listed, every, ends in zip(judged(batch, lists, norm), complete, reached, strict=True):
        kept = [k for k, verdict in enumerate(listed.local) if verdict is not False]
        index = torch.tensor(kept, dtype=torch.long, device=listed.tokens.device)
        tokens, local = listed.tokens[index], [listed.local[k] for k in kept]
        share = (ends[None] == tokens[:, None]).all(-1).double().mean(-1).cpu()  # NaN of none
        chosen = listed.solution[index], local, listed.optimal[index], every, share
        result.append(LocalOptima(tokens, *chosen))
    return result


def judged(batch: ProblemBatch, lists: list[Tensor], norm: str | Norm) -> Iterator[LocalOptima]:
    """Yield for every instance the given selections, (P, n), with SVM and local optimality.

    Instances are solved together, up to `AT_ONCE` selections.
    """
    scores, size = batch.scores(), max(1, AT_ONCE // max(1, *map(len, lists)))
    for first in range(0, batch.B, size):
        part = lists[first : first + size]
        counts = [len(tokens) for tokens in part]
        place = (first + torch.arange(len(part))).repeat_interleave(torch.tensor(counts))
        place = place.to(batch.X.device)
        tokens, gamma = torch.cat(part), scores[place]
        solution = solve_svm(batch.X[place], batch.Z[place], tokens, norm, batch.mask[place])
        chosen = gamma.gather(2, tokens[..., None])
        above = ((gamma < chosen) | ~solution.support).flatten(1).all(1).tolist()
        local = [
            feasible(status) and up for status, up in zip(solution.statuses, above, strict=True)
        ]
        optimal = (chosen[..., 0] == gamma.amax(-1)).all(1)
        for end, count in zip(itertools.accumulate(counts), counts, strict=True):
            at, share = slice(end - count, end), torch.full((count,), torch.nan).double()
            yield LocalOptima(tokens[at], solution[at], local[at], optimal[at], True, share)


def feasible(status: SvmStatus) -> bool | None:
    """Return whether some W separates the tokens of an SVM; None if it is undecided."""
    return None if status is SvmStatus.undecided else status is not SvmStatus.infeasible


# --- selections -----------------------------------------------------------------------------------


def selection_counts(batch: ProblemBatch) -> list[int]:
    """Return the number of selections of one admissible token a sample, of each instance."""
    return [math.prod(row) for row in batch.mask.sum(-1).tolist()]


def every_selection(mask: Tensor) -> Tensor:
    """Return every choice of one admissible token a sample, (P, n)."""
    return torch.cartesian_prod(*(row.nonzero()[:, 0] for row in mask)).reshape(-1, len(mask))


def _reached(batch: ProblemBatch, starts: int, parameterization: str, steps: int) -> list[Tensor]:
    """Return the tokens that each start of an instance ends at, (starts, n); -1 if unsaturated."""
    index = torch.arange(batch.B).repeat_interleave(starts).to(batch.X.device)
    seeds = torch.arange(starts, device=batch.X.device).repeat(batch.B)
    several = dataclasses.replace(batch.take(index), seeds=seeds)
    path = train(several, parameterization, steps=steps, record_every=steps)
    selection = select_tokens(several, path)
    ends = torch.where(selection.saturated[:, None], selection.selected, -1)
    return list(ends.reshape(batch.B, starts, batch.n))
