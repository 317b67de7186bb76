"""Statuses and relative numbers do not depend on units; powers of two change no digit."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from attnsvm.svm import (
    SvmStatus,
    solve,
    solve_gen_svm,
    solve_least_norm,
    solve_rank_constrained,
)
from tests.kkt import assert_near, normal
from tests.quick import quick
from tests.svm import test_problems as problems
from tests.svm.instances import NORMS, gaussian


def powers(rng, *shape):
    """Return powers of two, 2^-40 to 2^40."""
    return torch.from_numpy(np.exp2(rng.integers(-40, 41, shape)))


def assert_same(solution, base, size, rows=1.0):
    """Assert that a solution is another one times `size`, in rows times `rows`, to the last bit."""
    assert solution.status == base.status
    proof, known = solution.certificate, base.certificate
    rows = rows * torch.ones_like(known.multipliers)
    # the multiplier of 0 >= h_k has no unit
    used = base.having(SvmStatus.solved)[:, None] & ~base.problem.zero
    pairs = [((proof.multipliers * rows)[used], known.multipliers[used])]
    for of, other, unit, names in (
        (solution, base, size, "W objective lower_bound sigma"),
        (solution, base, 1, "duality_gap kappa min_margin rank rank_bound support"),
        (proof, known, 1, "gap_target ray_ratio equality_residual"),
    ):
        pairs += [(getattr(of, name), unit * getattr(other, name)) for name in names.split()]
    for value, expected in pairs:
        np.testing.assert_array_equal(value.flatten(), expected.flatten())
    rays = proof.ray * rows
    rays = rays / rays.abs().sum(1, keepdim=True)
    assert_near(rays, known.ray, rtol=1e-14, equal_nan=True)


def unconstrained_and_undecided(norm):
    """Nothing is asked for, and a slab so narrow that rounding decides."""
    A, b = normal(3, 5, 3, 2, seed=1), normal(3, 5).abs() + 0.5
    slab = torch.cat([A, -A], 1)[:1], torch.cat([b, 1e-8 - b], 1)[:1]
    solutions = [solve_least_norm(A, -b, norm), solve_least_norm(*slab, norm)]
    assert [{*of.status} for of in solutions] == [{"unconstrained"}, {"undecided"}]
    assert not solutions[0].objective.any()
    return solutions, []


CASES = [
    (problems.of_spheres, (4, 4, 6, 3)),
    *((problems.normal_matrices, (M, 1.0)) for M in (0, 2)),
    (problems.several_tokens, (3, 5, 6, 2)),
    (problems.slab, (1, 3)),
    *((problems.small_beside_large, (small,)) for small in (1e-14, -1e-16)),
    *((problems.offsets, (3, 4, r)) for r in (0.3, 1e3, torch.inf)),
    (unconstrained_and_undecided, ()),
]


@pytest.mark.parametrize("norm", quick(*NORMS, "l2.5+max"))
@pytest.mark.parametrize(("function", "arguments"), CASES)
def test_rows_queries_and_right_hand_sides_have_units_of_their_own(function, arguments, norm):
    rng, ends = np.random.default_rng(2), [(-450, -450), (500, 400), (-950, 850)]
    solved, twins = function(norm, *arguments)
    # of rows of zeros any one may be the ray
    for base in [*solved, *(twins if function is not problems.offsets else ())]:
        problem, T = base.problem, base.support[0].numel() // base.problem.n
        ones = torch.ones_like(problem.h), torch.ones_like(problem.Z[..., 0])
        drawn = [powers(rng, *one.shape) for one in ones]
        units = [(*drawn, 2.0**150), (3.0, 1.0, 0.7)]
        known = "infeasible" in base.status  # a row of zeros may be undecided at the ends
        units += [(2.0**x, 2.0**y, 2.0 ** (-x - y)) for x, y in ends[: 3 - known]]
        for x, y, size in units[: 2 if "undecided" in base.status else None]:  # those are slow
            of_d, of_z = x * ones[0], y * ones[1]
            rows = of_d * of_z[:, problem.sample]
            parts = {"D": of_d[..., None] * problem.D, "Z": of_z[..., None] * problem.Z}
            parts |= {"h": size * rows * problem.h}
            parts |= {} if problem.relief is None else {"relief": rows * problem.relief}
            solution = solve(replace(problem, **parts), norm, T)
            if size != 0.7:
                assert_same(solution, base, size, rows)
                continue
            assert solution.status == base.status
            for name in ("objective", "lower_bound") if "solved" in base.status else ():
                value, expected = getattr(solution, name), 0.7 * getattr(base, name)
                assert_near(value, expected, rtol=1e-8)


@pytest.mark.parametrize("sizes", [(-510, -500), (-1000, 900), (900, -700)])
def test_equal_tokens_of_different_logs_are_infeasible_in_any_unit(sizes):
    X, Z, _ = gaussian(3, 4, 5, 2, seed=1)
    X[1, 0, 1] = X[1, 0, 0]
    attended, logs = (torch.arange(4) < 2).expand(2, 3, 4), torch.arange(4.0).expand(2, 3, 4)
    x, z = (2.0**k for k in sizes)
    finite, _ = solve_gen_svm(x * X, z * Z, attended, logs.double(), "frobenius")
    assert finite.status == ("solved", "infeasible")


def test_of_a_bound_of_the_rank():
    X, Z, selected = gaussian(3, 4, 6, 2, seed=2)
    x, z = 2.0**-45, 2.0**7
    scaled, base = (solve_rank_constrained(c * X, e * Z, selected, 1) for c, e in ((x, z), (1, 1)))
    assert_same(scaled, base, 1 / (x * z), x * z)
