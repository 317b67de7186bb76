"""Wide instances, whose spectra are taken in the span of their vectors, against d x d matrices."""

from dataclasses import replace

import pytest
import torch

from attnsvm.svm import SvmStatus, multi_token, single_token, solve, solve_svm
from attnsvm.svm.certificate import certify, check_ray
from attnsvm.svm.reduction import MANY, WIDE, is_thin, spectrum
from attnsvm.svm.solution import Candidate
from tests.kkt import assert_infeasible, assert_optimal, dual_norm, norm, normal
from tests.svm.instances import gaussian, spheres

both_norms = pytest.mark.parametrize("name", ["frobenius", "nuclear"])


@both_norms
@pytest.mark.parametrize("shape", [(3, 4, WIDE), (5, 3, 300), (2, 9, 400), (1, 2, 300)])
def test_every_number_is_that_of_the_d_x_d_matrices(name, shape):
    X, Z, selected = spheres(*shape, range(3))
    problem = single_token(X, Z, selected)
    assert is_thin(problem.D, WIDE)
    assert is_thin(Z, WIDE)
    solution = solve_svm(X, Z, selected, norm=name)
    assert solution.status == (SvmStatus.solved,) * 3
    assert_optimal(problem, solution)
    sigma = torch.linalg.svdvals(solution.W)
    torch.testing.assert_close(solution.sigma, sigma, rtol=1e-13, atol=1e-13)
    torch.testing.assert_close(solution.objective, norm(solution.W, name), rtol=1e-13, atol=0)
    a = solution.certificate.multipliers
    bound = a.sum(dim=1) / dual_norm(problem.combine(a), name)
    torch.testing.assert_close(solution.lower_bound, bound, rtol=1e-13, atol=0)
    assert solution.rank.tolist() == (sigma > 1e-6 * sigma[:, :1]).sum(dim=1).tolist()
    assert (solution.rank <= solution.rank_bound).all()
    for b in range(3):
        alone = solve_svm(X[b], Z[b], selected[b], norm=name)
        assert alone.objective.item() == pytest.approx(solution.objective[b].item(), rel=1e-13)


@both_norms
def test_turned_into_many_dimensions_an_instance_keeps_its_numbers(name):
    X, Z, selected = spheres(4, 5, 12, range(3))
    U = torch.linalg.qr(normal(300, 12))[0]
    plain = solve_svm(X, Z, selected, norm=name)
    turned = solve_svm(X @ U.mT, Z @ U.mT, selected, norm=name)
    torch.testing.assert_close(turned.objective, plain.objective, rtol=1e-9, atol=0)
    torch.testing.assert_close(turned.W, U @ plain.W @ U.mT, rtol=0, atol=1e-4)
    assert turned.rank.tolist() == plain.rank.tolist()
    assert (turned.support == plain.support).all()


@both_norms
@pytest.mark.parametrize("d", [WIDE, 300])
def test_contradicting_samples_are_infeasible(name, d):
    X, Z, selected = gaussian(3, 4, d, 2, seed=3)
    assert_optimal(single_token(X, Z, selected), solve_svm(X, Z, selected, norm=name))
    X[:, 1, 1], X[:, 1, 0] = X[:, 0, 0], X[:, 0, 1]
    Z[:, 1] = Z[:, 0]
    problem = single_token(X, Z, selected)
    solution = solve_svm(X, Z, selected, norm=name)
    assert_infeasible(problem, solution)
    a = solution.certificate.ray
    cancelled = problem.combine(a).flatten(1).norm(dim=1)
    asked = (a * problem.scale).sum(dim=1)
    assert (check_ray(problem, a)[1] <= asked / (2.2e-16 * asked).maximum(cancelled) * 1.01).all()


@both_norms
@pytest.mark.parametrize("size", [1e-16, 1e-15, 1e-13, 1e-9, 1e-3, 1.0, 1e3])
def test_what_lies_outside_the_span_is_paid_for(name, size):
    """W + V, V blind to the queries, has the same margins; its bound must be its own norm."""
    X, Z, selected = spheres(3, 4, 300, range(2))
    problem = single_token(X, Z, selected)
    solution = solve_svm(X, Z, selected, norm=name)
    P = torch.linalg.qr(Z.mT)[0]
    V = normal(2, 300, 300)
    V = V - (V @ P) @ P.mT
    W = solution.W + size * V / V.flatten(1).norm(dim=1)[:, None, None]
    ray = torch.full_like(problem.h, torch.nan)
    candidate = Candidate(W, solution.certificate.multipliers, ray)
    verdict = certify(problem, candidate, name, 1e-9, 1e-6)
    dense = norm(verdict.W, name)
    assert (verdict.certificate.upper >= dense * (1 - 1e-13)).all()
    assert (verdict.certificate.upper <= dense * (1 + 1e-12)).all()
    loose = size >= 1e-3 or (size >= 1e-9 and name == "nuclear")
    assert verdict.status == ((SvmStatus.undecided if loose else SvmStatus.solved),) * 2


@pytest.mark.parametrize("d", [MANY - 1, MANY, 300])
@pytest.mark.parametrize("size", [1e-300, 1e-170, 1.0])
def test_spectrum_is_that_of_w_whatever_its_size(size, d):
    Z = normal(1, 2, d)
    W = normal(1, d, 2, seed=1) @ Z
    outside = W + normal(1, d, d, seed=2)
    for matrix in (W, outside, torch.zeros_like(W)):
        sigma, distance = spectrum(size * matrix, Z)
        dense = torch.linalg.svdvals(size * matrix)
        assert distance <= 1e-13 * size * d
        torch.testing.assert_close(sigma / size, dense / size, rtol=1e-12, atol=1e-10)
    assert (spectrum(torch.full_like(W, torch.nan), Z)[0] == 0).all()


@both_norms
def test_equalities(name):
    X, Z, _ = spheres(4, 5, 300, range(2))
    attended = torch.zeros(2, 4, 5, dtype=torch.bool)
    attended[:, :, :2] = True
    problem = multi_token(X, Z, attended)
    solution = solve(problem, name, 5)
    assert solution.status == (SvmStatus.solved,) * 2
    assert_optimal(problem, solution)
    torch.testing.assert_close(solution.objective, norm(solution.W, name), rtol=1e-12, atol=0)
    contrary = torch.where(problem.equality, 1.0, problem.h)  # tokens 0 - 1 and, below, 1 - 0
    twin = replace(problem, h=contrary, Z=problem.Z.clone(), D=problem.D.clone())
    twin.Z[:, 1] = twin.Z[:, 0]
    rows = twin.equality[0].nonzero()[:2, 0]
    twin.D[:, rows[1]] = -twin.D[:, rows[0]]
    assert set(solve(twin, name, 5).status) == {SvmStatus.infeasible}
