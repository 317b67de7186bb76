"""Newton's method on the optimal face of a nuclear-norm SVM: guesses of support and rank."""

from __future__ import annotations

import numpy as np
import pytest

import attnsvm
from attnsvm.svm.nuclear import face


def problem(seed):
    """Rows of an instance, and a point near its solution: rank and support are to be guessed."""
    batch = attnsvm.sample("sphere", n=4, T=4, d=5, trials=1, seed=seed)
    solution = attnsvm.solve_svm(batch.X[0], batch.Z[0], [0] * 4, norm="nuclear")
    assert solution.status == "solved"
    X, Z, rng = batch.X[0].numpy(), batch.Z[0].numpy(), np.random.default_rng(seed)
    D, Q = (X[:, :1] - X[:, 1:]).reshape(12, 5), Z.repeat(3, axis=0)
    size = np.linalg.norm(D, axis=1) * np.linalg.norm(Q, axis=1)
    a = np.abs(solution.certificate.multipliers.numpy().ravel() * size + 1e-3 * rng.normal(size=12))
    D, Q = (V / np.linalg.norm(V, axis=1, keepdims=True) for V in (D, Q))
    W = solution.W.numpy()
    W = W + 1e-3 * np.abs(W).max() * rng.normal(size=(5, 5))
    a /= np.linalg.norm((D * a[:, None]).T @ Q, ord=2)
    return D, Q, 1 / size, np.zeros(12, dtype=bool), W, a


def faces(given):
    return [(W.tobytes(), a.tobytes()) for W, a in face.polish(*given)]


@pytest.mark.parametrize("seed", range(6))
def test_guesses_that_lead_to_one_face_share_its_solution(seed, monkeypatch):
    """Fewer faces than from each guess alone, and the same ones to the last bit."""
    given = problem(seed)
    found = faces(given)
    alone = []
    for guess in face.GUESSES:
        monkeypatch.setattr(face, "GUESSES", (guess,))
        alone.append(faces(given))
    assert set(found) == {one for part in alone for one in part}
    assert sum(map(len, alone)) > len(found) > 0
