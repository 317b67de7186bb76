"""The base class of all optimizers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from attnsvm.attention import Risk, View
from attnsvm.config import ConfigError
from attnsvm.head import Head, Linear
from attnsvm.loss import Loss
from attnsvm.parameterization import Variables

Visit = Callable[[Variables, View], None]
Report = Callable[[int], None]


@dataclass(kw_only=True, eq=False)
class Optimizer(ABC):
    """A rule that computes a sequence of recorded variables from initial ones.

    Parameters
    ----------
    init : str
        Initial weights: zero, uniform, small, balanced, aligned, cone or file.
    init_scale : float
        Factor on the uniform draw when init=small | balanced; ||W0||_F when init=aligned | cone.
    init_path : str, optional
        File of the weights when init=file, or of the tokens when init=cone.
    init_angle : float
        Angle of W0 to the direction of the SVM when init=cone, in degrees.
    """

    init: str
    init_scale: float
    init_path: str | None = None
    init_angle: float = 0.0

    @property
    def implicit_bias(self) -> str | None:
        """Norm of the SVM that training W converges to in direction; None where it is not known."""
        return None

    def check_head(self, head: Head) -> None:  # noqa: B027
        """Raise ConfigError if the optimizer cannot be used with `head`."""

    def check_loss(self, loss: Loss) -> None:  # noqa: B027
        """Raise ConfigError if the optimizer cannot be used with `loss`."""

    @abstractmethod
    def grid(self) -> list[float]:
        """Return the points at which to record: numbers of steps, or radii."""

    @abstractmethod
    def run(self, risk: Risk, variables: Variables, visit: Visit, report: Report) -> Variables:
        """Minimise `risk` from `variables` and return the final variables.

        Parameters
        ----------
        risk : Risk
            The objective.
        variables : tuple of Tensor
            Initial values, which may be overwritten.
        visit : callable
            Is called with the variables and their view for each entry of `grid()`.
        report : callable
            Is called with the number of units of work done so far.
        """


class OfLinearHead(Optimizer):
    """An optimizer that needs what is known with a linear head that is not trained."""

    NAME: ClassVar[str]
    """The optimizer's name in messages."""

    KNOWN: ClassVar[str]
    """What is known of the head, and of the loss, in messages."""

    LOSSES: ClassVar[str] = "decreasing"
    """Which losses are allowed, in messages."""

    def check_head(self, head: Head) -> None:
        """Raise ConfigError unless the head is linear and not trained."""
        if not isinstance(head, Linear) or head.train:
            raise ConfigError(
                f"optimizer={self.NAME}: head must be linear with train=false: {self.KNOWN}"
            )

    def check_loss(self, loss: Loss) -> None:
        """Raise ConfigError unless the loss is allowed."""
        if not self.allows(loss):
            raise ConfigError(f"optimizer={self.NAME}: loss must be {self.LOSSES}: {self.KNOWN}")

    def allows(self, loss: Loss) -> bool:
        """Return whether the loss is allowed: for the least risk L* = mean_i l(max_t gamma_it).

        L* is the infimum of the risk, approached where attention selects the optimal tokens, if the
        loss decreases. With other heads a mixture of tokens may have a smaller risk.
        """
        return loss.DECREASING


def norm(part: Tensor) -> Tensor:
    """Return the Euclidean norm of each instance's entries, shape (B,), of `part` (B, ...)."""
    axes = tuple(range(1, part.ndim))
    size: Tensor = torch.linalg.vector_norm(part, dim=axes)
    return size


def broadcast(size: Tensor, V: Tensor) -> Tensor:
    """Return `size` (B,) with axes of length 1 appended, to broadcast against V (B, ...)."""
    return size.reshape(-1, *[1] * (V.ndim - 1))
