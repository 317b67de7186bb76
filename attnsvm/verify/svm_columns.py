"""The columns of an SVM that its arrays do not state: kappa, support and the bound of the rank."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from attnsvm.verify.constraints import StoredSvm
from attnsvm.verify.exact import EPS, Array
from attnsvm.verify.expected import MISSING, Either, Expected, number, whole

ACTIVE = 1e-6
"""Largest excess over one of a support token's margin, unless 64 EPS kappa is larger."""


KAPPA = 1e-6
"""Relative error of kappa where equality rows are nearly dependent."""

DEPENDENT = 32 * EPS

Mask = NDArray[np.bool_]


class Rows:
    """The rows d_k, z_k of a stored SVM in floating point, shaped (n, T), the reference's zero.

    Scaled to unit size by powers of two, with W and multipliers to match: squares do not overflow.
    """

    def __init__(self, stored: StoredSvm) -> None:
        self.stored = stored
        n, T = stored.mask.shape
        at = stored.selected
        D, of_D = _unit(stored.X[np.arange(n), at][:, None] - stored.X)
        Z, of_Z = _unit(stored.Z)
        self.D, self.Z = D, Z
        self.W = np.ldexp(stored.W, of_D + of_Z)
        self.multipliers = np.ldexp(stored.multipliers, of_D + of_Z)
        others = stored.mask & (np.arange(T) != at[:, None])
        inside = np.zeros_like(others) if stored.attended is None else stored.attended & others
        finite = stored.log_softmax is not None
        self.equality = inside
        self.inequality = np.zeros_like(others) if finite else others & ~inside
        self.present = self.equality | self.inequality
        self.scale = np.linalg.norm(self.D, axis=2) * np.linalg.norm(Z, axis=1)[:, None]

    @property
    def trivial(self) -> bool:
        """Whether every right-hand side is zero."""
        logs = self.stored.log_softmax
        if logs is None:
            return not self.inequality.any()
        first = logs[np.arange(len(logs)), self.stored.selected][:, None]
        return not (first - logs)[self.equality].any()

    def margins(self) -> tuple[Array, Array]:
        """Return d_k^T W z_k and bounds of their rounding errors."""
        W = self.W
        margins = np.einsum("ntd,nd->nt", self.D, self.Z @ W.T)
        apart = (2 * len(W) + 20) * EPS * self.scale * np.linalg.norm(W)
        return margins, apart

    def kappa(self) -> float:
        """Return ||W||_F max_k ||d_k|| ||z_k|| / min(1, least singular value of the equalities)."""
        longest = self.scale[self.present].max(initial=0.0)
        return float(np.linalg.norm(self.W) * longest * self._condition())

    def _condition(self) -> float:
        sample, token = np.nonzero(self.equality)
        if not sample.size or not self.W.any():
            return 1.0
        scale = np.where(self.scale > 0, self.scale, 1.0)[sample, token, None]
        D, Q = self.D[sample, token] / scale, self.Z[sample]
        S = np.linalg.svd((D[:, :, None] * Q[:, None, :]).reshape(len(D), -1), compute_uv=False)
        return float(1 / min(S[S > DEPENDENT * S[0]].min(initial=1.0), 1.0))

    def combined(self) -> Array:
        """Return M(a) = sum_k a_k d_k z_k^T."""
        n, T = self.stored.mask.shape
        a = np.zeros((n, T))
        rows = self.multipliers.reshape(n, max(T - 1, 1))
        others = np.arange(T) != self.stored.selected[:, None]
        if T > 1:
            a[others] = rows.ravel()
        return np.asarray(np.einsum("nt,ntd,ne->de", a, self.D, self.Z))


def support(rows: Rows, kappa: float) -> tuple[Mask, Mask]:
    """Return the tokens whose constraint is active, for certain and possibly, (n, T)."""
    tolerance = max(ACTIVE, 64 * EPS * kappa)
    margins, apart = rows.margins()
    apart = apart + 1e-9 * tolerance
    certain = rows.inequality & (margins + apart <= 1 + tolerance)
    possible = rows.inequality & (margins - apart <= 1 + tolerance)
    return certain | rows.equality, possible | rows.equality


def svm_columns(stored: StoredSvm) -> dict[str, Expected]:
    """Return what kappa, rank, rank_bound and support of a proved SVM may be."""
    if not math.isfinite(stored.objective):
        missing = dict.fromkeys(("rank", "rank_bound", "support"), MISSING)
        return {"kappa": number(math.inf), **missing}
    rows = Rows(stored)
    kappa = rows.kappa()
    certain, possible = support(rows, kappa)
    return {
        "kappa": number(kappa, KAPPA * kappa),
        "rank": MISSING if stored.rank < 0 else whole(stored.rank, stored.rank),
        "rank_bound": _rank_bound(rows, kappa),
        "support": whole(certain.sum(), possible.sum()),
    }


def _rank_bound(rows: Rows, kappa: float) -> Expected:
    """Return the bound of the numerical rank, see `SvmSolution.rank_bound`."""
    stored = rows.stored
    n, d = stored.Z.shape
    if rows.trivial:
        return whole(0, 0)
    if stored.norm == "frobenius":
        return whole(min(n, d), min(n, d))
    if stored.norm != "nuclear":
        return MISSING
    spread = max(stored.objective - stored.lower_bound, 0.0)
    spread += (2 * d + 10) * EPS * kappa * stored.objective
    largest = np.linalg.norm(stored.W, 2)
    slack = spread / (stored.rank_tolerance * largest)
    sizes = np.linalg.svd(rows.combined(), compute_uv=False)
    error = 1e-8 * slack + 64 * d * EPS
    least, most = (int((sizes >= 1 - slack + sign * error).sum()) for sign in (1, -1))
    known: list[Expected] = [whole(least, most)] if slack < 1 + error else []
    return Either((*known, *([MISSING] if slack >= 1 - error else [])))


def _unit(x: Array) -> tuple[Array, int]:
    """Return 2^-e x with largest entry in [1/2, 1), and e."""
    exponent = int(np.frexp(np.abs(x).max(initial=0.0))[1])
    return np.ldexp(x, -exponent), exponent
