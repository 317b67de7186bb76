"""The l_p norm, 1 < p < inf."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from torch import Tensor

from attnsvm.linalg.jit import announced
from attnsvm.linalg.simd.cholesky import System
from attnsvm.norm import Entrywise
from attnsvm.svm.entrywise.face import polish_power
from attnsvm.svm.entrywise.newton import MATRICES, Work, solve_group
from attnsvm.svm.entrywise.rows import SingleRows
from attnsvm.svm.from_frobenius import FromFrobenius
from attnsvm.svm.laned import Group, Workspace, in_groups
from attnsvm.svm.oracle import reference
from attnsvm.svm.powers import stages
from attnsvm.svm.problem import SvmProblem
from attnsvm.svm.tolerances import CONVERGED_GAP


class Power(FromFrobenius):
    """Least l_p norm."""

    norm: Entrywise

    def __init__(self, norm: Entrywise) -> None:
        self.norm = norm

    def improved(self, problem: SvmProblem, W: Tensor, a: Tensor) -> tuple[Tensor, Tensor]:
        """Return W and multipliers of Newton's method."""
        with announced("solver of the l_p norms"):
            for p in stages(self.norm.p):
                W, a = in_groups(problem, W, a, partial(_solve, p))
        return W, a

    def others(self, problem: SvmProblem, W: Tensor, a: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield points on the optimal face, then those of the reference."""
        rows = SingleRows(problem)
        for w, y in polish_power(*rows.start(W, a), self.norm.p):
            yield rows.matrices(w, y)
        found = reference(self.norm).candidates(problem)
        yield found.W, found.multipliers


def _solve(p: float, group: Group) -> None:
    """Overwrite the start of a group by its solution."""
    rows = group.rows
    m, N = rows.p * rows.q, rows.n * rows.R
    counts = (m,) * MATRICES + (N,) * (len(Work._fields) - MATRICES)
    work = Workspace((counts, System.entries(N)))
    z, system = work.addresses
    start = group.W.ctypes.data, group.a.ctypes.data
    solve_group(rows, Work(*z), System._make([*system, N]), *start, p, CONVERGED_GAP)
