"""Any norm through CVXPY and the certificate: the slow solver of norms without a method of ours."""

from __future__ import annotations

from collections.abc import Iterator

from torch import Tensor

from attnsvm.norm import Norm
from attnsvm.svm.from_frobenius import FromFrobenius
from attnsvm.svm.problem import SvmProblem
from attnsvm.svm.reference import Cvxpy

TIGHT = {"tol_gap_abs": 1e-11, "tol_gap_rel": 1e-11, "tol_feas": 1e-11}
"""Tolerances of Clarabel."""


def reference(norm: Norm) -> Cvxpy:
    """Return CVXPY with tolerances that a certificate of 1e-9 needs."""
    return Cvxpy(norm, "CLARABEL", **TIGHT)


class Oracle(FromFrobenius):
    """CVXPY, one instance after the other."""

    norm: Norm

    def __init__(self, norm: Norm) -> None:
        self.norm = norm

    def improved(self, problem: SvmProblem, W: Tensor, a: Tensor) -> tuple[Tensor, Tensor]:
        """Return the Frobenius solutions."""
        return W.clone(), a.clone()

    def others(self, problem: SvmProblem, W: Tensor, a: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield CVXPY's W and multipliers."""
        found = reference(self.norm).candidates(problem)
        yield found.W, found.multipliers
