"""How the weights move: full-batch first-order steps, every instance for itself."""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
from torch import Tensor

from attnsvm.config import MACHINE_EPS
from attnsvm.parameterization import Variables

TINY = 1e-300
"""Added to norms of exact gradients: leaves every normal number alone, makes 0 / 0 a zero step."""


class Optimizer(ABC):
    """An update rule with the settings that all rules share.

    Parameters
    ----------
    lr : float
        Step size; of a normalised step, its Frobenius norm.
    steps : int
        Number of updates.
    growth : float
        Step k has size lr * (1 + growth * k).
    gradient : str
        `log_domain`, exact at any norm of W, or `direct`, as published.
    ridge : float
        The loss carries ridge * ||.||_F^2 of each variable.
    init : str
        Initial weights: zero, uniform or small.
    init_scale : float
        Factor on the uniform draw when init=small.
    record_every : int
        Steps between two snapshots.
    """

    def __init__(
        self,
        *,
        lr: float,
        steps: int,
        growth: float,
        gradient: str,
        ridge: float,
        init: str,
        init_scale: float,
        record_every: int,
    ) -> None:
        self.lr, self.steps, self.growth = lr, steps, growth
        self.gradient, self.ridge = gradient, ridge
        self.init, self.init_scale = init, init_scale
        self.record_every = record_every

    def step_size(self, k: int) -> float:
        """Return the size of step k = 0, 1, ..."""
        return self.lr * (1 + self.growth * k)

    @abstractmethod
    def update(
        self, variables: Variables, gradients: Variables, log_scale: Tensor, k: int
    ) -> Variables:
        """Return the variables after step k; the given ones may be overwritten.

        Parameters
        ----------
        variables, gradients : tuple of Tensor
            Each (B, ...); the gradient of the loss is `gradients` times exp(`log_scale`).
        log_scale : Tensor
            Shape (B,).
        k : int
            Number of the step, from 0.
        """


class NormalizedGD(Optimizer):
    """V <- V - eta grad / ||grad||_F, each variable by its own norm (arXiv 2308.16898, sec. 3.2).

    With gradient=direct the norm carries the published + eps; the exact gradient needs none.
    """

    def update(
        self, variables: Variables, gradients: Variables, log_scale: Tensor, k: int
    ) -> Variables:
        """Return V - eta grad / ||grad||_F; a gradient of zero moves nothing."""
        eps = MACHINE_EPS if self.gradient == "direct" else TINY
        eta = self.step_size(k)
        for V, gradient in zip(variables, gradients, strict=True):
            norm = torch.linalg.vector_norm(gradient, dim=(-2, -1), keepdim=True)
            V.addcmul_(gradient, -eta / (norm + eps))
        return variables


class GD(Optimizer):
    """V <- V - eta grad, gradient descent with a fixed step (algorithm W-GD)."""

    def update(
        self, variables: Variables, gradients: Variables, log_scale: Tensor, k: int
    ) -> Variables:
        """Return V - eta grad."""
        eta = self.step_size(k) * log_scale.exp()[:, None, None]
        for V, gradient in zip(variables, gradients, strict=True):
            V.addcmul_(gradient, -eta)
        return variables
