"""The numbers of one layer that follow from its W and its SVMs, by arithmetic of their own.

Nothing here imports torch or the library: correlations, margin gaps and ranks of a record are
compared with these as well as with those that the library computes again.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from attnsvm.verify.constraints import ExactRows, StoredSvm
from attnsvm.verify.exact import EPS, Array, Exact, computed, upper_bound
from attnsvm.verify.svm import clear_rank, verify

TABLED = {"objective": "objective", "lower_bound": "lower_bound", "gap": "duality_gap",
          "min_margin": "min_margin"}  # fmt: skip
"""Column of `trials.parquet`, without its norm -> number of `solutions.npz`."""

KAPPA = 1e-6
"""Relative error of kappa where equality rows are nearly dependent."""

SPAN = 1e-9
"""Relative error of the direction W_fin + C W_mm."""


@dataclass(frozen=True)
class Expected:
    """What a stated value may be: of the type of `low`, from `low` to `high`, or missing."""

    low: Any
    high: Any
    missing: bool = False

    def allows(self, stated: Any) -> bool:
        """Whether `stated` is in the interval; or missing, None or NaN, where that is allowed."""
        if stated is None or stated != stated:
            return self.missing or self.low != self.low
        return type(stated) is type(self.low) and bool(self.low <= stated <= self.high)

    def __str__(self) -> str:
        one = self.low == self.high or self.low != self.low
        if isinstance(self.low, float):
            return f"{self.low if one else (self.low + self.high) / 2:.17g}"
        return f"{self.low}{'' if one else f' to {self.high}'}"


MISSING = Expected(None, None, True)


def number(value: float, error: float = 0.0) -> Expected:
    """Return the numbers within `error` of `value`; an infinite value allows itself only.

    With an infinite error rounding decides even whether the number is defined.
    """
    value, error = float(value), 0.0 if math.isinf(value) else float(error)
    return Expected(value - error, value + error, math.isinf(error))


@dataclass
class LayerProof:
    """What follows from the config and the arrays of an instance, or of one layer and head."""

    config: Mapping[str, Any]
    at: Mapping[str, Any]

    def __post_init__(self) -> None:
        self.tokens = self.config["selection"]["tokens"]
        self.sets = self.tokens in ("multi", "scc")
        self.svms = StoredSvm.all_of(self.at, self.config["svm"])
        self.proofs = {name: verify(svm) for name, svm in self.svms.items()}

    def refusals(self) -> Iterator[tuple[str, str]]:
        """Yield the SVMs that are not proved, and the factors whose product is not W."""
        for name, proof in self.proofs.items():
            if not proof.proved:
                yield name, f"{self.svms[name].status}: {proof.reason}"
        m = self.config["parameterization"].get("m")
        nuclear = self.svms.get("nuclear")
        if not self.sets and m is not None and nuclear is not None and _beyond(nuclear, m):
            yield "nuclear", f"its rank is more than m = {m}"
        if "trained_K" in self.at:
            K, Q, W = (self.at[f"trained_{name}"] for name in "KQW")
            apart = 8 * (K.shape[1] + 2) * EPS * np.linalg.norm(K) * np.linalg.norm(Q)
            same = K.shape == Q.shape and bool((np.abs(W - K @ Q.T) <= apart).all())
            if not same and np.isfinite(W).all():
                yield "trained_K", "K Q^T is not the trained W"

    def support(self, name: str) -> tuple[Any, Any]:
        """Return the support tokens of an SVM, (n, T), for certain and possibly; none without W."""
        rows = self.proofs[name].rows
        if self.proofs[name].proved and rows is not None and np.isfinite(self.svms[name].W).all():
            return rows.support()
        none = np.zeros(self.svms[name].mask.shape, dtype=bool)
        return none, none

    def columns(self) -> dict[str, Expected]:
        """Return what the columns that are proved here may hold."""
        columns: dict[str, Expected] = {}
        for norm in self.config["svm"]["norms"]:
            svm, proof = self.svms[norm], self.proofs[norm]
            columns[f"{norm}_status"] = Expected(svm.status, svm.status)
            for column, name in TABLED.items():
                columns[f"{norm}_{column}"] = number(getattr(svm, name))
            found = svm_columns(svm, proof.rows) if proof.proved and proof.rows else {}
            columns |= {f"{norm}_{name}": value for name, value in found.items()}
        if self.tokens == "optimal":
            return columns
        W, pairs = self.at["trained_W"], {}
        for norm in self.config["svm"]["norms"]:
            mm = self.svms[norm].W
            pairs[f"one_minus_corr_{norm}"] = one_minus_correlation(W, mm)
            if not self.sets:
                pairs[f"{norm}_margin_gap"] = self._margin_gap(norm, W)
                continue
            fin = self.svms[f"{norm}_fin"].W
            if self.tokens == "multi":
                one = self.proofs["one_token"].rows
                pairs[f"{norm}_margin_gap"] = attained_gap(self.at, norm, one)
            columns[f"svmeq_C_{norm}"] = Expected(*svmeq_factors(W, fin, mm, SPAN))
            name = "" if norm == "frobenius" else f"_{norm}"
            best = svmeq(W, fin, mm)
            pairs[f"one_minus_corr_svmeq{name}"] = one_minus_correlation(W, best, SPAN)
            if norm == "frobenius":
                best = svmeq_least_squares(W, fin, mm)
                pairs["one_minus_corr_svmeq_lsq"] = one_minus_correlation(W, best, SPAN)
        if self.tokens == "multi":
            pairs["one_minus_corr_1token"] = one_minus_correlation(W, self.svms["one_token"].W)
        return columns | {name: number(*pair) for name, pair in pairs.items()}

    def _margin_gap(self, norm: str, W: Array) -> tuple[float, float]:
        """Return 1 - ||W_mm|| min_k d_k^T W z_k / ||W|| and its error bound."""
        svm, rows = self.svms[norm], self.proofs[norm].rows
        if svm.status != "solved" or rows is None or not (np.isfinite(W).all() and W.any()):
            return math.nan, 0.0
        W = W / max(float(np.abs(W).max()), np.finfo(float).tiny)  # its scale does not matter
        margins, length = rows.margins_of(Exact.of(W)), float(np.linalg.norm(W))
        index = np.flatnonzero(rows.inequality)
        least = min((float(margins[k]) for k in index), default=math.inf)
        apart = max((rows.rounding(int(k), length) for k in index), default=0.0)
        ratio = svm.objective / computed(W, norm)
        error = ratio * (apart + 64 * len(W) * EPS * abs(least)) + 4 * EPS
        return 1 - ratio * least, error


def svm_columns(stored: StoredSvm, rows: ExactRows) -> dict[str, Expected]:
    """Return what kappa, rank, rank_bound and support of a proved SVM may be."""
    if not math.isfinite(stored.objective):
        missing = dict.fromkeys(("rank", "rank_bound", "support"), MISSING)
        return {"kappa": number(math.inf), **missing}
    least, most = (int(tokens.sum()) for tokens in rows.support())
    bound = _rank_bound(stored, rows)
    return {
        "kappa": number(rows.kappa, KAPPA * rows.kappa),
        "rank": _rank(stored, bound),
        "rank_bound": bound,
        "support": Expected(least, most),
    }


def _rank(stored: StoredSvm, bound: Expected) -> Expected:
    """Return the numerical rank, see `SvmSolution.rank`; near the threshold `verify` proves it."""
    rank = clear_rank(stored, 1)
    if stored.duality_gap > 1e-8 or rank < 0:
        return MISSING if stored.rank < 0 else Expected(stored.rank, stored.rank)
    if stored.norm != "nuclear" or bound.high is None:
        return Expected(rank, rank)
    sigma = np.linalg.svd(stored.W, compute_uv=False)
    less, more = ((sigma > cut * EPS * sigma[0]).sum() for cut in (128, 32))
    if min(bound.low, less) > rank and not bound.missing:
        return MISSING
    return Expected(rank, rank, min(bound.high, more) > rank)


def _rank_bound(stored: StoredSvm, rows: ExactRows) -> Expected:
    """Return the bound of the numerical rank, see `SvmSolution.rank_bound`."""
    n, d = stored.Z.shape
    if rows.trivial:
        return Expected(0, 0)
    if stored.norm == "frobenius":
        return Expected(min(n, d), min(n, d))
    if stored.norm != "nuclear":
        return MISSING
    taken = rows.required(stored.lower_bound) - rows.required(stored.objective)
    spread = max(stored.objective - stored.lower_bound + float(stored.multipliers @ taken), 0.0)
    spread += (2 * d + 10) * EPS * rows.kappa * stored.objective
    slack = spread / (stored.rank_tolerance * np.linalg.norm(stored.W, 2))
    M = rows.combine(Exact.of(stored.multipliers)).floats()
    sizes = np.linalg.svd(M, compute_uv=False)
    error = 1e-8 * slack + 64 * d * EPS
    least, most = (int((sizes >= 1 - slack + sign * error).sum()) for sign in (1, -1))
    return Expected(least, most, slack >= 1 - error) if slack < 1 + error else MISSING


def attained_gap(at: Mapping[str, Any], norm: str, rows: ExactRows | None) -> tuple[float, float]:
    """Return 1 - C h^T a / (dual_norm(M(a)) norm(W)) and its error bound; NaN without multipliers.

    It is the margin gap of Gen-SVM: how far the norm of W is above the least one with its softmax.
    With `rows` d_k, z_k of the most attended tokens alpha_i against the others, the trained W has
    margins d_k^T W z_k = C h_k at attended tokens and >= C h_k, h_k = 1, at the others, so that
    norm(W) is at least C h^T a / dual_norm(M(a)) for every a, a_k >= 0 at the others.
    """
    a, W = at[f"{norm}_attained_multipliers"], at["trained_W"]
    if rows is None or not (np.isfinite(a).all() and a.any()):
        return math.nan, 0.0
    log_s, present = at["log_softmax"], rows.present
    attended = at["attended"][rows.sample, rows.token]
    outside = present & ~attended
    if not outside.any() or (a[outside] < 0).any() or a[~present].any():
        return math.nan, 0.0
    first = log_s[rows.sample, at["selected"][rows.sample]]
    ratio = np.where(present, first - log_s[rows.sample, rows.token], 0.0)
    terms = a * np.where(outside, ratio[outside].min(), ratio)
    size = float(upper_bound(rows.combine(Exact.of(a)), norm, dual=True)[0])
    if not size * computed(W, norm) > 0:
        return math.nan, 0.0
    bound = float(terms.sum()) / (size * computed(W, norm))
    reach = sum(abs(a[k]) * rows.scales[k] for k in np.flatnonzero(a))
    lost = reach / size + np.abs(terms).sum() / max(abs(float(terms.sum())), 1e-300)
    return 1 - bound, 64 * (len(W) + log_s.shape[1]) * EPS * (abs(bound) * lost + 1)


def _beyond(svm: StoredSvm, m: int) -> bool:
    """Return whether the numerical rank of W is above m."""
    if not np.isfinite(svm.W).all():
        return False
    sigma = np.linalg.svd(svm.W, compute_uv=False)
    return bool((sigma[m:] > svm.rank_tolerance * sigma[0] * (1 + 1e-12)).any())


# --- directions ----------------------------------------------------------------------------------


def one_minus_correlation(W: Array, target: Array, slack: float = 0.0) -> tuple[float, float]:
    """Return 1 - <W, V> / (||W|| ||V||) and its error bound; NaN where a matrix is zero or NaN.

    It is ||W / ||W|| - V / ||V||||^2 / 2, which does not cancel. `slack` is the relative error of
    the target's direction.
    """
    value = 0.5 * float(np.square(_unit(W) - _unit(target)).sum())
    apart = 16 * len(W) * EPS + slack
    return value, 1e-12 * value + 2 * apart * math.sqrt(value) + apart**2


def svmeq(W: Array, W_fin: Array, W_mm: Array) -> Array:
    """Return the W_fin + C W_mm, 0 <= C <= inf, of largest correlation with W (d, d)."""
    p, q = _shares(W, W_fin, W_mm)
    return np.asarray(p * _scaled(W_fin) + q * _scaled(W_mm))


def svmeq_factors(W: Array, W_fin: Array, W_mm: Array, error: float) -> tuple[float, float]:
    """Return the least and the largest C of that matrix if its angle is known up to `error`.

    The angle is that of (||W_fin||, C ||W_mm||); it is 90 degrees for C = inf.
    """
    if not all(np.isfinite(V).all() for V in (W, W_fin, W_mm)):
        return math.nan, math.nan
    p, q = _shares(W, W_fin, W_mm)
    angle = math.atan2(q, p)
    low, high = max(angle - error, 0.0), angle + error
    sizes = [float(np.linalg.norm(V)) for V in (W_fin, W_mm)]
    if not all(sizes):
        return (0.0, 0.0) if sizes[0] else (math.inf, math.inf)
    factor = sizes[0] / sizes[1]
    reached = high >= math.pi / 2
    return factor * math.tan(low), math.inf if reached else factor * math.tan(high)


def _shares(W: Array, W_fin: Array, W_mm: Array) -> tuple[float, float]:
    """Return the shares p, q >= 0 of the two parts, each scaled to unit length.

    A part that is zero is not considered.
    """
    parts = _scaled(W_fin), _scaled(W_mm)
    f, m = (float(np.square(V).sum()) for V in parts)
    c = float((parts[0] * parts[1]).sum())
    a, b = (float((W * V).sum()) for V in parts)
    p, q = a * m - b * c, b * f - a * c
    if p > 0 and q >= 0:
        return p, q
    fin = f > 0 and (m == 0 or a > b)
    return float(fin), float(not fin)


def _scaled(V: Array) -> Array:
    size = np.linalg.norm(V)
    return np.asarray(V / size) if size > 0 else V


def svmeq_least_squares(W: Array, W_fin: Array, W_mm: Array) -> Array:
    """Return W_fin + C W_mm with the C that minimises its distance to W (d, d)."""
    m = float(np.square(W_mm).sum())
    C = float(((W - W_fin) * W_mm).sum()) / m if m > 0 else 0.0
    return np.asarray(W_fin + C * W_mm)


def _unit(V: Array) -> Array:
    V = V / np.abs(V).max()
    return np.asarray(V / np.linalg.norm(V))
