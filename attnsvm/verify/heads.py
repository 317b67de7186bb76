"""The prediction heads and losses, in NumPy, each value with a bound of its rounding error."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnsvm.verify.exact import EPS, Array
from attnsvm.verify.instances import option

DRAWN_ELSEWHERE = 1e-5
"""Relative error of parameters that a processor with other vector instructions drew."""


class HeadAndLoss:
    """The head h of one config, with its loss.

    Parameters
    ----------
    config : mapping
        The recorded config.
    error : float
        Relative error of the parameters: DRAWN_ELSEWHERE, if they were drawn by a processor that
        rounds float32 differently.

    Raises
    ------
    UnknownError
        If head or loss is a plug-in.
    """

    def __init__(self, config: Mapping[str, Any], error: float = 0.0) -> None:
        self.kind, self.loss = option(config, "head"), option(config, "loss")
        self.lam = config["head"].get("lam", 0.0)
        self.target = config["loss"].get("target", 0.0)
        self.error = error

    def value(self, o: Array, error: Any, p: Mapping[str, Array]) -> tuple[Array, Array]:
        """Return h(o), (...), of points o (..., d) known to `error` (...), and its error bound.

        With a vector for every sample, the points are o (..., n, d).
        """
        if self.kind == "Mlp":
            return self._mlp(o, error, p)
        if self.kind == "Relu":
            projections, apart = self._projections(o, error, p["V"])
            return np.maximum(projections, 0).sum(-1), np.where(
                projections > -apart, apart, 0.0
            ).sum(-1)
        if self.kind == "Linear" and p["v"].ndim == 2:
            return self._by_sample(o, error, p["v"])
        value, apart = self._projections(o, error, p["v"][:, None])
        value, apart = value[..., 0], apart[..., 0]
        if self.kind == "Quadratic":
            size = np.linalg.norm(o, axis=-1)
            value = value - self.lam * size**2
            apart = apart + self.lam * size * (2 * error + self._rounding(o) * size)
        return value, apart + EPS * np.abs(value)

    def without_slope(self, o: Array, error: Any, p: Mapping[str, Array]) -> bool | None:
        """Return whether the gradient of h is zero at one of the points; None if not decided."""
        if self.kind == "Relu":
            projections, apart = self._projections(o, error, p["V"])
            if (projections <= -apart).all(-1).any():
                return True
            return None if (projections <= apart).all(-1).any() else False
        if self.kind == "Quadratic":
            size = np.linalg.norm(p["v"] - 2 * self.lam * o, axis=-1)
            least = 2 * self.lam * error + self._rounding(o)
            return None if (size <= least).any() else False
        return self.kind == "Linear" and bool((~p["v"].any(-1)).any())

    def gradient(self, o: Array, p: Mapping[str, Array]) -> Array | None:
        """Return the gradient of h at points o (..., d); None where it is not decided."""
        if self.error or self.kind == "Mlp":
            return None
        if self.kind == "Relu":
            projections, apart = self._projections(o, 0.0, p["V"])
            if (np.abs(projections) <= apart).any():
                return None
            return np.asarray((projections > 0) @ p["V"].T)
        return np.asarray(p["v"] - 2 * self.lam * o)

    def slope(self, u: Array) -> Array:
        """Return l'(u)."""
        if self.loss == "LinearLoss":
            return np.full_like(u, -1.0)
        if self.loss == "Squared":
            return np.asarray(2 * (u - self.target))
        return np.asarray(-np.exp(-u) if self.loss == "Exponential" else -1 / (1 + np.exp(u)))

    def risk(self, margins: Array, error: Array) -> tuple[Array, Array]:
        """Return the mean loss over the last axis, and its error bound."""
        if self.loss == "Squared":
            away = np.abs(margins - self.target)
            moved = error + EPS * (np.abs(margins) + abs(self.target))
            return np.square(away).mean(-1), ((2 * away + moved) * moved + 4 * EPS * away**2).mean(
                -1
            )
        if self.loss == "LinearLoss":
            return -margins.mean(-1), error.mean(-1) + EPS * np.abs(margins).sum(-1)
        if self.loss == "Exponential":
            value, slope = np.exp(-margins), np.exp(-margins)
        else:
            value, slope = np.logaddexp(0.0, -margins), 1 / (1 + np.exp(margins))
        apart = 2 * slope * error + 8 * EPS * (value + np.abs(margins) * slope)
        apart = np.where(np.isnan(apart), np.inf, apart)  # no slope times no bound
        return value.mean(-1), apart.mean(-1)

    def excess_slope(
        self, u: Array, u_error: Array, delta: Array, error: Array
    ) -> tuple[Array, Array, Array]:
        """Return a and c of (l(u - delta) - l(u)) / delta = a e^c, -l'(u) at 0, and a's error.

        The error of c is made part of that of a. Of log l' neither loss that is not linear or
        squared has a slope above 1.
        """
        zero = np.zeros_like(u - delta)
        if self.loss == "LinearLoss":
            return zero + 1, zero, zero
        if self.loss == "Squared":
            slope = delta - 2 * (u - self.target)
            size = np.abs(delta) + 2 * np.abs(u) + 2 * abs(self.target)
            return slope, zero, error + 2 * u_error + 4 * EPS * size
        above, by = np.maximum(u, u - delta), np.abs(delta)  # the same chord, from its upper end
        small = by < 1e-290
        by = np.where(small, 1.0, by)
        a = np.where(small, 1.0, -np.expm1(-by) / by)
        if self.loss == "Exponential":
            c = np.where(small, 0.0, by) - above
        else:  # log(1 + e^x) / delta, which is e^x / delta for small x
            c = np.where(small, 0.0, by) - np.logaddexp(0.0, above)
            x = np.log(a * by) + c
            large = ~small & (x > -40)
            a, c = np.where(large, np.logaddexp(0.0, x) / by, a), np.where(large, 0.0, c)
        moved = np.minimum(u_error + error, 700.0)
        return a, c, a * (np.expm1(moved) + 96 * EPS * (1 + np.abs(u) + np.abs(delta)))

    def _rounding(self, o: Array) -> float:
        """Return the relative error of an inner product with a parameter."""
        return float((2 * o.shape[-1] + 10) * EPS + self.error * o.shape[-1] ** 0.5)

    def _projections(self, o: Array, error: Any, V: Array) -> tuple[Array, Array]:
        """Return V^T o, (..., k), and its error bounds."""
        apart = self._rounding(o) * (np.abs(o) @ np.abs(V))
        if self.error:
            apart = apart + self._rounding(o) * np.linalg.norm(o, axis=-1, keepdims=True)
        moved = np.asarray(error)[..., None] * np.linalg.norm(V, axis=0)
        return o @ V, apart + moved

    def _by_sample(self, o: Array, error: Any, v: Array) -> tuple[Array, Array]:
        """Return v_i^T o_i, (..., n), of points o (..., n, d), and its error bounds."""
        size = np.linalg.norm(v, axis=-1)
        apart = self._rounding(o) * np.linalg.norm(o, axis=-1) * size
        return (o * v).sum(-1), apart + np.asarray(error) * size

    def _mlp(self, o: Array, error: Any, p: Mapping[str, Array]) -> tuple[Array, Array]:
        from scipy.special import erf  # its import is slow, and only this head needs it

        hidden, apart = self._projections(o, error, p["0.weight"].T)
        hidden = hidden + p["0.bias"]
        active = hidden * (1 + erf(hidden / np.sqrt(2))) / 2
        apart = 1.13 * (apart + self._rounding(o) * (np.abs(hidden) + np.abs(p["0.bias"])))
        w = p["2.weight"][0]
        value = active @ w + p["2.bias"][0]
        width = (2 * len(w) + 10) * EPS + self.error
        spread = np.abs(active) @ np.abs(w) + np.abs(p["2.bias"][0])
        return value, apart @ np.abs(w) + width * spread


def tied(values: Array, errors: Array) -> bool | None:
    """Return whether the maximum of some row (n, T) is taken twice; None if rounding decides.

    -inf is not a candidate. Equal values without any error are tied, values further apart than
    their errors are not.
    """
    best = values.max(-1, keepdims=True)
    at = values.argmax(-1)[..., None]
    allowed = errors + np.take_along_axis(errors, at, -1)
    near: NDArray[np.bool_] = (values >= best - allowed) & np.isfinite(values)
    exactly = near & (values == best) & (allowed == 0)
    if (exactly.sum(-1) > 1).any():
        return True
    return None if (near.sum(-1) > 1).any() else False
