"""The numbers of one layer that follow from its W and its SVMs, by arithmetic of their own.

Nothing here imports torch or the library: correlations, margin gaps and ranks of a record are
compared with these as well as with those that the library computes again.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from attnsvm.verify.attained import attained_gap
from attnsvm.verify.constraints import StoredSvm
from attnsvm.verify.directions import (
    one_minus_correlation,
    svmeq,
    svmeq_factors,
    svmeq_least_squares,
)
from attnsvm.verify.exact import EPS, Array
from attnsvm.verify.expected import NAN, Either, Expected, Interval, Words, number
from attnsvm.verify.norms import computed
from attnsvm.verify.stored import svms_of
from attnsvm.verify.svm import Proof, verify
from attnsvm.verify.svm_columns import Rows, svm_columns

TABLED = {"objective": "objective", "lower_bound": "lower_bound", "gap": "duality_gap",
          "min_margin": "min_margin"}  # fmt: skip
"""Column of `trials.parquet`, without its norm -> number of `solutions.npz`."""

SPAN = 1e-9
"""Relative error of the direction W_fin + C W_mm."""


@dataclass
class LayerProof:
    """What follows from the arrays of one instance, or of one layer and head.

    Attributes
    ----------
    config : mapping
        The recorded config.
    at : mapping
        The stored arrays.
    """

    config: Mapping[str, Any]
    at: Mapping[str, Any]
    svms: dict[str, StoredSvm] = field(init=False)
    proofs: dict[str, Proof] = field(init=False)

    def __post_init__(self) -> None:
        self.svms = svms_of(self.at, self.config["svm"])
        self.proofs = {name: verify(svm) for name, svm in self.svms.items()}

    def refusals(self) -> Iterator[tuple[str, str]]:
        """Yield the SVMs that are not proved, and the factors whose product is not W."""
        for name, proof in self.proofs.items():
            if not proof.proved:
                yield name, f"{self.svms[name].status}: {proof.reason}"
        m = self.config["parameterization"].get("m")
        tokens = self.config["selection"]["tokens"]
        nuclear = self.svms.get("nuclear")
        if tokens != "multi" and m is not None and nuclear is not None and _beyond(nuclear, m):
            yield "nuclear", f"its rank is more than m = {m}"
        if "trained_K" in self.at:
            K, Q, W = (self.at[f"trained_{name}"] for name in "KQW")
            apart = 8 * (K.shape[1] + 2) * EPS * np.linalg.norm(K) * np.linalg.norm(Q)
            same = K.shape == Q.shape and bool((np.abs(W - K @ Q.T) <= apart).all())
            if not same and np.isfinite(W).all():
                yield "trained_K", "K Q^T is not the trained W"

    def columns(self) -> dict[str, Expected]:
        """Return what the columns that are proved here may hold."""
        columns: dict[str, Expected] = {}
        tokens, norms = self.config["selection"]["tokens"], list(self.config["svm"]["norms"])
        for norm in norms:
            svm = self.svms[norm]
            columns[f"{norm}_status"] = Words((svm.status,))
            for column, name in TABLED.items():
                columns[f"{norm}_{column}"] = number(getattr(svm, name))
            found = svm_columns(svm) if self.proofs[norm].proved else {}
            columns |= {f"{norm}_{name}": value for name, value in found.items()}
        if tokens == "optimal":
            return columns
        W = self.at["trained_W"]
        for norm in norms:
            gap = self._margin_gap(norm, W)
            if tokens == "multi":
                gap = attained_gap(self.at, norm, self.svms["one_token"])
                low, high = svmeq_factors(W, *self._parts(norm), SPAN)
                columns[f"svmeq_C_{norm}"] = Interval(low, high)
            columns[f"{norm}_margin_gap"] = _expected(gap)
        return columns | {name: _expected(pair) for name, pair in self._correlations(W).items()}

    def _parts(self, norm: str) -> tuple[Array, Array]:
        return self.svms[f"{norm}_fin"].W, self.svms[norm].W

    def _margin_gap(self, norm: str, W: Array) -> tuple[float, float]:
        """Return 1 - ||W_mm|| min_k d_k^T W z_k / ||W|| and its error bound."""
        svm = self.svms[norm]
        if svm.status != "solved" or not (np.isfinite(W).all() and W.any()):
            return math.nan, 0.0
        W = W / max(float(np.abs(W).max()), np.finfo(float).tiny)  # its scale does not matter
        rows = Rows(replace(svm, W=W))
        margins, apart = rows.margins()
        ratio = svm.objective / computed(W, norm)
        least = margins[rows.inequality].min(initial=math.inf)
        error = ratio * (apart.max() + 64 * len(W) * EPS * abs(least)) + 4 * EPS
        return float(1 - ratio * least), float(error)

    def _correlations(self, W: Array) -> dict[str, tuple[Any, Any]]:
        """Return every 1 - correlation of W (d, d), with error bounds."""
        norms = self.config["svm"]["norms"]
        multi = self.config["selection"]["tokens"] == "multi"
        targets = {"one_minus_corr_1token": "one_token"} if multi else {}
        targets |= {f"one_minus_corr_{norm}": norm for norm in norms}
        found = {
            column: one_minus_correlation(W, self.svms[name].W) for column, name in targets.items()
        }
        for norm in norms if multi else ():
            parts = self._parts(norm)
            name = "" if norm == "frobenius" else f"_{norm}"
            best = svmeq(W, *parts)
            found[f"one_minus_corr_svmeq{name}"] = one_minus_correlation(W, best, SPAN)
            if norm == "frobenius":
                published = svmeq_least_squares(W, *parts)
                found["one_minus_corr_svmeq_lsq"] = one_minus_correlation(W, published, SPAN)
        return found


def _expected(pair: tuple[Any, Any]) -> Expected:
    value, apart = (float(part) for part in pair)
    if math.isinf(apart):  # rounding decides even whether the number is defined
        return Either((NAN, number(value, apart)))
    return NAN if math.isnan(value) else number(value, apart)


def _beyond(svm: StoredSvm, m: int) -> bool:
    """Return whether the numerical rank of W is above m."""
    if not np.isfinite(svm.W).all():
        return False
    sigma = np.linalg.svd(svm.W, compute_uv=False)
    return bool((sigma[m:] > svm.rank_tolerance * sigma[0] * (1 + 1e-12)).any())
