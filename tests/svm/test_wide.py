"""Wide instances, whose spectra are taken in the span of their vectors, against d x d matrices."""

import pytest
import torch

from attnsvm.svm import single_token, solve_svm
from attnsvm.svm.certificate import certify
from attnsvm.svm.reduction import spectrum
from attnsvm.svm.solution import Candidate
from tests.kkt import norm, normal
from tests.svm.instances import spheres


@pytest.mark.parametrize("name", ["frobenius", "nuclear"])
@pytest.mark.parametrize("size", [0.0, 1e-16, 1e-15, 1e-13, 1e-9, 1e-3, 1.0, 1e3])
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
    upper, dense = verdict.certificate.upper, norm(verdict.W, name)
    sigma = torch.linalg.svdvals(verdict.W)
    torch.testing.assert_close(verdict.sigma, sigma, rtol=1e-12, atol=1e-13 * (1 + size))
    assert ((upper >= dense * (1 - 1e-13)) & (upper <= dense * (1 + 1e-12))).all()
    loose = size >= 1e-3 or (size >= 1e-9 and name == "nuclear")
    assert verdict.status == (("undecided" if loose else "solved"),) * 2


def test_the_spectrum_of_a_tiny_matrix_is_that_of_a_larger_one():
    W, Z, unit = normal(2, 300, 300), normal(2, 4, 300), 2.0**-565
    P = torch.linalg.qr(Z.mT)[0]
    for V in (W, (W @ P) @ P.mT):
        for tiny, plain in zip(spectrum(V * unit, Z), spectrum(V, Z), strict=True):
            torch.testing.assert_close(tiny, plain * unit, rtol=0, atol=0)
