"""Instances of the papers: on the unit sphere, orthonormal, and two scenes in the plane."""

from abc import abstractmethod
from dataclasses import dataclass

import torch
from torch import Generator, Tensor

from attnsvm.data.base import Drawn, Seeded, check_v, normal
from attnsvm.head import Head, unit_vector
from attnsvm.linalg import orthonormal, own_settings


class Sphere(Seeded):
    """Tokens, queries and v uniform on the unit sphere; labels +-1 with equal chance."""

    def draw(self, generator: Generator, head: Head) -> Drawn:
        """Draw head, labels, tokens, queries - or, with the relu head, the tokens first."""
        parameters = head.draw(generator, self.d)
        Y = self.labels(generator, (self.n,)) if head.LABELS_FIRST else None
        X = unit_vector(generator, self.n, self.T, self.d)
        Y = self.labels(generator, (self.n,)) if Y is None else Y
        return Drawn(X, unit_vector(generator, self.n, self.d), Y, parameters)

    def labels(self, generator: Generator, shape: tuple[int, ...]) -> Tensor:
        """Return signs of normal draws."""
        return 2.0 * (normal(generator, *shape) > 0).double() - 1.0


class SphereInSpan(Sphere):
    """Instances of `Sphere` in the r = min(d, n (T + 1)) dimensions that their vectors span.

    With E of orthonormal columns and x = E x', z = E z', every logit x^T W z is x'^T (E^T W E) z'.
    Training from W(0) = 0, the SVMs in the Frobenius, nuclear and spectral norm, and all hypotheses
    are those of the d-dimensional instance, and cost what r dimensions cost (Lemma 1 of
    arXiv 2308.16898). Initial weights that are drawn are drawn in r dimensions. x' and z' are the
    rows of R^T of the QR decomposition (x_11, ..., x_nT, z_1, ..., z_n) = E R with diagonal > 0.
    """

    @own_settings()
    def draw(self, generator: Generator, head: Head) -> Drawn:
        """Draw as `Sphere` does, and change the basis."""
        check_v(head, "sphere_in_span")
        drawn = super().draw(generator, head)
        vectors = torch.cat([drawn.X.flatten(0, 1), drawn.Z])
        E, R = (V[0] for V in orthonormal(vectors.mT[None]))
        signs = torch.where(R.diagonal() < 0, -1.0, 1.0).double()
        rows = (signs[:, None] * R).mT.contiguous()
        X = rows[: -self.n].reshape(self.n, self.T, -1)
        v = signs * (E.mT @ drawn.head_parameters["v"])
        return Drawn(X, rows[-self.n :], drawn.Y, {"v": v})


class Scene(Seeded):
    """Instances whose head is drawn first, then the tokens, then the queries; all labels +1."""

    @abstractmethod
    def tokens(self, generator: Generator) -> Tensor:
        """Draw the tokens (n, T, d)."""

    def queries(self, generator: Generator) -> Tensor:
        """Draw queries (n, d), uniform on the unit sphere."""
        return unit_vector(generator, self.n, self.d)

    def draw(self, generator: Generator, head: Head) -> Drawn:
        """Draw head, tokens, queries."""
        parameters = head.draw(generator, self.d)
        X, Z = self.tokens(generator), self.queries(generator)
        return Drawn(X.double().contiguous(), Z, self.labels(generator, (self.n,)), parameters)


class Prompt(Scene):
    """Tokens and v uniform on the unit sphere, one query z for all samples; all labels +1.

    The model of arXiv 2306.13596: only p = W z enters the logits x^T p, so that training W from
    zero is training of the prompt p, W(k) = p(k) z^T / ||z||^2.
    """

    def tokens(self, generator: Generator) -> Tensor:
        """Draw tokens on the sphere."""
        return unit_vector(generator, self.n, self.T, self.d)

    def queries(self, generator: Generator) -> Tensor:
        """Draw the query."""
        return unit_vector(generator, 1, self.d).expand(self.n, -1).contiguous()


class Orthonormal(Scene):
    """Each sample's T <= d tokens are orthonormal; all labels +1.

    For T = d the tokens are the rows of the left factor of the singular value decomposition of a
    normal T x d draw, as published. For T < d that factor has rows of length T only; the tokens are
    then the columns of the left factor of the decomposition of its transpose.
    """

    def tokens(self, generator: Generator) -> Tensor:
        """Draw a matrix and orthonormalise its rows."""
        X = normal(generator, self.n, self.T, self.d)
        if self.T == self.d:
            return torch.linalg.svd(X)[0]
        return torch.linalg.svd(X.mT, full_matrices=False)[0].mT


@dataclass(eq=False)
class PathsFar(Scene):
    """First published two-dimensional scene (seed 1): n=2, T=3, the samples far apart."""

    n: int = 2
    T: int = 3
    d: int = 2

    def tokens(self, generator: Generator) -> Tensor:
        """Draw tokens of spread 0.3 around (-1, 0) and (1, 0)."""
        X = 0.3 * normal(generator, self.n, self.T, self.d)
        return X + torch.tensor([[[-1.0, 0.0]], [[1.0, 0.0]]])


@dataclass(eq=False)
class PathsNear(Scene):
    """Second published two-dimensional scene (seed 3): n=2, T=5, one token of each sample apart."""

    n: int = 2
    T: int = 5
    d: int = 2

    def tokens(self, generator: Generator) -> Tensor:
        """Draw tokens of spread 0.5 around (-1, 0) except the first of each sample."""
        X = 0.5 * normal(generator, self.n, self.T, self.d)
        X[:, 1:] += torch.tensor([-1.0, 0.0])
        X[:, 0] = torch.tensor([[1.0, 0.5], [1.0, -0.5]])
        return X
