"""The Schatten p norm, 1 < p < inf."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from torch import Tensor

from attnsvm.linalg.simd.cholesky import System
from attnsvm.norm import Schatten
from attnsvm.svm.from_frobenius import FromFrobenius
from attnsvm.svm.laned import Group, Rows
from attnsvm.svm.powers import stages
from attnsvm.svm.problem import SvmProblem
from attnsvm.svm.schatten.face import polish_power
from attnsvm.svm.schatten.newton import Work, solve_group
from attnsvm.svm.schatten.span import single, solved
from attnsvm.svm.schatten.turned import Weights
from attnsvm.svm.tolerances import CONVERGED_GAP


class SchattenPower(FromFrobenius):
    """Least Schatten p norm."""

    norm: Schatten

    def __init__(self, norm: Schatten) -> None:
        self.norm = norm

    def improved(self, problem: SvmProblem, W: Tensor, a: Tensor) -> tuple[Tensor, Tensor]:
        """Return W and multipliers of Newton's method."""
        for p in stages(self.norm.p):
            W, a = solved(problem, W, a, _counts, partial(_solve, p))
        return W, a

    def others(self, problem: SvmProblem, W: Tensor, a: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield points of the optimal face."""
        arrays, back = single(problem, W, a)
        for point in polish_power(*arrays, self.norm.p):
            yield back(*point)


def _counts(N: int, p: int, q: int) -> tuple[tuple[int, ...], ...]:
    return (Work.entries(N, p, q),)


def _solve(
    p: float,
    group: Group,
    turned: Rows,
    weights: Weights,
    system: System,
    places: list[list[int]],
) -> None:
    """Overwrite the start of a group by its solution."""
    start, (z,) = (group.W.ctypes.data, group.a.ctypes.data), places
    solve_group(group.rows, turned, Work(*z), weights, system, start, p, CONVERGED_GAP)
