"""The max and l1 norms: a linear program."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import chain

from torch import Tensor

from attnsvm.linalg.jit import announced
from attnsvm.linalg.simd.cholesky import System
from attnsvm.svm.entrywise.face import polish
from attnsvm.svm.entrywise.mehrotra import L1, MATRICES, MAX, Best, Linear, Point, solve_group
from attnsvm.svm.entrywise.rows import SingleRows
from attnsvm.svm.entrywise.simplex import from_vertex
from attnsvm.svm.from_frobenius import FromFrobenius
from attnsvm.svm.laned import Group, Workspace, in_groups
from attnsvm.svm.problem import SvmProblem
from attnsvm.svm.tolerances import CONVERGED_GAP


class LinearProgram(FromFrobenius):
    """Least max norm or l1 norm."""

    norm: str

    def __init__(self, norm: str) -> None:
        self.norm = norm

    def improved(self, problem: SvmProblem, W: Tensor, a: Tensor) -> tuple[Tensor, Tensor]:
        """Return W and multipliers of Mehrotra's method."""
        with announced("linear programs of the max and l1 norms"):
            return in_groups(problem, W, a, partial(_solve, MAX if self.norm == "max" else L1))

    def others(self, problem: SvmProblem, W: Tensor, a: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield points of the optimal face, then those of the simplex method's vertex."""
        rows = SingleRows(problem)
        start = rows.start(W, a)
        for w, y in chain(polish(*start, self.norm), from_vertex(*start, self.norm)):
            yield rows.matrices(w, y)


def _solve(norm: int, group: Group) -> None:
    """Overwrite the start of a group by its solution."""
    rows = group.rows
    m, N = rows.p * rows.q, rows.n * rows.R
    point = (m,) * 6 + (N, N)
    linear = (m,) * MATRICES + (N,) * (len(Linear._fields) - MATRICES)
    work = Workspace((point, point, linear, System.entries(N)))
    x, dx, z, system = work.addresses
    best = Best(group.W.ctypes.data, group.a.ctypes.data)
    parts = Point(*x), Point(*dx), Linear(*z), System._make([*system, N])
    solve_group(rows, *parts, best, norm, CONVERGED_GAP)
