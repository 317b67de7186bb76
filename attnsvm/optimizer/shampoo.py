"""Steps in the eigenvectors of sums of squared gradients: `optimizer=shampoo | soap`."""

from collections.abc import Iterator
from functools import partial

import torch
from torch import Tensor

from attnsvm.config import optimizer as schema
from attnsvm.linalg import EPS
from attnsvm.optimizer.base import FirstOrder, Step, Velocity, broadcast
from attnsvm.optimizer.gradient_descent import Adam, Turn
from attnsvm.parameterization import Variables


class Shampoo(FirstOrder, options=schema.ShampooConfig):
    """V <- V - eta (L + eps)^(-1/4) G (R + eps)^(-1/4), L <- beta L + G G^T, R <- beta R + G^T G.

    As of arXiv 1802.09568 with beta = 1. The powers are on the ranges of L and R, which contain
    those of G, so that eps may be zero: with beta = 0 the step then is the polar factor of G,
    steepest descent in the spectral norm.
    """

    beta: float
    eps: float

    def update(self, step: Step) -> Variables:
        """Return the variables after a step; unchanged where the gradient is zero."""
        of_each = zip(step.each(), _eigenbases(step, self.beta, self.eps), strict=True)
        for (V, G, log_G), (turn, back, root, log_root) in of_each:
            size = log_G.where(G.flatten(1).any(1), -torch.inf) - log_root
            V.sub_(back(step.eta * broadcast(size.exp(), V) * turn(G) / root))
        return step.variables


class SOAP(Adam, options=schema.SOAPConfig):
    """Adam in the eigenvectors of Shampoo's L and R, which forget as beta2 says (arXiv 2409.11321).

    They are those at this step, exactly; published are approximate ones of every tenth step.
    """

    def turns(self, step: Step) -> list[tuple[Turn, Turn]]:
        """Return how the eigenvectors of each variable are reached, and left."""
        return [(turn, back) for turn, back, *_ in _eigenbases(step, self.beta2)]


def _eigenbases(
    step: Step, beta: float, eps: float = 0.0
) -> Iterator[tuple[Turn, Turn, Tensor, Tensor]]:
    """Yield for each variable the eigenvectors of L and R: how they are reached, and left.

    And in them the fourth root of (l_i + eps) (r_j + eps), with a log-scale (B,), of eigenvalues
    l_i and r_j. A vector counts as a matrix with one column.
    """
    shapes = [(V.shape[1], V[0, 0].numel()) for V in step.variables]
    sums = step.memory.setdefault("sums", [
        [Velocity(V.new_zeros(len(V), k, k), beta) for k in shape]
        for V, shape in zip(step.variables, shapes, strict=True)
    ])  # fmt: skip
    for (_, part, scale), shape, both in zip(step.each(), shapes, sums, strict=True):
        G = part.reshape(-1, *shape)
        left, P, log_L = _eigen(both[0].add(G @ G.mT, 2 * scale), eps)
        right, Q, log_R = _eigen(both[1].add(G.mT @ G, 2 * scale), eps)
        root = (left[..., None] * right[:, None]) ** 0.25
        turn, back = partial(_between, P.mT, Q), partial(_between, P, Q.mT)
        yield turn, back, root.view_as(part), (log_L + log_R) / 4


def _eigen(added: tuple[Tensor, Tensor, Tensor], eps: float) -> tuple[Tensor, Tensor, Tensor]:
    """Return the eigenvalues (B, k) of a sum, plus eps, the vectors (B, k, k), and the log-scale.

    Where values are rounding errors they are one, and the vectors zero.
    """
    M, _, scale = added
    values, vectors = torch.linalg.eigh(M.nan_to_num())
    counts = values > 4 * M.shape[-1] * EPS * values[:, -1:]
    constant = eps * (-scale[:, None]).exp() if eps else 0.0
    return values.where(counts, 1.0) + constant, vectors * counts[:, None], scale


def _between(left: Tensor, right: Tensor, V: Tensor) -> Tensor:
    return (left @ V.reshape(len(V), left.shape[2], -1) @ right).reshape(V.shape)
