"""An optimal vertex by the simplex method of HiGHS, where the other methods stop early."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from attnsvm.svm.entrywise.face import Array, Mask, polish

TOLERANCES = {"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10}


def from_vertex(
    G: Array, h: Array, free: Mask, w: Array, a: Array, norm: str
) -> Iterator[tuple[Array, Array]]:
    """Yield w and a at and near an optimal vertex; arguments as those of `face.polish`."""
    from scipy.optimize import linprog  # its import is slow, and few instances need it

    size = np.abs(w).max()
    (N, m), h = G.shape, h / size
    eye = np.eye(m)
    if norm == "max":
        cost = np.append(np.zeros(m), 1.0)
        upper = np.block([[eye, -np.ones((m, 1))], [-eye, -np.ones((m, 1))]])
        rows = np.column_stack([G, np.zeros(N)])
        bounds = [(None, None)] * m + [(0, None)]
    else:
        cost, upper = np.ones(2 * m), np.zeros((0, 2 * m))
        rows, bounds = np.column_stack([G, -G]), [(0, None)] * (2 * m)
    found = linprog(
        cost,
        A_ub=np.vstack([-rows[~free], upper]),
        b_ub=np.append(-h[~free], np.zeros(len(upper))),
        A_eq=rows[free] if free.any() else None,
        b_eq=h[free] if free.any() else None,
        bounds=bounds,
        method="highs-ds",
        options=TOLERANCES,
    )
    if found.x is None:
        return
    x = found.x[:m] if norm == "max" else found.x[:m] - found.x[m:]
    y = np.zeros(N)
    y[~free] = -found.ineqlin.marginals[: int((~free).sum())]
    y[free] = found.eqlin.marginals
    yield size * x, y
    yield from polish(G, size * h, free, size * x, y, norm)
