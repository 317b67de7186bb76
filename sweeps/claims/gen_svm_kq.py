"""Section 6 for (K, Q): the two parts of Gen-SVM of least nuclear norm."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from scipy.optimize import nnls

from sweeps.claims._claim import FAILS, HOLDS, Claim, Evidence, Words, ruled
from sweeps.claims._conditions import still, trains
from sweeps.claims._runs import SEVERAL_KQ
from sweeps.claims.gen_svm import CLOSE, FAR, STAYS, several


def prediction(evidence: Evidence) -> Words:
    """Return whether K Q^T is near W_fin + C W_mm of least nuclear norm, for the best C."""
    now, half_way = evidence.from_arrays(_at_the_end), evidence.from_arrays(_half_way)
    return ruled(
        evidence,
        [
            (now <= CLOSE, HOLDS),
            (~still(evidence), "attention moves"),
            ((now >= FAR) & (now >= STAYS * half_way), FAILS),
        ],
        otherwise="still coming nearer, or not far",
    )


def _at_the_end(arrays: Mapping[str, np.ndarray]) -> np.ndarray:
    return _apart(arrays["trained_W"], arrays)


def _half_way(arrays: Mapping[str, np.ndarray]) -> np.ndarray:
    snapshots = arrays["snapshots"]
    return _apart(snapshots[:, snapshots.shape[1] // 2], arrays)


def _apart(W: np.ndarray, arrays: Mapping[str, np.ndarray]) -> np.ndarray:
    """Return min_C 1 - corr(W, W_fin + C W_mm), C >= 0.

    The nearest p W_fin + q W_mm with p, q >= 0 is orthogonal to what it leaves of W, so that its
    correlation with W is ||p W_fin + q W_mm|| / ||W||, the largest one.
    """
    given = zip(W, arrays["nuclear_fin_W"], arrays["nuclear_W"], strict=True)
    return np.array([_one_apart(*one) for one in given])


def _one_apart(W: np.ndarray, W_fin: np.ndarray, W_mm: np.ndarray) -> float:
    E, size = np.stack([W_fin.ravel(), W_mm.ravel()], axis=1), np.linalg.norm(W)
    if not np.isfinite(E).all():
        return np.nan
    u, _ = nnls(E, W.ravel() / size)
    return float(1 - np.linalg.norm(E @ u))


CLAIM = Claim(
    name="gen_svm_kq",
    paper="2308.16898",
    number="Section 6, Gen-SVM, (K, Q)",
    title="with a nonlinear head K Q^T goes to W_fin + C W_mm of least nuclear norm",
    statement="min_C (1 - corr(K Q^T, W_fin + C W_mm)) -> 0, W_fin of least nuclear norm with the "
    "attained log-ratios of the attended tokens, W_mm of least nuclear norm with margins >= 1 over "
    "the others",
    hypotheses={"head of gradient != 0": trains, "several tokens attended, clearly": several},
    prediction=prediction,
    runs=(SEVERAL_KQ,),
    tolerance="1 - correlation <= 0.01 after 20 000 steps that fall; >= 0.1, and >= 0.9 of what it "
    "was half-way, refutes it, where the mean largest softmax has changed by at most 1e-4 since. "
    "Both parts are certified; a least nuclear norm may have several solutions, one is compared",
)
