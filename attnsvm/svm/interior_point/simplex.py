"""An optimal vertex by the simplex method of HiGHS, where the other methods stop early."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from attnsvm.norm import Norm
from attnsvm.svm.interior_point.face import Array, Rows, polish

TOLERANCES = {"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10}


def from_vertex(rows: Rows, W: Array, norm: Norm) -> Iterator[tuple[Array, Array]]:
    """Yield W (p, q) and a (N,) at and near an optimal vertex in the max or l1 norm."""
    from scipy.optimize import linprog  # its import is slow, and few instances need it

    G = (rows.D[:, :, None] * rows.Q[:, None, :]).reshape(len(rows.D), -1)
    size, free, is_max = np.abs(W).max(), rows.free, norm.name == "max"
    (N, m), h = G.shape, rows.h / size
    eye = np.eye(m)
    if is_max:
        cost = np.append(np.zeros(m), 1.0)
        upper = np.block([[eye, -np.ones((m, 1))], [-eye, -np.ones((m, 1))]])
        G = np.column_stack([G, np.zeros(N)])
        bounds = [(None, None)] * m + [(0, None)]
    else:
        cost, upper = np.ones(2 * m), np.zeros((0, 2 * m))
        G, bounds = np.column_stack([G, -G]), [(0, None)] * (2 * m)
    found = linprog(
        cost,
        A_ub=np.vstack([-G[~free], upper]),
        b_ub=np.append(-h[~free], np.zeros(len(upper))),
        A_eq=G[free] if free.any() else None,
        b_eq=h[free] if free.any() else None,
        bounds=bounds,
        method="highs-ds",
        options=TOLERANCES,
    )
    if found.x is None:
        return
    w = size * (found.x[:m] if is_max else found.x[:m] - found.x[m:])
    a = np.zeros(N)
    a[~free] = -found.ineqlin.marginals[: int((~free).sum())]
    a[free] = found.eqlin.marginals
    yield w.reshape(W.shape), a
    yield from polish(rows, w.reshape(W.shape), a, norm)
