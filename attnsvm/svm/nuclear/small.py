"""Small instances on the CPU: eight at a time in compiled code, groups shared among the cores."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from attnsvm.linalg.jit import announced
from attnsvm.linalg.simd.arithmetic import LANES
from attnsvm.linalg.simd.cholesky import System
from attnsvm.svm.laned import Group, Workspace, shared
from attnsvm.svm.nuclear.compiled import Best, Iterate, Work, solve_group
from attnsvm.svm.nuclear.cone import Cone
from attnsvm.svm.problem import EQUALITY, INEQUALITY, PADDING
from attnsvm.svm.tolerances import CONVERGED_GAP


def solve_small(cone: Cone, W: Tensor, a: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return W, multipliers and which instances converged, from their Frobenius solutions."""
    kind = torch.where(cone.inequality, INEQUALITY, torch.where(cone.padding, PADDING, EQUALITY))
    given = (cone.D, cone.Q, cone.h, kind, W, a)
    with announced("nuclear-norm solver"):
        best_W, best_a, gaps = shared(given, _solve)
    reached = torch.from_numpy(np.concatenate(gaps)[: len(a)])
    return best_W, best_a, reached <= CONVERGED_GAP


def _solve(groups: list[Group]) -> list[NDArray[np.float64]]:
    """Overwrite W and multipliers of each group; return the gaps of its lanes."""
    rows = groups[0].rows
    N, P = rows.n * rows.R, rows.p + rows.q
    point, parts = (P * P, N, N), Work.entries(rows.n, rows.R, rows.p, rows.q)
    work = Workspace((point, point, parts, System.entries(N)))
    x, dx, z, system = work.addresses
    places = Iterate(*x), Iterate(*dx), Work(*z), System._make([*system, N])
    gaps = [np.zeros(LANES) for _ in groups]
    for group, gap in zip(groups, gaps, strict=True):
        best = Best(group.W.ctypes.data, group.a.ctypes.data, gap.ctypes.data)
        solve_group(group.rows, *places, best, CONVERGED_GAP)
    return gaps
