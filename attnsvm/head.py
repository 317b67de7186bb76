"""From the attended token to a prediction: the head h of f_i = h(X_i^T s_i)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

import torch
from torch import Generator, Tensor

Parameters = dict[str, Tensor]


class Head(ABC):
    """A prediction head h: R^d -> R, one set of parameters for each problem instance.

    A head holds its config options only; parameters are drawn per instance by `draw` and passed
    back batched, each with a leading axis B. A new head has to define `draw` and `value`.
    """

    LABELS_FIRST: ClassVar[bool] = True
    """Whether the published scripts draw the labels before the tokens (else after them)."""

    @abstractmethod
    def draw(self, generator: Generator, d: int) -> Parameters:
        """Return the float64 parameters of one instance, drawn in float32."""

    @abstractmethod
    def value(self, o: Tensor, parameters: Parameters) -> Tensor:
        """Return h(o), shape (B, ...), of o, shape (B, ..., d)."""

    def gradient(self, o: Tensor, parameters: Parameters) -> Tensor:
        """Return dh/do, the shape of o (B, ..., d); by autograd unless overridden."""
        with torch.enable_grad():
            o = o.detach().requires_grad_()
            (gradient,) = torch.autograd.grad(self.value(o, parameters).sum(), o)
        return gradient


class Linear(Head):
    """h(o) = v^T o with parameters v, shape (B, d), ||v|| = 1."""

    def draw(self, generator: Generator, d: int) -> Parameters:
        """Return v, uniform on the unit sphere."""
        return {"v": unit_vector(generator, d)}

    def value(self, o: Tensor, parameters: Parameters) -> Tensor:
        """Return v^T o."""
        return _times_vector(o, parameters["v"])

    def gradient(self, o: Tensor, parameters: Parameters) -> Tensor:
        """Return v."""
        return _beside(parameters["v"], o).expand_as(o)


class Relu(Head):
    """h(o) = 1^T relu(V^T o) with parameters V, shape (B, d, d), ||V||_F = 1: a two-layer MLP."""

    LABELS_FIRST: ClassVar[bool] = False

    def draw(self, generator: Generator, d: int) -> Parameters:
        """Return V, normal entries divided by their Frobenius norm."""
        V = torch.randn(d, d, generator=generator, dtype=torch.float32)
        return {"V": (V / V.norm()).double()}

    def value(self, o: Tensor, parameters: Parameters) -> Tensor:
        """Return 1^T relu(V^T o)."""
        return _times_matrix(o, parameters["V"]).relu().sum(-1)

    def gradient(self, o: Tensor, parameters: Parameters) -> Tensor:
        """Return V 1[V^T o > 0]."""
        V = parameters["V"]
        return _times_matrix((_times_matrix(o, V) > 0).to(o.dtype), V.mT)


class Quadratic(Head):
    """h(o) = v^T o - lambda ||o||^2 with parameters v, shape (B, d), ||v|| = 1.

    Parameters
    ----------
    lam : float
        lambda >= 0; with lambda > 0 a mixture of tokens may score more than each of them.
    """

    def __init__(self, lam: float) -> None:
        self.lam = lam

    def draw(self, generator: Generator, d: int) -> Parameters:
        """Return v, uniform on the unit sphere."""
        return {"v": unit_vector(generator, d)}

    def value(self, o: Tensor, parameters: Parameters) -> Tensor:
        """Return v^T o - lambda ||o||^2."""
        return _times_vector(o, parameters["v"]) - self.lam * o.square().sum(-1)

    def gradient(self, o: Tensor, parameters: Parameters) -> Tensor:
        """Return v - 2 lambda o."""
        return _beside(parameters["v"], o) - 2 * self.lam * o


def unit_vector(generator: Generator, d: int) -> Tensor:
    """Return a vector uniform on the unit sphere of R^d, normalised in float32, then float64."""
    v = torch.randn(d, generator=generator, dtype=torch.float32)
    unit: Tensor = v / v.norm()
    return unit.double()


def _beside(v: Tensor, o: Tensor) -> Tensor:
    """Return v (B, d) with axes of length 1 between, to broadcast against o (B, ..., d)."""
    return v.reshape(len(v), *[1] * (o.ndim - 2), v.shape[-1])


def _times_vector(o: Tensor, v: Tensor) -> Tensor:
    """Return v^T o, shape (B, ...), of o (B, ..., d) and v (B, d)."""
    return torch.bmm(o.reshape(len(o), -1, o.shape[-1]), v.unsqueeze(-1)).reshape(o.shape[:-1])


def _times_matrix(o: Tensor, V: Tensor) -> Tensor:
    """Return V^T o, shape (B, ..., k), of o (B, ..., d) and V (B, d, k)."""
    return torch.bmm(o.reshape(len(o), -1, o.shape[-1]), V).reshape(*o.shape[:-1], V.shape[-1])
