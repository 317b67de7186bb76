"""Statuses and relative numbers do not depend on units; powers of two change no digit."""

import numpy as np
import pytest
import torch

from attnsvm import solve_least_norm
from attnsvm.norm import Entrywise, Norm
from attnsvm.svm import SvmStatus, solve_gen_svm, solve_rank_constrained, solve_svm
from tests.quick import quick
from tests.svm.instances import gaussian

NORMS = quick("frobenius", "nuclear", "max", "l1", "spectral", "l3", "schatten1.5", "l2.5+max")
every_norm = pytest.mark.parametrize("norm", NORMS)


def powers(rng: np.random.Generator, *shape: int, most: int = 40) -> torch.Tensor:
    """Return powers of two, 2^-most to 2^most."""
    return torch.from_numpy(np.exp2(rng.integers(-most, most + 1, shape)))


def assert_same(solution, base, size, rows=1.0) -> None:
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
        torch.testing.assert_close(
            value, expected, rtol=0.0, atol=0.0, equal_nan=True, check_dtype=False
        )
    rays = proof.ray * rows
    rays = rays / rays.abs().sum(1, keepdim=True)
    torch.testing.assert_close(rays, known.ray, rtol=1e-14, atol=0.0, equal_nan=True)


def drawn(kind: str) -> tuple[torch.Tensor, ...]:
    """Return A (3, N, 3, 2), b, C (3, M, 3, 2) and e of a kind, of slabs a single one."""
    rng = np.random.default_rng(1)
    shapes = (3, 5, 3, 2), (3, 5), (3, 2, 3, 2), (3, 2)
    A, b, C, e = (torch.from_numpy(rng.standard_normal(shape)) for shape in shapes)
    small = torch.tensor([1.0, 1e-14, 1e-14, 1.0, 1.0])
    both = torch.cat([A, -A], 1)[:1]
    rest, above = (C[:, :0], e[:, :0]), b[:1].abs() + 0.5
    alone = (C[:1, :0], e[:1, :0])
    problems = {
        "positive": (A, b.abs(), *rest),
        "mixed": (A, b, *rest),
        "equalities": (A, b, C, e),
        "margin part": (A, b.abs(), C, 0 * e),
        "small": (A, b * small, C[:, :1], e[:, :1]),
        "unconstrained": (A, -b.abs(), *rest),
        "slab": (both, torch.cat([above, -above - 1e-6], 1), *alone),
        "undecided": (both, torch.cat([above, -above + 1e-8], 1), *alone),
        "infeasible": (both, torch.cat([above, -above + 1.0], 1), *alone),
    }
    return problems[kind]


KINDS = "positive", "mixed", "equalities", "margin part", "small", "slab"


def solved_of(problem, norm):
    """Return the solution of A, b, C, e."""
    A, b, C, e = problem
    return solve_least_norm(A, b, norm, (C, e) if e.shape[1] else None)


@every_norm
@pytest.mark.parametrize("kind", [*KINDS, "unconstrained", "undecided", "infeasible"])
def test_rows_and_right_hand_sides_have_units_of_their_own(norm, kind):
    A, b, C, e = drawn(kind)
    base = solved_of((A, b, C, e), norm)
    assert set(base.status) == {"solved" if kind in KINDS else kind}
    rng = np.random.default_rng(2)
    for size in (2.0**-150, 2.0**150)[: 2 if kind in KINDS else 1]:
        r, s = powers(rng, *b.shape), powers(rng, *e.shape)
        scaled = r[..., None, None] * A, size * r * b, s[..., None, None] * C, size * s * e
        assert_same(solved_of(scaled, norm), base, size, torch.cat([r, s], 1))
    units = solved_of((3 * A, 0.7 * b, 11 * C, 0.7 * 11 / 3 * e), norm)
    assert units.status == base.status
    for name in ("objective", "lower_bound") if kind in KINDS else ():
        value, expected = getattr(units, name), 0.7 / 3 * getattr(base, name)
        torch.testing.assert_close(value, expected, rtol=1e-8, atol=0.0)


@every_norm
def test_tokens_queries_and_margins_have_units_of_their_own(norm):
    X, Z, selected = gaussian(3, 4, 5, 3, seed=1)
    X[2, 0, 1] = X[2, 0, 0]  # infeasible
    rng = np.random.default_rng(3)
    z, c = powers(rng, 3, 3, most=20), 2.0**-70
    tokens, queries, rows = 2.0**37 * X, Z * z[..., None], 2.0**37 * z.repeat_interleave(3, dim=1)
    ones = torch.ones(3, 9, dtype=torch.float64)
    small = torch.where(torch.arange(9) % 3 == 1, 1e-15, ones)
    for margins in (ones, small):
        base = solve_svm(X, Z, selected, norm, margins=margins)
        assert base.status[:2] == ("solved", "solved")
        solution = solve_svm(tokens, queries, selected, norm, margins=c * rows * margins)
        assert_same(solution, base, c, rows)
    feasible = X[:2], Z[:2], selected[:2]
    base = solve_svm(*feasible, norm)
    for sizes in ((-510, -500), (500, 400), (-1000, 900), (900, -700)):  # near the ends of float64
        x, z = (2.0**k for k in sizes)
        solution = solve_svm(x * feasible[0], z * feasible[1], feasible[2], norm)
        assert_same(solution, base, 1 / (x * z), x * z)
    gamma = torch.from_numpy(rng.standard_normal((3, 3)))
    x, z = 2.0**37, 2.0**-11
    for ratio in (0.3, 1e3, torch.inf):
        base = solve_svm(X, Z, selected, norm, offsets=gamma, ratio=ratio)
        solution = solve_svm(x * X, z * Z, selected, norm, offsets=gamma, ratio=x * z * ratio)
        assert_same(solution, base, 1 / (x * z), x * z)


@pytest.mark.parametrize("sizes", [(-510, -500), (-1000, 900), (900, -700)])
def test_equal_tokens_of_different_logs_are_infeasible_in_any_unit(sizes):
    X, Z, _ = gaussian(3, 4, 5, 2, seed=1)
    X[1, 0, 1] = X[1, 0, 0]
    attended, logs = (torch.arange(4) < 2).expand(2, 3, 4), torch.arange(4.0).expand(2, 3, 4)
    x, z = (2.0**k for k in sizes)
    finite, _ = solve_gen_svm(x * X, z * Z, attended, logs.double(), "frobenius")
    assert finite.status == ("solved", "infeasible")


@every_norm
def test_gen_svm_and_a_bound_of_the_rank(norm):
    X, Z, selected = gaussian(3, 4, 6, 2, seed=2)
    attended = (torch.arange(4) < 2).expand(2, 3, 4)
    logs = torch.from_numpy(np.random.default_rng(4).standard_normal((2, 3, 4)))
    x, z = 2.0**-45, 2.0**7
    ordinary, scaled = (
        (
            *solve_gen_svm(tokens, queries, attended, logs, norm),
            solve_rank_constrained(tokens, queries, selected, 1),
        )
        for tokens, queries in ((X, Z), (x * X, z * Z))
    )
    assert ordinary[0].status == ordinary[1].status == ("solved",) * 2
    for solution, base in zip(scaled, ordinary, strict=True):
        assert_same(solution, base, 1 / (x * z), x * z)


class Huge(Entrywise):
    """1e150 times the Frobenius norm."""

    def __init__(self, factor: float = 1e150) -> None:
        super().__init__(2.0)
        self.factor, self.is_hilbert, self.rotation_invariant = factor, False, False

    def value(self, W: torch.Tensor) -> torch.Tensor:
        return self.factor * super().value(W)

    @property
    def dual(self) -> Entrywise:
        return Huge(1 / self.factor)

    def steepest(self, M: torch.Tensor) -> torch.Tensor:
        return super().steepest(M) / self.factor

    def spread(self, d: int) -> float:
        return self.factor

    def path(self) -> list[Norm]:
        return []


def test_weights_that_underflow_are_not_excused_by_a_large_norm():
    """W is about 2^-1085, which is 0 in float64; its norm is not small."""
    X, Z, selected = gaussian(1, 3, 4, 5, seed=0)
    solution = solve_svm(2.0**542 * X, 2.0**543 * Z, selected, Huge())
    assert set(solution.status) == {"undecided"}
