"""A stored SVM, and its rows in exact arithmetic: d_k^T W z_k >= h_k or = h_k.

Token differences, margins d_k^T W z_k and M(a) = sum_k a_k d_k z_k^T are computed exactly.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from attnsvm.verify.exact import (
    EPS,
    Array,
    Exact,
    Integers,
    require,
    root,
    sum_of_squares,
    unit_rows,
)

DEPENDENT = 32 * EPS  # largest relative singular value at which unit equality rows are dependent
EQUALITY = 1.1e-11  # residual of an equality, relative to ||d_k|| ||z_k|| ||W||_F
ACTIVE = 1e-6  # largest relative excess of a support token's margin, unless 64 EPS kappa is larger
CLEAR = 16 * 64 * EPS  # relative error of a margin, as a share of ||d_k|| ||z_k|| ||W||_F / h_k
HELD = 10  # rounds in which rows are held
RANK_TOLERANCE = 1e-6  # default threshold of the rank, relative to the largest singular value


@dataclass(frozen=True)
class StoredSvm:
    """One stored instance: its input, its solution and what is stated about it.

    X (n, T, d), Z (n, d), mask (n, T), selected (n,), W (d, d), multipliers and ray (N,) with rows
    as in `attnsvm.svm.SvmProblem`; scalars as in `SvmSolution`. With `attended` (n, T) it is
    Gen-SVM: its finite part where `log_softmax` (n, T) is given, its margin part where not;
    `selected` is then the first attended token of each sample. With `margins` (N,) these are the
    right-hand sides of Att-SVM. With `offsets` (n,) and `ratio` it is the weighted SVM.
    """

    X: Array
    Z: Array
    mask: NDArray[np.bool_]
    selected: NDArray[np.int64]
    norm: str
    status: str
    W: Array
    multipliers: Array
    ray: Array
    objective: float
    lower_bound: float
    duality_gap: float
    min_margin: float
    rank: int
    gap: float = 1e-9
    rank_tolerance: float = RANK_TOLERANCE
    attended: NDArray[np.bool_] | None = None
    log_softmax: Array | None = None
    margins: Array | None = None
    offsets: Array | None = None
    ratio: float = 0.0

    @classmethod
    def all_of(cls, at: Mapping[str, Any], options: Mapping[str, Any]) -> dict[str, Self]:
        """Return the SVMs among the arrays `at` of one instance, by name.

        `options` is the section `svm` of the config.
        """
        svms = {}
        for name in (array.removesuffix("_ray") for array in at if array.endswith("_ray")):
            norm, finite = name.partition("_")[0], name.endswith("_fin")
            multi = "attended" in at and name != "one_token"
            names = ("objective", "lower_bound", "duality_gap", "min_margin")
            numbers: dict[str, Any] = {one: float(at[f"{name}_{one}"]) for one in names}
            tokens = {one: at[one] for one in ("X", "Z", "mask", "selected")}
            tokens["mask"] = at.get("distinct", at["mask"])
            if name == "classifier":
                tokens = of_head(at)
            elif f"{name}_ratio" in at:
                tokens["mask"] = at.get("reached", at["mask"])
            if multi:
                tokens["selected"] = at["attended"].argmax(-1)
            svms[name] = cls(
                **tokens,
                **{one: at[f"{name}_{one}"] for one in ("W", "multipliers", "ray")},
                **numbers,
                norm="frobenius" if name in ("one_token", "classifier") else norm,
                status=str(at[f"{name}_status"]),
                rank=int(at[f"{name}_rank"]),
                gap=options["gap"],
                rank_tolerance=options["rank_tolerance"],
                attended=at["attended"] if multi else None,
                log_softmax=at["log_softmax"] if finite else None,
                offsets=at.get(f"{name}_offsets"),
                ratio=float(at.get(f"{name}_ratio", 0.0)),
            )
        return svms


def of_head(at: Mapping[str, Any]) -> dict[str, Any]:
    """Return the tokens Y_i x_{i,alpha_i} and 0, and the query e_1, of a classifier v = W e_1."""
    n, _, d = at["X"].shape
    chosen = at["Y"][:, None] * at["X"][np.arange(n), at["selected"]]
    X, Z = np.stack([chosen, 0 * chosen], 1), np.eye(1, d).repeat(n, axis=0)
    return {"X": X, "Z": Z, "mask": np.ones((n, 2), bool), "selected": 0 * at["selected"]}


class ExactRows:
    """The exact rows d_k, z_k, h_k of a stored SVM: inequalities, equalities, padding.

    Of the weighted SVM, an inequality is d_k^T W z_k >= max(0, h_k - relief_k norm(W)). Where
    `clear`, inequalities whose h_k is small beside ||d_k|| ||z_k|| ||W||_F may be missed by
    rounding, as equalities may, and only the others scale W.
    """

    def __init__(self, stored: StoredSvm, clear: bool = False) -> None:
        self.stored, self.clear = stored, clear
        X, Z = Exact.of(stored.X), Exact.of(stored.Z)
        n, T = stored.mask.shape
        self.samples = Z
        self.used = (Z.integers != 0).any(axis=0)  # dimensions that some query has
        self.sample, token = np.divmod(np.arange(n * max(T - 1, 1)), max(T - 1, 1))
        selected = stored.selected[self.sample]
        token = np.minimum(token + (token >= selected), T - 1)
        require(bool(stored.mask[np.arange(n), stored.selected].all()), "selected: masked token")
        self.token = token
        self.inequality = stored.mask[self.sample, token] & (token != selected)
        self.equality = np.zeros_like(self.inequality)
        self.h = self.inequality.astype(float)
        if stored.attended is not None:
            self._general(stored, stored.attended, token)
        self.relief: Integers = np.full(self.h.shape, Fraction(0))
        if stored.margins is not None:
            require(bool((stored.margins >= 0).all()), "margins: a number is not >= 0")
            self.h = np.where(self.inequality, stored.margins, 0.0)
            require(self.h.shape == self.inequality.shape, "margins: wrong shape")
        if stored.offsets is not None:
            require(stored.ratio >= 0, "ratio: a number is not >= 0")
            self._weighted(stored.offsets, float(stored.ratio))
        self.present = self.inequality | self.equality
        self.trivial = not self.h.any()
        difference = X.integers[self.sample, selected] - X.integers[self.sample, token]
        self.D = Exact(difference, X.exponent)
        length = [sum_of_squares(z) for z in Z.integers]
        self.squared_scale = [
            sum_of_squares(d) * length[i] for d, i in zip(difference, self.sample, strict=True)
        ]
        self.exponent = X.exponent + Z.exponent

    def _general(self, stored: StoredSvm, attended: NDArray[np.bool_], token: Any) -> None:
        """Change the rows to those of Gen-SVM."""
        first = attended.argmax(axis=1)
        require(bool((first == stored.selected).all()), "selected: not the first attended token")
        self.equality = self.inequality & attended[self.sample, token]
        if stored.log_softmax is None:
            self.inequality = self.inequality & ~self.equality
            self.h = self.inequality.astype(float)
        else:
            logs = stored.log_softmax
            ratio = logs[self.sample, first[self.sample]] - logs[self.sample, token]
            self.inequality = np.zeros_like(self.equality)
            self.h = np.where(self.equality, ratio, 0.0)

    def _weighted(self, offsets: Array, ratio: float) -> None:
        """Set the relief r (gamma_i - min gamma), the least over samples that have a row, exactly.

        In the limit r = inf it is replaced by h_k = 0.
        """
        require(offsets.shape == self.samples.integers.shape[:1], "offsets: wrong shape")
        require(bool(np.isfinite(offsets).all()), "an offset is not finite")
        gamma = np.array([Fraction(float(x)) for x in offsets], dtype=object)[self.sample]
        if not self.inequality.any():
            return
        above = (gamma - gamma[self.inequality].min()) * self.inequality
        if math.isinf(ratio):
            self.h = np.where(above > 0, 0.0, self.h)
        else:
            self.relief = above * Fraction(ratio)

    def required(self, size: float) -> Array:
        """Return the right-hand sides h_k at norm(W) = size."""
        taken = [float(relief) * size if relief else 0.0 for relief in self.relief]
        left = np.maximum(self.h - np.array(taken), 0.0)
        return np.asarray(np.where(self.relief > 0, left, self.h))

    @cached_property
    def W(self) -> Exact:
        """The stored W."""
        return Exact.of(self.stored.W)

    @cached_property
    def margins(self) -> list[Fraction]:
        """The margins of the stored W."""
        return self.margins_of(self.W)

    def margins_of(self, W: Exact) -> list[Fraction]:
        """Return d_k^T W z_k, exactly."""
        moved = self.samples.integers[:, self.used] @ W.integers[:, self.used].T
        margins = (self.D.integers * moved[self.sample]).sum(axis=1)
        unit = Fraction(2) ** (self.exponent + W.exponent)
        return [int(margin) * unit for margin in margins]

    def least_margin(self, size: Fraction) -> Fraction | None:
        """Return the least (margin + relief_k size) / h_k of rows that scale W, None without any.

        No other margin may be negative, unless it is met up to rounding. `size` is at least
        norm(W), which only raises the upper bound size / least. Equalities are checked.
        """
        for k in np.flatnonzero(self.equality | self.limits):
            missed = Fraction(float(self.h[k])) - self.margins[k]
            residual = abs(float(missed)) if self.equality[k] else float(missed)
            allowed = EQUALITY * self.scales[k] * self.length
            require(residual <= allowed, f"equality {k} is violated")
        index = np.flatnonzero(self.inequality & ~self.limits)
        require(all(self.margins[k] >= 0 for k in index), "a margin is negative")
        index = np.flatnonzero(self.scaling)
        ratios = ((self.margins[k] + self.relief[k] * size) / Fraction(self.h[k]) for k in index)
        least = min(ratios, default=None)
        if least is not None:
            require(least > 0, f"least margin {float(least):.3g}: must be > 0")
        return least

    @cached_property
    def length(self) -> float:
        """||W||_F."""
        return float(root(self.W.squared_norm)[1])

    @cached_property
    def reach(self) -> Array:
        """||d_k|| ||z_k|| ||W||_F / h_k, infinite where h_k = 0."""
        with np.errstate(divide="ignore", invalid="ignore"):
            ratios = np.array(self.scales) * self.length / np.abs(self.h)
        return np.asarray(np.where(self.h != 0, ratios, np.inf))

    @cached_property
    def scaling(self) -> NDArray[np.bool_]:
        """The inequalities with h_k > 0, unless an equality has h_k != 0."""
        rows = self.inequality & (self.h > 0) & ~self.h[self.equality].any()
        faint = self.stored.gap < CLEAR * self.reach if self.clear else False
        return np.asarray(rows & ~np.asarray(faint))

    @cached_property
    def limits(self) -> NDArray[np.bool_]:
        """The inequalities that do not scale W."""
        relieved = any(self.relief)
        return self.inequality & ~self.scaling & (self.clear and not relieved)

    @cached_property
    def kappa(self) -> float:
        """The condition number of `attnsvm.svm.certificate`, which does not depend on units.

        The largest ||d_k|| ||z_k|| ||W||_F / h_k of the rows that scale W, else the least one of
        all, over the least singular value of rows that are held, which is at most one. Zero where
        W = 0 is the solution.
        """
        if self.trivial:
            return 0.0
        nearest = max(1.0, self.reach[self.present].min(initial=np.inf))
        kappa = self.reach[self.scaling].max(initial=1.0 if self.scaling.any() else nearest)
        kappa *= self.repair[1]
        if not self.h[self.equality].any():
            return float(kappa)
        a = Exact.of(self.stored.multipliers)
        size = float(root(self.combine(a).squared_norm)[1])
        return max(float(kappa), float(abs(self.stored.multipliers) @ self.scales) / size)

    @cached_property
    def lost(self) -> Fraction:
        """How far the least ratio of margin and h_k may fall on the way to exact rows."""
        most = max((self.scales[k] / self.h[k] for k in np.flatnonzero(self.scaling)), default=0.0)
        return Fraction(most * self.repair[0])

    @cached_property
    def repair(self) -> tuple[float, float]:
        """The distance of W to where held rows are equalities, and 1 / their least singular value.

        Held are equalities, and the limits that are not met by more than rounding or the distance.
        """
        held, lost = self.equality, [self.rounding(k, self.length) for k in range(len(self.h))]
        slack = [float(self.margins[k] - Fraction(float(self.h[k]))) for k in range(len(self.h))]
        for _ in range(HELD):
            held = held | (self.limits & (np.array(slack) <= lost))
            distance, condition = self._distance(held)
            lost = [scale * distance for scale in self.scales]
            if not (self.limits & ~held & (np.array(slack) <= lost)).any():
                return distance, condition
        require(False, "rows that are met up to rounding depend on each other")
        return math.inf, math.inf

    def _distance(self, held: NDArray[np.bool_]) -> tuple[float, float]:
        """Return the distance of W to where `held` rows are equalities, 1 / their singular value.

        Computed in the singular vectors of the unit rows; a direction of singular value zero must
        be consistent up to rounding. Without rows they are zero and one.
        """
        index = np.flatnonzero(held)
        if not index.size:
            return 0.0, 1.0
        scale = [self.scales[k] or 1.0 for k in index]
        missed = np.array(
            [float((Fraction(float(self.h[k])) - self.margins[k]) / Fraction(s))
             for k, s in zip(index, scale, strict=True)]
        )  # fmt: skip
        D, Q = unit_rows(self.D, index), unit_rows(self.samples, self.sample[index])
        E = (D[:, :, None] * Q[:, None, :]).reshape(index.size, -1)
        U, S, _ = np.linalg.svd(E, full_matrices=index.size > E.shape[1])
        apart = np.zeros(U.shape[1], dtype=bool)
        apart[: S.size] = DEPENDENT * S[0] < S
        missed = U.T @ missed
        allowed = (4 * D.shape[1] + 20) * EPS * self.length
        require(bool((abs(missed[~apart]) <= allowed).all()), "dependent equalities contradict")
        S = S[apart[: S.size]]
        return float(np.linalg.norm(missed[apart] / S)), float(1 / min(S.min(initial=1.0), 1.0))

    def rounding(self, k: int, length: float) -> float:
        """Return how far rounding may move the margin k of a W of this length."""
        return float((2 * self.used.size + 20) * EPS * self.scales[k] * length)

    def support(self) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """Return the tokens whose constraint is active, for certain and possibly, (n, T)."""
        h = self.required(self.stored.objective)
        unit = np.maximum(np.abs(h), np.array(self.scales) * self.length / max(self.kappa, 1e-300))
        tolerance = max(ACTIVE, 64 * EPS * self.kappa) * unit
        certain, possible = np.zeros((2, *self.stored.mask.shape), dtype=bool)
        for k in np.flatnonzero(self.present):
            excess = float(self.margins[k]) - h[k] - tolerance[k]
            apart = self.rounding(int(k), self.length) + 1e-9 * tolerance[k]
            at = self.sample[k], self.token[k]
            certain[at] = self.equality[k] or excess + apart <= 0
            possible[at] = self.equality[k] or excess - apart <= 0
        return certain, possible

    def value(self, a: Exact, size: float) -> tuple[Fraction, Fraction]:
        """Return h^T a and relief^T a over the rows of which a W of this norm leaves h_k > 0."""
        h = Exact.of(np.where(self.required(size) != 0, self.h, 0.0))
        value = Fraction(int(h.integers @ a.integers)) * Fraction(2) ** (h.exponent + a.exponent)
        taken = (
            r * int(x) for r, x, y in zip(self.relief, a.integers, h.integers, strict=True) if y
        )
        return value, sum(taken, Fraction(0)) * Fraction(2) ** a.exponent

    def combine(self, a: Exact) -> Exact:
        """Return M(a) = sum_k a_k d_k z_k^T."""
        weighted = self.D.integers * a.integers[:, None]
        by_sample = np.zeros(self.samples.integers.shape, dtype=object)
        np.add.at(by_sample, self.sample, weighted)
        d = self.used.size
        M = np.zeros_like(by_sample, shape=(d, d))
        M[:, self.used] = by_sample.T @ self.samples.integers[:, self.used]
        return Exact(M, self.exponent + a.exponent)

    @cached_property
    def scales(self) -> list[float]:
        """The ||d_k|| ||z_k||, to a few units in the last place."""
        unit = Fraction(4) ** self.exponent
        return [float(root(square * unit)[0]) for square in self.squared_scale]
