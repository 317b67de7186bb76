import numpy as np
import pytest
from numba import njit

from attnsvm.linalg.simd.array import LaneArray
from attnsvm.linalg.simd.cholesky import PANEL, cholesky


@njit
def factor(A, L, pivot, panel, ridge, last):
    last[0] = cholesky(A, L, pivot, panel, ridge)


def decomposed(A, ridge=0.0):
    """Return L, with its diagonal, and the last pivot, of eight matrices A (8, size, size)."""
    size = A.shape[1]
    K = LaneArray(np.ascontiguousarray(np.moveaxis(A, 0, -1)))
    shapes = (size, size), (size,), (size, PANEL), (1,)
    L, pivot, panel, last = (LaneArray(np.zeros((*shape, 8))) for shape in shapes)
    factor(K, L, pivot, panel, ridge, last)
    lower = np.tril(np.moveaxis(L.array, -1, 0), -1)
    return lower + np.eye(size) / pivot.array.T[:, :, None], last.array[0]


@pytest.mark.parametrize("size", [1, 3, 4, 5, 11, 16])
def test_factor_is_that_of_lapack(size):
    """A lane that is not positive definite shows it, and changes no other."""
    X = np.random.default_rng(size).standard_normal((8, size, size + 2))
    A = X @ X.mT
    L, last = decomposed(A)
    expected = np.linalg.cholesky(A)
    np.testing.assert_allclose(L, expected, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(last, 1 / expected[:, -1, -1], rtol=1e-9)
    ridged, _ = decomposed(A, 0.5)
    shifted = A + 0.5 * np.eye(size)
    np.testing.assert_allclose(ridged, np.linalg.cholesky(shifted), rtol=1e-9, atol=1e-12)
    A[2] -= 1.001 * np.linalg.eigvalsh(A[2])[0] * np.eye(size)  # least eigenvalue below zero
    A[5] = np.nan
    other, last = decomposed(A)
    inside = last < 1e300
    assert inside.tolist() == [lane not in (2, 5) for lane in range(8)]
    np.testing.assert_array_equal(other[inside], L[inside])
