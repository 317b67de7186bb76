"""The base class of all sources of instances, and the batch made from drawn instances."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor

from attnsvm.head import Head, Parameters
from attnsvm.model import Model, Samples
from attnsvm.problem import ProblemBatch


@dataclass(frozen=True)
class Drawn:
    """One instance as drawn: X (n, T, d), Z (n, d), labels, parameters of the head; float64."""

    X: Tensor
    Z: Tensor
    Y: Tensor
    head_parameters: Parameters


class Data(ABC):
    """A source of problem instances."""

    @abstractmethod
    def sample(self, head: Head, model: Model, trials: int, seed: int) -> ProblemBatch:
        """Return instances with seeds seed, seed + 1, ..., at most `trials` of them."""


def stacked(parameters: list[Parameters]) -> Parameters:
    """Return the parameters of several instances with the axis B in front."""
    return {name: torch.stack([one[name] for one in parameters]) for name in parameters[0]}


def batch_of(samples: Samples, head: Head, parameters: Parameters, seed: int) -> ProblemBatch:
    """Return the batch whose instance i has seed `seed` + i."""
    seeds = seed + torch.arange(len(samples.X))
    return ProblemBatch(samples.X, samples.Z, samples.Y, samples.mask, head, parameters, seeds)
