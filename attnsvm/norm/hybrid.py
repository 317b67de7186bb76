"""Norms of a matrix whose last column is a bias."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from attnsvm.norm.base import Norm


class Hybrid(Norm):
    """max(A(W_1), B(w_2)), w_2 the last column of W, as a bias, and W_1 all others.

    Its dual is the sum A*(W_1) + B*(w_2), and the steepest direction that of each block, as where
    Muon trains the weights and signs the bias (arXiv 2602.16340). A single column is w_2.
    """

    def __init__(self, weights: Norm, bias: Norm, is_sum: bool = False) -> None:
        self.weights, self.bias, self.is_sum = weights, bias, is_sum
        self.name = f"{weights.name}+{bias.name}" + " as a sum" * is_sum

    def blocks(self, W: Any) -> list[tuple[Norm, Any]]:
        """Return A with W_1, unless that has no column, and B with w_2."""
        blocks = [(self.weights, W[..., :-1]), (self.bias, W[..., -1:])]
        return blocks[W.shape[-1] == 1 :]

    def value(self, W: Tensor) -> Tensor:
        """Return the larger norm of a block, of the dual the sum."""
        sizes = torch.stack([norm.value(block) for norm, block in self.blocks(W)], -1)
        return sizes.sum(-1) if self.is_sum else sizes.amax(-1)

    @property
    def dual(self) -> Hybrid:
        """The sum of the dual norms; of that the maximum."""
        return Hybrid(self.weights.dual, self.bias.dual, not self.is_sum)

    def steepest(self, M: Tensor) -> Tensor:
        """Return the direction of each block; of the sum that of the one with the largest dual."""
        steps = [norm.steepest(block) for norm, block in self.blocks(M)]
        if self.is_sum and len(steps) > 1:
            first, last = (norm.dual.value(block) for norm, block in self.blocks(M))
            keep = (first >= last).to(M)[..., None, None]
            steps = [keep * steps[0], (1 - keep) * steps[1]]
        return torch.cat(steps, -1)

    def spread(self, d: int) -> float:
        """Return a bound of it: of the sum the root of the sum of squares."""
        sizes = self.weights.spread(d), self.bias.spread(d)
        return math.hypot(*sizes) if self.is_sum else max(sizes)

    def expression(self, W: Any) -> Any:
        """Return the maximum of both blocks."""
        import cvxpy as cp

        return cp.max(cp.hstack([norm.expression(block) for norm, block in self.blocks(W)]))
