"""The spectral norm."""

from __future__ import annotations

from collections.abc import Iterator

from torch import Tensor

from attnsvm.linalg.simd.cholesky import System
from attnsvm.norm import norm_of
from attnsvm.svm.from_frobenius import FromFrobenius
from attnsvm.svm.laned import Group, Rows
from attnsvm.svm.oracle import reference
from attnsvm.svm.problem import SvmProblem
from attnsvm.svm.schatten.face import polish_spectral
from attnsvm.svm.schatten.interior_point import Best, Point, Work, solve_group
from attnsvm.svm.schatten.span import single, solved
from attnsvm.svm.schatten.turned import Weights
from attnsvm.svm.tolerances import CONVERGED_GAP


class Spectral(FromFrobenius):
    """Least spectral norm."""

    norm = "spectral"

    def improved(self, problem: SvmProblem, W: Tensor, a: Tensor) -> tuple[Tensor, Tensor]:
        """Return W and multipliers of the interior-point method."""
        return solved(problem, W, a, _counts, _solve)

    def others(self, problem: SvmProblem, W: Tensor, a: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield points of the optimal face, then those of the reference."""
        arrays, back = single(problem, W, a)
        for point in polish_spectral(*arrays):
            yield back(*point)
        found = reference(norm_of("spectral")).candidates(problem)
        yield found.W, found.multipliers


def _counts(N: int, p: int, q: int) -> tuple[tuple[int, ...], ...]:
    return Point.entries(N, p, q), Work.entries(N, p, q)


def _solve(
    group: Group, turned: Rows, weights: Weights, system: System, places: list[list[int]]
) -> None:
    """Overwrite the start of a group by its solution."""
    best, (x, z) = Best(group.W.ctypes.data, group.a.ctypes.data), places
    solve_group(group.rows, turned, Point(*x), Work(*z), weights, system, best, CONVERGED_GAP)
