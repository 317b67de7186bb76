"""Wide instances, whose spectra are taken in the span of their vectors, against d x d matrices."""

import pytest
import torch

from attnsvm.svm import SvmStatus, single_token, solve_svm
from attnsvm.svm.certificate import certify
from attnsvm.svm.reduction import MANY, WIDE, is_thin, spectrum
from attnsvm.svm.solution import Candidate
from tests.kkt import assert_optimal, dual_norm, norm, normal
from tests.svm.instances import spheres

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
