"""Hypotheses of the papers' theorems, each decided for every instance before it is trained.

A verdict is True, False or None, which means undecided: rounding may decide, an SVM is undecided,
or there are too many selections of tokens to list.
"""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.functional import pad

from attnsvm import parameterization
from attnsvm.data.problem import ProblemBatch
from attnsvm.head import Linear, Quadratic, Relu
from attnsvm.linalg import own_settings
from attnsvm.loss import Loss
from attnsvm.nn.risk import Risk
from attnsvm.selection import optimal_tokens
from attnsvm.svm import SvmProblem, solve_svm
from attnsvm.svm.frobenius.pivoting import by_size
from attnsvm.theory import local_optima as optima
from attnsvm.training.start import runner_up

Verdicts = list[bool | None]

ROUNDING = 1e-12
"""Differences below this, relative to the largest number, are undecided: rounding may decide."""

B1_TOLERANCE = 1e-9
"""Largest distance of a margin from 1 with Assumption B.1."""

GRAM_NUMBERS = 2**24
"""Largest number of entries of the Gram matrices that are in memory together."""


@own_settings()
def unique_optimum(batch: ProblemBatch) -> Verdicts:
    """Return whether every sample has one token of highest score (Definition 1)."""
    gamma = batch.scores()
    top = pad(gamma, (0, 1), value=-torch.inf).topk(2, dim=-1).values
    return _positive((top[..., 0] - top[..., 1]).amin(-1), _size(gamma))


@own_settings()
def assumption_b2(batch: ProblemBatch) -> Verdicts:
    """Return whether all other tokens of a sample share one score, below the best (B.2)."""
    gamma, (_, others) = batch.scores(), _optimal_and_others(batch)
    spread = torch.where(others, gamma, -torch.inf).amax(-1)
    spread = (spread - torch.where(others, gamma, torch.inf).amin(-1)).clamp(min=0).amax(-1)
    differ = _positive(spread, _size(gamma))
    pairs = zip(differ, unique_optimum(batch), strict=True)
    return [_and(None if first is None else not first, second) for first, second in pairs]


def _optimal_and_others(batch: ProblemBatch) -> tuple[Tensor, Tensor]:
    """Return the optimal tokens (B, n, 1), and which are the other admissible ones (B, n, T)."""
    optimal = optimal_tokens(batch)[0][..., None]
    return optimal, batch.mask.scatter(2, optimal, False)


def overparameterized(batch: ProblemBatch) -> Verdicts:
    """Return whether d >= max(T - 1, n), T being the tokens that a sample may attend to."""
    T = batch.mask.sum(-1).amax(-1)
    return list((batch.d >= (T - 1).clamp(min=batch.n)).tolist())


@own_settings()
def optimum_feasible(batch: ProblemBatch) -> Verdicts:
    """Return whether some W separates the optimal tokens, certified."""
    optimal, _ = optimal_tokens(batch)
    solution = solve_svm(batch.X, batch.Z, optimal, "frobenius", batch.mask)
    return [optima.feasible(status) for status in solution.statuses]


# --- Assumption B.1 ---------------------------------------------------------------------------


@own_settings()
def assumption_b1(problem: SvmProblem) -> Verdicts:
    """Return whether all margins equal 1 at the optimum of each problem (Assumption B.1).

    All constraints are active with multipliers lam >= 0 iff  G lam = 1, lam >= 0  is solvable,
    G = (D D^T) o (Z Z^T), i.e. iff some W in the cone of the d_k z_k^T has every margin equal to 1.
    That W has the least Frobenius norm, so the margins of the solver's W decide, to 1e-9. None
    where the solver finds neither W nor a ray, which proves that there is none.

    Parameters
    ----------
    problem : SvmProblem
        Problems of single tokens; one without constraints satisfies the assumption.
    """
    size, verdicts = max(1, GRAM_NUMBERS // problem.N**2), Verdicts()
    for k in range(0, problem.B, size):
        part = problem.take(slice(k, k + size))
        W, _, ray = by_size(part)
        apart = torch.where(part.inequality, (part.margins(W) - 1).abs(), 0.0).amax(1)
        equal = apart <= B1_TOLERANCE
        decided = equal | W.isfinite().flatten(1).all(1) | ray.isfinite().all(1)
        pairs = zip(equal.tolist(), decided.tolist(), strict=True)
        verdicts += [first if known else None for first, known in pairs]
    return verdicts


# --- Assumption D -----------------------------------------------------------------------------


@own_settings()
def assumption_d(batch: ProblemBatch, norm: str = "frobenius") -> Verdicts:
    """Return whether no other selection hides the optimal tokens from its SVM (Assumption D).

    For every alpha != opt whose SVM is feasible some sample has alpha_i != opt_i and opt_i among
    the neighbours of alpha, the tokens of margin 1 under the SVM of alpha. First the selections
    that leave out one optimal token are searched, then all of them: one that refutes decides False,
    also where there are too many to list all. None if these are, and none is found, or if an SVM on
    which it depends is undecided.
    """
    optimal, _ = optimal_tokens(batch)
    lists = [_one_apart(mask, best) for mask, best in zip(batch.mask, optimal, strict=True)]
    few = zip(optima.judged(batch, lists, norm), optimal, strict=True)
    verdicts: Verdicts = [False if _hides_nothing(*pair) is False else None for pair in few]
    counts = optima.selection_counts(batch)
    left = [
        k for k, holds in enumerate(verdicts) if holds is None and counts[k] <= optima.SELECTIONS
    ]
    if left:
        part = batch.take(torch.tensor(left, device=batch.X.device))
        lists = [optima.every_selection(mask) for mask in part.mask]
        for k, every in zip(left, optima.judged(part, lists, norm), strict=True):
            verdicts[k] = _hides_nothing(every, optimal[k])
    return verdicts


def _one_apart(mask: Tensor, optimal: Tensor) -> Tensor:
    """Return `optimal` and the selections with another token in one sample, (P, n)."""
    sample, token = mask.scatter(1, optimal[:, None], False).nonzero(as_tuple=True)
    changed = optimal.repeat(len(sample), 1).scatter(1, sample[:, None], token[:, None])
    return torch.cat([optimal[None], changed])


def _hides_nothing(every: optima.LocalOptima, optimal: Tensor) -> bool | None:
    """Return whether none of these selections refutes Assumption D.

    A selection does if it leaves out optimal tokens, none of them a neighbour, and is feasible.
    """
    left_out = every.tokens != optimal
    neighbour = every.solution.support.take_along_dim(optimal[None, :, None], 2)[..., 0]
    hides = left_out.any(1) & ~(left_out & neighbour).any(1)
    refuting = [optima.feasible(every.solution.statuses[k]) for k in hides.nonzero()[:, 0].tolist()]
    if True in refuting:
        return False
    return None if None in refuting else True


# --- other hypotheses -------------------------------------------------------------------------


@own_settings()
def aligned_gradient(batch: ProblemBatch, W: Tensor, loss: Loss) -> Verdicts:
    """Return whether the step -grad L(W) alone separates the optimal tokens.

    -(x_i,opt - x_it)^T grad L(W) z_i > 0 for all samples i and admissible t != opt_i, so that the
    direction of the first step of gradient descent already is one of Att-SVM's feasible ones.

    `W` are the initial weights, (B, d, d).
    """
    risk = Risk(batch, parameterization.W(), loss)
    (G,) = risk.gradient((W,), risk.forward((W,)), "direct").parts
    moved = (batch.X @ (batch.Z @ -G.mT)[..., None])[..., 0]
    optimal, others = _optimal_and_others(batch)
    ahead = moved.gather(2, optimal) - moved
    least = torch.where(others, ahead, torch.inf).flatten(1).amin(1)
    return _positive(least, moved.abs().flatten(1).amax(1))


@own_settings()
def order_preserving(batch: ProblemBatch) -> Verdicts:
    """Return whether every mixture of a sample's tokens scores below its best token.

    argmax_{s in simplex} Y_i h(X_i^T s) is one token. If that token is unique, this holds for a
    linear head, and wherever Y_i h is convex: a relu head with Y_i = +1, a quadratic one with
    Y_i = -1. Where Y_i h is concave, the slopes from the best token to the others must be < 0: at 0
    a relu head scores some mixtures as high. None for any other head, and where the best token lies
    on a kink of relu.
    """
    head, unique = batch.head, unique_optimum(batch)
    if type(head) is Linear:
        return unique
    if type(head) not in (Relu, Quadratic):
        return [None] * batch.B
    convex = batch.Y > 0 if type(head) is Relu else batch.Y < 0
    optimal, others = _optimal_and_others(batch)
    best = batch.X.take_along_dim(optimal[..., None], 2)
    slope = head.gradient(best[:, :, 0], batch.head_parameters) * batch.Y[..., None]
    fall = ((best - batch.X) @ slope[..., None])[..., 0]
    concave = others & ~convex[..., None]
    least = torch.where(concave, fall, torch.inf).flatten(1).amin(1)
    below = _positive(least, _size(batch.scores()) + fall.abs().flatten(1).amax(1))
    if type(head) is Relu:
        V = batch.head_parameters["V"]
        size = best.norm(dim=-1) * V.norm(dim=-2, keepdim=True)
        near = (best[:, :, 0] @ V).abs() <= ROUNDING * size
        kinked = (near.any(-1) & ~convex).any(-1).tolist()
        below = [None if kink else first for first, kink in zip(below, kinked, strict=True)]
    return [_and(first, second) for first, second in zip(below, unique, strict=True)]


@own_settings()
def runner_up_local(batch: ProblemBatch, norm: str = "frobenius") -> Verdicts:
    """Return whether the tokens of init=cone_runner_up are locally optimal (Definition 2).

    They are the optimal ones, but of second highest score in the first sample.
    """
    tokens = runner_up(batch, optimal_tokens(batch)[0])
    return [judged.local[0] for judged in optima.judged(batch, list(tokens[:, None]), norm)]


# --- three-valued logic ---------------------------------------------------------------------------


def _positive(values: Tensor, size: Tensor) -> Verdicts:
    """Return whether each value is > 0; undecided is what rounding may have made of 0.

    An exact 0 is not positive.
    """
    return [
        None if value and not abs(value) > least else value > 0
        for value, least in zip(values.tolist(), (ROUNDING * size).tolist(), strict=True)
    ]


def _size(gamma: Tensor) -> Tensor:
    return torch.where(gamma.isfinite(), gamma.abs(), 0.0).flatten(1).amax(1)


def _and(first: bool | None, second: bool | None) -> bool | None:
    return False if second is False else first and second


# --- by name --------------------------------------------------------------------------------------

INSTANCE_HYPOTHESES: dict[str, Callable[[ProblemBatch], Verdicts]] = {
    hypothesis.__name__: hypothesis
    for hypothesis in (
        unique_optimum,
        assumption_b2,
        assumption_d,
        overparameterized,
        optimum_feasible,
        order_preserving,
        runner_up_local,
    )
}
"""Hypotheses of the instance alone, by the name of their column."""
