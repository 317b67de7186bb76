"""What follows from weights W: attention, tokens, risk, norms, correlations; with error bounds.

All functions take W with any leading axes (snapshots) and one instance. A logit x_t^T W z is known
to a few units of rounding of ||x_t|| ||W||_F ||z||, and what is made of it accordingly.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnsvm.verify.exact import EPS, Array
from attnsvm.verify.expected import Either, Expected, number, truth
from attnsvm.verify.heads import HeadAndLoss, tied
from attnsvm.verify.instances import Instance

Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class Attention:
    """Logits and log s (..., n, T), -inf at inadmissible tokens, with their error bounds."""

    logits: Array
    logit_error: Array
    log_softmax: Array
    error: Array

    @property
    def softmax(self) -> Array:
        """Return s."""
        return np.exp(self.log_softmax)

    def top(self) -> tuple[Array, Array]:
        """Return max_t s_it, (..., n), and its error bounds."""
        top = self.softmax.max(-1)
        return top, top * relative(self.error.max(-1))

    def selects(self, tokens: NDArray[np.int64]) -> Mask:
        """Return where a token (n,) may be one of largest attention, (..., n)."""
        at = tokens[:, None]
        chosen, apart = (
            np.take_along_axis(x, at, -1)[..., 0] for x in (self.log_softmax, self.error)
        )
        return np.asarray(chosen + apart + self.error.max(-1) >= self.log_softmax.max(-1))

    def tied(self) -> bool | None:
        """Return whether two tokens share the largest attention; None if rounding decides."""
        return tied(self.logits, self.logit_error)

    def attended(self, threshold: float) -> tuple[Mask, Mask]:
        """Return the tokens with s >= threshold for certain, and possibly, (..., n, T)."""
        s = self.softmax
        apart = s * relative(self.error)
        return s - apart >= threshold, s + apart >= threshold


def attention(instance: Instance, W: Array) -> Attention:
    """Return the attention of the instance with weights W (..., d, d)."""
    X, Z = instance.X, instance.Z
    queries = np.einsum("...de,ne->...nd", W, Z)
    logits = np.einsum("ntd,...nd->...nt", X, queries)
    size = np.linalg.norm(W, axis=(-2, -1))[..., None, None]
    reach = np.linalg.norm(X, axis=-1) * np.linalg.norm(Z, axis=-1)[:, None]
    return of_logits(logits, 8 * (X.shape[-1] + 5) * EPS * reach * size, instance.mask)


def of_logits(logits: Array, apart: Array, mask: Mask) -> Attention:
    """Return the attention of logits (..., n, T) with error bounds to the tokens in `mask`."""
    logits = np.where(mask, logits, -np.inf)
    shifted = logits - logits.max(-1, keepdims=True)
    log_softmax = shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))
    apart = np.where(mask, apart, 0.0)
    apart = np.where(apart > 0, apart + 4 * EPS, 0.0)
    rounding = EPS * (4 + logits.shape[-1] + np.where(mask, np.abs(log_softmax), 0.0))
    error = apart + apart.max(-1, keepdims=True) + rounding
    return Attention(logits, apart, log_softmax, error)


class Trained:
    """The numbers of `trials.parquet` and `history.parquet` that follow from weights."""

    def __init__(self, instance: Instance, head: HeadAndLoss | None, W: Array) -> None:
        self.instance, self.head, self.W = instance, head, W
        self.found = attention(instance, W)

    def output(self) -> tuple[Array, Array]:
        """Return o_i = X_i^T s_i, (..., n, d), and bounds of the length of its error, (..., n)."""
        s, X = self.found.softmax, self.instance.X
        lengths = np.linalg.norm(X, axis=-1)
        apart = (s * (relative(self.found.error) + X.shape[1] * EPS) * lengths).sum(-1)
        return np.einsum("...nt,ntd->...nd", s, X), apart

    def risk(self) -> tuple[Array, Array] | None:
        """Return the risk, (...), and its error bounds; None if the head is not known."""
        if self.head is None:
            return None
        f, apart = self.head.value(*self.output(), self.instance.head)
        return self.head.risk(self.instance.Y * f, apart)

    def max_softmax(self) -> tuple[Array, Array]:
        """Return the mean over the samples of the largest attention, and its error bounds."""
        top, apart = self.found.top()
        return top.mean(-1), apart.mean(-1) + EPS * top.shape[-1]

    def norm(self) -> tuple[Array, Array]:
        """Return ||W||_F and its error bounds."""
        size = np.linalg.norm(self.W, axis=(-2, -1))
        return size, 8 * self.W.shape[-1] * EPS * size

    def columns(self, selection: Mapping[str, Any], ties: bool | None) -> dict[str, Expected]:
        """Return what the columns of one trained W (d, d) may hold; `ties`: a tie of any kind."""
        top, apart = self.found.top()
        k = int(top.argmin())
        least = number(top[k], float(apart.max()))
        saturation = selection["saturation"]
        decided = not least.low < saturation <= least.high
        attended = self.found.attended(selection["attended"])
        columns: dict[str, Expected] = {
            "tie": truth(ties),
            "saturated": truth(top[k] >= saturation if decided else None),
            "min_top_softmax": least,
            "max_masked_softmax": Either(tuple(self._masked(part) for part in attended)),
            "attended_tokens": Either(
                tuple(number(part.sum(-1).mean(), 4 * EPS * part.shape[-1]) for part in attended)
            ),
            "W_norm": number(*map(float, self.norm())),
        }
        if (risk := self.risk()) is not None and self.head is not None:
            flat = self.head.without_slope(*self.output(), self.instance.head)
            columns |= {"risk": number(*map(float, risk)), "flat": truth(flat)}
        return columns

    def _masked(self, attended: Mask) -> Expected:
        """Return the largest attention of a token that is not attended."""
        s = np.where(attended, 0.0, self.found.softmax)
        return number(s.max(), float((s * relative(self.found.error)).max()))


def one_minus_correlation(W: Array, target: Array, slack: float = 0.0) -> tuple[Array, Array]:
    """Return 1 - <W, V> / (||W|| ||V||) and its error bounds; NaN where a matrix is zero or NaN.

    It is ||W / ||W|| - V / ||V||||^2 / 2, which does not cancel. `slack` is the relative error of
    the target's direction.
    """
    a, b = _unit(W), _unit(target)
    value = 0.5 * np.square(a - b).sum((-2, -1))
    apart = 16 * W.shape[-1] * EPS + slack
    return value, 1e-12 * value + 2 * apart * np.sqrt(value) + apart**2


def svmeq(W: Array, W_fin: Array, W_mm: Array) -> Array:
    """Return the W_fin + C W_mm, 0 <= C <= inf, of largest correlation with W (..., d, d)."""
    p, q = _shares(W, W_fin, W_mm)
    return np.asarray(p[..., None, None] * _scaled(W_fin) + q[..., None, None] * _scaled(W_mm))


def svmeq_factors(W: Array, W_fin: Array, W_mm: Array, error: float) -> tuple[float, float]:
    """Return the least and the largest C of that matrix if its angle is known up to `error`.

    The angle is that of (||W_fin||, C ||W_mm||); it is 90 degrees for C = inf.
    """
    if not all(np.isfinite(V).all() for V in (W, W_fin, W_mm)):
        return math.nan, math.nan
    p, q = _shares(W, W_fin, W_mm)
    angle = math.atan2(float(q), float(p))
    low, high = max(angle - error, 0.0), angle + error
    sizes = [float(np.linalg.norm(V)) for V in (W_fin, W_mm)]
    if not all(sizes):
        return (math.inf, math.inf) if sizes[1] else (0.0, 0.0)
    factor = sizes[0] / sizes[1]
    reached = high >= math.pi / 2
    return factor * math.tan(low), math.inf if reached else factor * math.tan(high)


def _shares(W: Array, W_fin: Array, W_mm: Array) -> tuple[Array, Array]:
    """Return the shares p, q >= 0 of the two parts, each scaled to unit length.

    A part that is zero is not considered.
    """
    parts = _scaled(W_fin), _scaled(W_mm)
    f, m = (float(np.square(V).sum()) for V in parts)
    c = float((parts[0] * parts[1]).sum())
    a, b = (np.einsum("...de,de->...", W, V) for V in parts)
    p, q = a * m - b * c, b * f - a * c
    inside = (p > 0) & (q >= 0)
    fin = ~inside & (f > 0) & ((m == 0) | (a > b))
    return np.where(inside, p, fin), np.where(inside, q, ~fin)


def _scaled(V: Array) -> Array:
    size = np.linalg.norm(V)
    return np.asarray(V / size) if size > 0 else V


def svmeq_least_squares(W: Array, W_fin: Array, W_mm: Array) -> Array:
    """Return W_fin + C W_mm with the C that minimises its distance to W (..., d, d)."""
    m = np.square(W_mm).sum()
    C = np.einsum("...de,de->...", W - W_fin, W_mm) / m if m > 0 else np.zeros(W.shape[:-2])
    return np.asarray(W_fin + C[..., None, None] * W_mm)


def _unit(V: Array) -> Array:
    largest = np.abs(V).max((-2, -1), keepdims=True)
    V = V / largest
    return np.asarray(V / np.linalg.norm(V, axis=(-2, -1), keepdims=True))


def relative(error: Array) -> Array:
    """Return the relative error of e^x where x has this error."""
    return np.asarray(np.expm1(np.minimum(error, 700.0)))
