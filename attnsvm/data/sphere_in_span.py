"""`data=sphere_in_span`: the instances of `data=sphere`, in coordinates of their span."""

from __future__ import annotations

import torch
from torch import Generator

from attnsvm.config import ConfigError
from attnsvm.data.base import Drawn
from attnsvm.data.sphere import Sphere
from attnsvm.head import Head
from attnsvm.linalg import one_thread, orthonormal


class SphereInSpan(Sphere):
    """Instances of `Sphere` in the r = min(d, n (T + 1)) dimensions that their vectors span.

    With E of orthonormal columns and x = E x', z = E z', every logit x^T W z is x'^T (E^T W E) z'.
    Training from W(0) = 0, the SVMs in the Frobenius, nuclear and spectral norm, and all hypotheses
    are those of the d-dimensional instance, and cost what r dimensions cost (Lemma 1 of
    arXiv 2308.16898). Initial weights that are drawn are drawn in r dimensions. x' and z' are the
    rows of R^T of the QR decomposition (x_11, ..., x_nT, z_1, ..., z_n) = E R with diagonal > 0.
    """

    @one_thread()
    def draw(self, generator: Generator, head: Head) -> Drawn:
        """Draw as `Sphere` does, and change the basis."""
        drawn = super().draw(generator, head)
        if set(drawn.head_parameters) != {"v"}:
            name = type(head).__name__.lower()
            raise ConfigError(f"head={name}: must be linear or quadratic with data=sphere_in_span")
        vectors = torch.cat([drawn.X.flatten(0, 1), drawn.Z])
        E, R = (V[0] for V in orthonormal(vectors.mT[None]))
        signs = torch.where(R.diagonal() < 0, -1.0, 1.0).double()
        rows = (signs[:, None] * R).mT.contiguous()
        return Drawn(
            rows[: -self.n].reshape(self.n, self.T, -1),
            rows[-self.n :],
            drawn.Y,
            {"v": signs * (E.mT @ drawn.head_parameters["v"])},
        )
