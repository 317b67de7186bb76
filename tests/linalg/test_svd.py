"""Singular value decompositions in lanes: defining identities, torch's values, exact cases."""

import pytest
import torch

from attnsvm.linalg.simd.svd import svd
from tests.kkt import assert_near
from tests.kkt import normal as draw

pytestmark = pytest.mark.processors

SHAPES = [(1, 1), (2, 2), (3, 3), (5, 2), (2, 5), (10, 6), (10, 10), (4, 16), (33, 20)]
ROUNDING = 1e-14


def assert_orthonormal(U):
    assert (U.mT @ U - torch.eye(U.shape[-1])).abs().max() < ROUNDING


def product(U, sigma, V):
    return (U * sigma.unsqueeze(-2)) @ V.mT


@pytest.mark.parametrize(("p", "q"), SHAPES)
def test_factors_are_orthonormal_and_multiply_to_the_matrix(p, q):
    A = draw(11, p, q)
    U, sigma, V = svd(A)
    assert (U.shape, V.shape) == ((11, p, min(p, q)), (11, q, min(p, q)))
    assert_orthonormal(U)
    assert_orthonormal(V)
    assert (sigma.diff(dim=1) <= 0).all()
    assert_near(product(U, sigma, V), A, atol=1e-14 * A.norm().item())
    assert_near(sigma, torch.linalg.svdvals(A), rtol=1e-12)


def test_diagonal_matrices_are_exact_and_ranks_are_seen():
    d = torch.tensor([[2.0, -7.0, 0.5, 3.0], [1.0, 1.0, 0.0, -1.0], [0.0] * 4], dtype=torch.float64)
    U, sigma, V = svd(torch.diag_embed(d))
    assert sigma.equal(d.abs().sort(dim=1, descending=True).values)
    assert product(U, sigma, V).equal(torch.diag_embed(d))
    assert set(V.unique().tolist()) <= {-1.0, 0.0, 1.0}
    assert_orthonormal(V)
    assert not U[2].any()
    u, v = draw(9, 7, 1), draw(9, 5, 1, seed=1)
    U, sigma, V = svd(u @ v.mT)
    torch.testing.assert_close(sigma[:, 0], u.norm(dim=(1, 2)) * v.norm(dim=(1, 2)))
    assert (sigma[:, 1:] <= 1e-14 * sigma[:, :1]).all()
    torch.testing.assert_close(product(U, sigma, V), u @ v.mT)


def test_vectors_of_tiny_singular_values_are_accurate():
    """B D, D graded to 1e-60: the product of all sigma is |det B| det D, and U is orthonormal."""
    B, d = draw(8, 6, 6), 10.0 ** torch.arange(0, -72, -12, dtype=torch.float64)
    A = B * d
    U, sigma, V = svd(A)
    assert sigma[:, -1].max() < 1e-58
    assert_near((sigma / d).prod(1), torch.linalg.det(B).abs(), rtol=1e-12)
    assert_orthonormal(U)
    Q = torch.linalg.qr(B).Q  # the limit of U where each column is far below the one before
    assert_near((U * Q).sum(1).abs(), torch.ones_like(sigma), rtol=1e-12)
    errors = (product(U, sigma, V) - A).norm(dim=1) / A.norm(dim=1)
    assert errors.max() < ROUNDING


def test_bits_depend_neither_on_the_batch_nor_on_the_neighbours():
    A = draw(19, 6, 5)
    A[3], A[4, :, 2], A[7], A[6, 1, 1] = 0, 0, torch.nan, torch.inf
    A[5] = torch.eye(6, dtype=torch.float64)[:, :5]
    whole = svd(A)
    for part in (slice(1), slice(2, 6), slice(8, 19)):
        for alone, together in zip(svd(A[part]), whole, strict=True):
            assert alone.equal(together[part])
    assert not whole[1][6:8].isfinite().any()
    assert whole[1][:6].isfinite().all()
