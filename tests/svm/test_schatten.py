"""The spectral and Schatten norms: closed forms, invariances, limits in p, and their parts."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
import torch

from attnsvm.norm import norm_of
from attnsvm.svm import SvmStatus, single_token, solve_gen_svm, solve_svm
from attnsvm.svm.certificate import lower_bound, upper_bound
from attnsvm.svm.frobenius import LeastDistance
from attnsvm.svm.interior_point import InteriorPoint
from attnsvm.svm.interior_point.power import stages
from tests.svm.instances import spheres

NAMES = ["spectral", "schatten1.5", "schatten3"]


def least(X, Z, selected, name):
    """Return the least norms after a proof that each is known to 1e-9."""
    found = solve_svm(X, Z, selected, norm=name)
    assert {*found.status} == {"solved"}
    assert (found.duality_gap <= 1e-9).all()
    return found.objective


@pytest.mark.parametrize("name", NAMES)
def test_rows_along_the_diagonal_have_the_identity_as_solution(name):
    """W_kk >= 1 for all k: W = I, of norm d^(1/p), by the multipliers 1 / d each."""
    d, norm = 4, norm_of(name)
    X = torch.zeros(1, d, 2, d, dtype=torch.float64)
    X[0, range(d), 0, range(d)] = 1.0
    found = solve_svm(X, torch.eye(d).double()[None], torch.zeros(1, d, dtype=torch.int64), name)
    assert found.status == (SvmStatus.solved,)
    torch.testing.assert_close(found.W[0], torch.eye(d).double(), rtol=0, atol=1e-4)
    expected = 1.0 if name == "spectral" else d ** (1 / norm.p)
    assert found.objective.item() == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("name", NAMES)
def test_opposite_rows_are_infeasible(name):
    """The selected token is the mean of the two others; its feasible twin is an end."""
    ends = torch.tensor([[1.0, 2.0, 0.0], [0.0, -1.0, 1.0]]).double()
    X = torch.stack([ends.mean(0), *ends])[None, None]
    Z = torch.ones(1, 1, 3, dtype=torch.float64)
    selected = torch.zeros(1, 1, dtype=torch.int64)
    assert solve_svm(X, Z, selected, norm=name).status == (SvmStatus.infeasible,)
    assert solve_svm(X, Z, selected + 1, norm=name).status == (SvmStatus.solved,)


@pytest.mark.parametrize("name", NAMES)
def test_kkt(name):
    """M(a) is a multiple of a subgradient at W, and a_k > 0 on active rows only."""
    X, Z, selected = spheres(4, 4, 6, range(5))
    problem, norm = single_token(X, Z, selected), norm_of(name)
    found = solve_svm(X, Z, selected, norm=name)
    a = found.certificate.multipliers
    M = problem.combine(a)
    inner = (M * found.W).sum(dim=(1, 2))
    product = norm.value(found.W) * norm.dual.value(M)
    torch.testing.assert_close(inner, product, rtol=2e-9, atol=0)
    slack = torch.where(problem.inequality, problem.margins(found.W) - 1, 0.0)
    assert ((a * slack).sum(dim=1) <= 2e-9 * found.objective).all()


@pytest.mark.parametrize("name", NAMES)
def test_what_a_norm_of_singular_values_does_not_see(name):
    """Rotations of tokens and of queries, by different matrices; scale; order; transposition."""
    X, Z, selected = spheres(3, 4, 6, range(5))
    expected = least(X, Z, selected, name)
    generator = torch.Generator().manual_seed(0)
    Q, R = torch.linalg.qr(torch.randn(2, 6, 6, generator=generator, dtype=torch.float64))[0]
    same = (
        (X @ Q, Z @ R, selected),
        (X[:, [2, 0, 1]], Z[:, [2, 0, 1]], selected[:, [2, 0, 1]]),
        (X.flip(2), Z, 3 - selected),
    )
    for given in same:
        torch.testing.assert_close(least(*given, name), expected, rtol=2e-9, atol=0)
    torch.testing.assert_close(least(8 * X, Z, selected, name), expected / 8, rtol=1e-9, atol=0)


@pytest.mark.parametrize("name", NAMES)
def test_the_transposed_problem_has_the_transposed_solution(name):
    """With one row in each sample, d_k and z_k change places: z_k^T W^T d_k >= 1."""
    generator = torch.Generator().manual_seed(1)
    D, Z = torch.randn(2, 4, 3, 5, generator=generator, dtype=torch.float64)
    selected = torch.zeros(4, 3, dtype=torch.int64)
    one, other = (
        least(torch.stack([x, torch.zeros_like(x)], dim=2), y, selected, name)
        for x, y in ((D, Z), (Z, D))
    )
    torch.testing.assert_close(one, other, rtol=2e-9, atol=0)


def test_least_norms_in_p():
    """They fall from nuclear to spectral, by at most r^(1/p - 1/s), and are continuous at p = 2."""
    X, Z, selected = spheres(4, 4, 5, range(4))
    exponents = (1.0, 1.2, 1.5, 2.0, 3.0, 8.0, math.inf)
    names = ["nuclear", "schatten1.2", "schatten1.5", "frobenius", "schatten3", "schatten8"]
    values = [least(X, Z, selected, name) for name in [*names, "spectral"]]
    for k in range(len(values) - 1):
        most = 4 ** (1 / exponents[k] - 1 / exponents[k + 1])
        assert (values[k + 1] <= values[k] * (1 + 1e-9)).all()
        assert (values[k] <= values[k + 1] * most * (1 + 1e-9)).all()
    for name in ("schatten1.99999", "schatten2.00001"):
        torch.testing.assert_close(least(X, Z, selected, name), values[3], rtol=1e-5, atol=0)


@pytest.mark.parametrize("name", ["schatten1.5", "schatten3"])
def test_several_tokens(name):
    """Gen-SVM: equalities hold, and both parts have a proof."""
    X, Z, selected = spheres(2, 4, 7, range(3))
    attended = torch.zeros(X.shape[:3], dtype=torch.bool).scatter(2, selected[..., None], True)
    attended[:, 0, (int(selected[0, 0]) + 1) % 4] = True
    log_softmax = torch.where(attended, 0.0, -20.0).double()
    log_softmax[:, 0, 0] -= 1.0
    for found in solve_gen_svm(X, Z, attended, log_softmax, norm=name):
        assert "solved" in found.status
        assert {*found.status} <= {"solved", "unconstrained"}
        missed = torch.where(
            found.problem.equality, found.problem.margins(found.W) - found.problem.h, 0.0
        )
        assert missed.abs().max() <= 1e-11 * found.kappa.max()


def test_few_vectors_in_many_dimensions():
    """Coordinates in an orthonormal basis of the vectors make a small problem."""
    X, Z, selected = spheres(3, 3, 300, range(2))
    Q = torch.linalg.qr(torch.cat([X.flatten(1, 2), Z], dim=1).mT)[0]
    narrow = least(X @ Q[:, None], Z @ Q, selected, "spectral")
    torch.testing.assert_close(least(X, Z, selected, "spectral"), narrow, rtol=2e-9, atol=0)


@pytest.mark.parametrize("name", ["nuclear", "max", "l1", "l1.75", "l3", *NAMES])
def test_the_face_gives_the_last_digits(name):
    """From a bracket of 1e-7 or wider to one of 1e-13."""
    X, Z, selected = spheres(3, 4, 5, range(4))
    problem = single_token(X, Z, selected)
    solver, start = InteriorPoint(norm_of(name)), LeastDistance().candidates(problem)
    found = solver.followed(problem, start.W, start.multipliers)
    generator = torch.Generator().manual_seed(2)
    for b in range(4):
        part = problem.take(slice(b, b + 1))
        W, a = (x[b : b + 1] for x in found)
        W = W + 1e-5 * torch.randn(W.shape, generator=generator, dtype=torch.float64)
        upper, lower = upper_bound(part, W, name), lower_bound(part, a, name)[1]
        assert upper / lower - 1 > 1e-7
        gaps = (
            upper_bound(part, W, name) / lower_bound(part, a, name)[1] - 1
            for W, a in solver.others(part, W, a)
        )
        assert any(gap.abs() <= 1e-13 for gap in gaps)


def test_stages_lead_from_two_to_p():
    assert stages(1.75) == [1.75]
    for p in (1.01, 1.1, 1.5, 2.5, 3.0, 100.0):
        exponents = stages(p)
        assert exponents[-1] == p
        assert sorted(exponents, reverse=p < 2) == exponents
        larger = [e if p > 2 else e / (e - 1) for e in (2.0, *exponents)]
        assert all(b <= 1.75 * a * (1 + 1e-12) for a, b in pairwise(larger))
