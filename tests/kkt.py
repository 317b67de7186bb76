"""One KKT kit for every solver: feasibility, dual domain, complementarity, stationarity."""

import math

import torch

EXPONENTS = {"frobenius": 2.0, "nuclear": 1.0, "spectral": math.inf, "max": math.inf}
"""p of the norms whose name does not tell it; of singular values, and of the entries for max."""


def assert_optimal(problem, solution, tolerance=1e-8):
    """Assert the KKT conditions of the solved instances, each relative to its own size.

    Stationarity is Fenchel's equality <M(a), W> = dual_norm(M) norm(W): M / dual_norm(M) is then a
    subgradient of the norm at W.
    """
    solved = torch.tensor([s.value == "solved" for s in solution.status])
    assert solved.any()
    part = problem.take(solved)
    W, a = solution.W[solved], solution.certificate.multipliers[solved]
    margins, M = part.margins(W), part.combine(a)
    value = norm(W, solution.norm)
    reach = part.scale * W.flatten(1).norm(dim=1)[:, None]
    active_scale = (a.abs() * part.h.abs()).sum(dim=1)
    slack = margins - part.h
    assert (slack[part.inequality] >= -1e-12 * reach[part.inequality]).all(), "feasibility"
    assert (slack[part.equality].abs() <= 1e-11 * reach[part.equality]).all(), "equalities"
    assert (a[part.inequality] >= 0).all(), "dual domain"
    assert (a[part.kind == 0] == 0).all(), "no multiplier on padding"
    products = torch.where(part.inequality, a * slack, 0.0).sum(dim=1)
    assert (products <= tolerance * active_scale).all(), "complementarity"
    pairing = (M * W).sum(dim=(1, 2)) / (dual_norm(M, solution.norm) * value)
    assert ((pairing - 1).abs() <= tolerance).all(), "stationarity"
    assert ((part.h * a).sum(dim=1) / value - 1 <= tolerance).all(), "weak duality"
    assert (solution.objective[solved] >= value * (1 - 1e-12)).all(), "upper bound"
    proved = (part.h * a).sum(dim=1) / dual_norm(M, solution.norm)
    rounding = 64 * torch.finfo(value.dtype).eps * solution.kappa[solved]
    assert (solution.lower_bound[solved] <= proved * (1 + tolerance + rounding)).all(), (
        "lower bound"
    )


def assert_infeasible(problem, solution):
    """Assert that every instance is infeasible and its ray a Farkas certificate."""
    ray = solution.certificate.ray
    assert [s.value for s in solution.status] == ["infeasible"] * problem.B
    assert (ray[problem.inequality] >= 0).all()
    assert ((problem.h * ray).sum(dim=1) > 0).all()
    cancelled = problem.combine(ray).flatten(1).norm(dim=1)
    assert (cancelled <= 1e-12 * (ray.abs() * problem.scale).sum(dim=1)).all()
    assert solution.objective.isinf().all()
    assert solution.W.isnan().all()


def assert_near(value, expected, rtol=0.0, atol=0.0, **options):
    """Assert that tensors agree to a relative or an absolute error, by default in every bit."""
    torch.testing.assert_close(value, expected, rtol=rtol, atol=atol, **options)


def norm(W, name):
    """Return the norm of each matrix."""
    return torch.stack(_norms(W, name, dual=False)).amax(0)


def dual_norm(M, name):
    """Return the norm dual to `name` of each matrix."""
    return torch.stack(_norms(M, name, dual=True)).sum(0)


def normal(*shape, seed=0):
    """Return normal numbers, the same for the same seed."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


def _norms(W, name, dual):
    """Return the norm, or its dual; of A+B A of all columns but the last, and B of that one."""
    if "+" in name:
        blocks = zip(name.split("+"), (W[..., :-1], W[..., -1:]), strict=True)
        return [value for name, V in blocks if V.numel() for value in _norms(V, name, dual)]
    entrywise = name == "max" or name.startswith("l")
    values = W.flatten(1) if entrywise else torch.linalg.svdvals(W)
    p = EXPONENTS.get(name) or float(name.removeprefix("schatten").removeprefix("l"))
    q = {1.0: math.inf, math.inf: 1.0}.get(p) or p / (p - 1)
    return [torch.linalg.vector_norm(values, ord=q if dual else p, dim=1)]
