"""A stored SVM, and its rows in exact arithmetic: d_k^T W z_k >= h_k or = h_k.

Token differences, margins d_k^T W z_k and M(a) = sum_k a_k d_k z_k^T are computed exactly.
"""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from attnsvm.verify.exact import (
    EPS,
    Array,
    Exact,
    Integers,
    RejectedError,
    require,
    root,
    spread,
    sum_of_squares,
    unit_rows,
    upper_bound,
)

Rows = NDArray[np.bool_]

DEPENDENT = 32 * EPS  # largest relative singular value at which unit equality rows are dependent
EQUALITY = 1.1e-11  # residual of an equality, relative to ||d_k|| ||z_k|| ||W||_F
CLEAR = 16 * 64 * EPS  # relative error of a margin, as a share of ||d_k|| ||z_k|| ||W||_F / h_k
HELD = 10  # rounds in which rows are held
STORED = (
    *("W", "multipliers", "ray", "status"),
    *("objective", "lower_bound", "duality_gap", "min_margin", "rank"),
)
"""Fields of a solution that are stored under its name."""

RANK_TOLERANCE = 1e-6  # default threshold of the rank, relative to the largest singular value

PART = re.compile("_(fin|law|law_predicted|relaxed)$")
"""What follows the norm in the name of an SVM."""


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
    mask: Rows
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
    max_rank: int | None = None
    attended: Rows | None = None
    log_softmax: Array | None = None
    margins: Array | None = None
    offsets: Array | None = None
    ratio: float = 0.0

    @classmethod
    def all_of(cls, at: Mapping[str, Any], config: Mapping[str, Any]) -> dict[str, Self]:
        """Return the SVMs among the arrays `at` of one instance of a run, by name."""
        names = [array.removesuffix("_ray") for array in at if array.endswith("_ray")]
        return {name: cls._named(name, at, config) for name in names}

    @classmethod
    def _named(cls, name: str, at: Mapping[str, Any], config: Mapping[str, Any]) -> Self:
        stored = {field: at[f"{name}_{field}"] for field in STORED}
        fields = {field: value if value.ndim else value.item() for field, value in stored.items()}
        fields |= {field: at[field] for field in ("X", "Z", "selected")}
        fields["mask"], fields["norm"] = at.get("distinct", at["mask"]), PART.sub("", name)
        if name in ("one_token", "classifier"):
            fields["norm"] = "frobenius"
        if name == "classifier":
            fields |= of_head(at)
        elif f"{name}_ratio" in at:
            fields["mask"] = at.get("reached", at["mask"])
            fields |= {"offsets": at[f"{name}_offsets"], "ratio": float(at[f"{name}_ratio"])}
        elif "attended" in at and name != "one_token":
            fields |= {"attended": at["attended"], "selected": at["attended"].argmax(-1)}
            fields["log_softmax"] = at["log_softmax"] if name.endswith("_fin") else None
        elif name == "nuclear":
            fields["max_rank"] = config["parameterization"].get("m")
        options = {field: config["svm"][field] for field in ("gap", "rank_tolerance")}
        return cls(**fields, **options)


def of_head(at: Mapping[str, Any]) -> dict[str, Any]:
    """Return the tokens Y_i x_{i,alpha_i} and 0, and the query e_1, of a classifier v = W e_1."""
    n, _, d = at["X"].shape
    chosen = at["Y"][:, None] * at["X"][np.arange(n), at["selected"]]
    X, Z = np.stack([chosen, 0 * chosen], 1), np.eye(1, d).repeat(n, axis=0)
    return {"X": X, "Z": Z, "mask": np.ones((n, 2), bool), "selected": 0 * at["selected"]}


class Upper(NamedTuple):
    """What W proves: an upper bound of the least norm, up to a relative error.

    `bound` is that of a W whose margins are h_k, as is stated, and `proved` that of the margins
    that it has. `least` is their least ratio, infinite without any, `kappa` the condition number,
    and `held` is whether rows are held.
    """

    bound: Fraction
    proved: Fraction
    error: float
    least: Fraction | float
    kappa: float
    held: bool


class ExactRows:
    """The exact rows d_k, z_k, h_k of a stored SVM: inequalities, equalities, padding.

    Of the weighted SVM, an inequality is d_k^T W z_k >= max(0, h_k - relief_k norm(W)).
    """

    def __init__(self, stored: StoredSvm) -> None:
        self.stored, selected = stored, stored.selected
        X, self.samples = Exact.of(stored.X), Exact.of(stored.Z)
        self.used = (self.samples.integers != 0).any(axis=0)  # dimensions that some query has
        n, T = stored.mask.shape
        require(bool(stored.mask[np.arange(n), selected].all()), "selected: masked token")
        self.sample, other = np.divmod(np.arange(n * max(T - 1, 1)), max(T - 1, 1))
        chosen = selected[self.sample]
        self.token = token = np.minimum(other + (other >= chosen), T - 1)
        attended = np.eye(T, dtype=bool)[selected] if stored.attended is None else stored.attended
        first = bool((attended.argmax(axis=1) == selected).all())
        require(first, "selected: not the first attended token")
        self.present = stored.mask[self.sample, token] & (token != chosen)
        self.equality = self.present & attended[self.sample, token]
        self.inequality = self.present & ~self.equality
        self.h = self.inequality.astype(float)
        if (logs := stored.log_softmax) is not None:
            self.inequality = np.zeros_like(self.equality)
            ratio = logs[self.sample, chosen] - logs[self.sample, token]
            self.h = np.where(self.equality, ratio, 0.0)
        if stored.margins is not None:
            require(bool((stored.margins >= 0).all()), "margins: a number is not >= 0")
            self.h = np.where(self.inequality, stored.margins, 0.0)
        self.relief: Integers = np.full(self.h.shape, Fraction(0))
        if stored.offsets is not None and self.inequality.any():
            self._weighted(stored.offsets, float(stored.ratio))
        self.present = self.inequality | self.equality
        self.trivial = not self.h.any()
        difference = X.integers[self.sample, chosen] - X.integers[self.sample, token]
        self.D = Exact(difference, X.exponent)
        length = [sum_of_squares(z) for z in self.samples.integers]
        self.squared_scale = [
            sum_of_squares(d) * length[i] for d, i in zip(difference, self.sample, strict=True)
        ]
        self.exponent = X.exponent + self.samples.exponent
        unit = Fraction(4) ** self.exponent
        self.scales = np.array([float(root(square * unit)[0]) for square in self.squared_scale])

    def _weighted(self, offsets: Array, ratio: float) -> None:
        """Set the relief r (gamma_i - min gamma), the least over samples that have a row, exactly.

        In the limit r = inf it is replaced by h_k = 0.
        """
        require(ratio >= 0, "ratio: a number is not >= 0")
        gamma = np.array([Fraction(x) for x in offsets.tolist()], dtype=object)[self.sample]
        above = (gamma - gamma[self.inequality].min()) * self.inequality
        if math.isinf(ratio):
            self.h = np.where(above > 0, 0.0, self.h)
        else:
            self.relief = above * Fraction(ratio)

    @cached_property
    def W(self) -> Exact:
        """The stored W."""
        return Exact.of(self.stored.W)

    @cached_property
    def margins(self) -> list[Fraction]:
        """The margins d_k^T W z_k of the stored W."""
        moved = self.samples.integers[:, self.used] @ self.W.integers[:, self.used].T
        margins = (self.D.integers * moved[self.sample]).sum(axis=1)
        unit = Fraction(2) ** (self.exponent + self.W.exponent)
        return [int(margin) * unit for margin in margins]

    @cached_property
    def missed(self) -> list[Fraction]:
        """h_k minus the margin of the stored W."""
        return [Fraction(h) - m for h, m in zip(self.h.tolist(), self.margins, strict=True)]

    @cached_property
    def length(self) -> float:
        """||W||_F."""
        return float(root(self.W.squared_norm)[1])

    @cached_property
    def reach(self) -> Array:
        """||d_k|| ||z_k|| ||W||_F / h_k, infinite where h_k = 0."""
        with np.errstate(divide="ignore", invalid="ignore"):
            ratios = self.scales * self.length / np.abs(self.h)
        return np.asarray(np.where(self.h != 0, ratios, np.inf))

    def scaling(self) -> list[Rows]:
        """Return which inequalities may scale W: those with h_k > 0, or without the faint ones.

        Of faint ones h_k is so small beside ||d_k|| ||z_k|| ||W||_F that rounding may miss them.
        None scales W where an equality has h_k != 0.
        """
        rows = self.inequality & (self.h > 0) & ~self.h[self.equality].any()
        faint = rows & (self.stored.gap < CLEAR * self.reach)
        return [rows, rows & ~faint] if faint.any() and not any(self.relief) else [rows]

    def upper(self, scaling: Rows) -> Upper:
        """Return what W proves if these rows scale it; the other rows may be missed by rounding.

        These are held: the bound is that of the nearest W' at which they are equalities, whose
        margins in the rows that scale are less than those of W by ||d_k|| ||z_k|| ||W' - W||_F at
        most. kappa is that of `attnsvm.svm.certificate`, which does not depend on units: the
        largest reach of rows that scale W, else the least one, over the least singular value of the
        rows that are held.
        """
        size, error = upper_bound(self.W, self.stored.norm)
        index = np.flatnonzero(scaling).tolist()
        require(all(self.margins[k] >= 0 for k in index), "a margin is negative")
        ratios = [(self.margins[k] + self.relief[k] * size) / Fraction(self.h[k]) for k in index]
        least = min(ratios, default=math.inf)
        distance, condition, held = self._repair(self.inequality & ~scaling)
        nearest = max(1.0, self.reach[self.present].min(initial=np.inf))
        kappa = self.reach[scaling].max(initial=1.0 if scaling.any() else nearest) * condition
        if self.h[self.equality].any():
            a = Exact.of(self.stored.multipliers)
            combined = float(root(self.combine(a).squared_norm)[1])
            kappa = max(kappa, float(np.abs(self.stored.multipliers) @ self.scales) / combined)
        lost = Fraction(float((self.scales / np.where(scaling, self.h, np.inf)).max()) * distance)
        require(lost < min(least, 1), "rows are missed by more than the margins allow")
        size += Fraction(spread(self.stored.norm, len(self.stored.W)) * distance)
        proved = size / (Fraction(min(least, 1)) - lost)
        return Upper(size / (1 - lost), proved, error, least, float(kappa), held)

    def _repair(self, limits: Rows) -> tuple[float, float, bool]:
        """Return what `_distance` does of the rows that are held, and whether there are any.

        Held are equalities, and the limits that are not met by more than rounding or the distance.
        """
        held, near = self.equality, self.equality | limits
        missed = np.array([float(miss) for miss in self.missed])
        residual = np.where(self.equality, abs(missed), missed)
        allowed = EQUALITY * self.scales * self.length
        require(bool((residual <= allowed)[near].all()), "a row is violated")
        lost = (2 * self.used.size + 20) * EPS * self.scales * self.length  # by rounding
        for _ in range(HELD):
            held = held | (limits & (-missed <= lost))
            distance, condition = self._distance(held)
            lost = self.scales * distance
            if not (limits & ~held & (-missed <= lost)).any():
                return distance, condition, bool(near.any())
        raise RejectedError("rows that are met up to rounding depend on each other")

    def _distance(self, held: Rows) -> tuple[float, float]:
        """Return the distance of W to where `held` rows are equalities, 1 / their singular value.

        Computed in the singular vectors of the unit rows; a direction of singular value zero must
        be consistent up to rounding. Without rows they are zero and one.
        """
        index = np.flatnonzero(held)
        if not index.size:
            return 0.0, 1.0
        missed = np.array(
            [float(self.missed[k] / Fraction(self.scales[k] or 1.0)) for k in index.tolist()]
        )
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

    def needed(self, size: float) -> Rows:
        """Return the rows of which a W of this norm leaves h_k > 0, and all other with h_k != 0."""
        left = [not r or h > r * size for h, r in zip(self.h, self.relief, strict=True)]
        return np.array(left) & (self.h != 0)

    def value(self, a: Exact, size: float) -> tuple[Fraction, Fraction]:
        """Return h^T a and relief^T a over the rows that are needed at norm(W) = size."""
        needed, unit = self.needed(size), Fraction(2) ** a.exponent
        h = Exact.of(np.where(needed, self.h, 0.0))
        value = Fraction(int(h.integers @ a.integers)) * Fraction(2) ** h.exponent
        return value * unit, Fraction((self.relief * a.integers)[needed].sum()) * unit

    def combine(self, a: Exact) -> Exact:
        """Return M(a) = sum_k a_k d_k z_k^T."""
        weighted = self.D.integers * a.integers[:, None]
        by_sample = np.zeros(self.samples.integers.shape, dtype=object)
        np.add.at(by_sample, self.sample, weighted)
        d = self.used.size
        M = np.zeros_like(by_sample, shape=(d, d))
        M[:, self.used] = by_sample.T @ self.samples.integers[:, self.used]
        return Exact(M, self.exponent + a.exponent)
