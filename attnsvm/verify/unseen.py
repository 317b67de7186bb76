"""The gradient of positions that the readout does not see, in fixed-point arithmetic.

A number is an integer times 2^-P. The gradient of a layer may be as small as e^-margin of all
layers above, and its parts cancel; so P is raised until the larger part of it has 96 bits.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from attnsvm.verify.exact import Array, Exact, Integers
from attnsvm.verify.network import Mask, Network

LENGTHS = (256, 1024, 4096)
"""The P that are tried, one after the other."""

DIGITS = 96
"""Bits of the larger part, of which rounding takes some."""


def unseen_shares(network: Network, seen: list[Mask]) -> list[Array] | None:
    """Return ||G'|| / (||G|| + ||G'||) of every layer, (H,): G' of the rows that are not `seen`.

    `seen` are the rows (n, T) of each layer. None if the head has no known gradient, if it or the
    tokens are known to an error only, or if the gradient is smaller than 2^-4000.
    """
    head = network.head
    if head is None or head.kind not in ("Linear", "Relu", "Quadratic"):
        return None
    if head.error or network.layers[0].error.any():
        return None
    for bits in LENGTHS:
        found = _Fixed(network, bits).shares(seen)
        if found is not None:
            return found
    return None


class _Fixed:
    """A network in integers times 2^-bits."""

    def __init__(self, network: Network, bits: int) -> None:
        self.network, self.shape, self.bits = network, network.shape, bits
        self.exp = np.frompyfunc(self._exp, 1, 1)
        beside, self.W = network.beside, self.fixed(network.W)
        self.V, self.M1, self.M2 = (
            None if part is None else self.fixed(part) for part in (beside.V, beside.M1, beside.M2)
        )
        self.half = self.root(2)

    # --- arithmetic -------------------------------------------------------------------------------

    def fixed(self, x: Any) -> Integers:
        """Return float64 numbers as integers."""
        exact = Exact.of(np.asarray(x, dtype=float))
        shift = exact.exponent + self.bits
        whole = exact.integers << shift if shift >= 0 else exact.integers >> -shift
        return np.asarray(whole, dtype=object)

    def root(self, k: int) -> int:
        """Return 1 / sqrt(k)."""
        return math.isqrt((1 << 2 * self.bits) // k)

    def times(self, a: Any, b: Any) -> Any:
        """Return the products of entries."""
        return (a * b) >> self.bits

    def matmul(self, a: Integers, b: Integers) -> Integers:
        """Return the product of matrices."""
        product: Integers = (a @ b) >> self.bits
        return product

    def quotient(self, a: Any, b: Any) -> Any:
        """Return a / b."""
        return (a << self.bits) // b

    def _exp(self, y: int) -> int:
        """Return e^-y of y >= 0: by its series at y / 2^k, squared k times."""
        k = max(0, y.bit_length() - self.bits) + 8
        spare = k + 16
        bits = self.bits + spare
        x = (y << spare) >> k
        total = term = 1 << bits
        i = 1
        while term := (term * x >> bits) // i:
            total += term if i % 2 == 0 else -term
            i += 1
        for _ in range(k):
            total = total * total >> bits
        return total >> spare

    # --- forward ----------------------------------------------------------------------------------

    def forward(self) -> tuple[list[tuple[Integers, list[Integers], Integers]], Integers]:
        """Return of each layer its rows, attention of each head and rows before the MLP."""
        X, layers = self.fixed(self.network.instance.X), []
        for at in range(self.shape.layers):
            attention = [self.attention(self.W[at, h], X) for h in range(self.shape.heads)]
            out = sum(self.moved(at, h, self.matmul(s, X)) for h, s in enumerate(attention))
            out = self.times(out, self.root(self.shape.heads))
            mixed = self.times(X + out, self.half) if self.shape.residual else out
            layers.append((X, attention, mixed))
            X = self.after_mlp(at, mixed)
        return layers, X

    def attention(self, W: Integers, X: Integers) -> Integers:
        """Return s, (n, T, T)."""
        logits = self.matmul(self.matmul(X, W.T), X.swapaxes(1, 2))
        allowed = self.network.allowed
        largest = np.where(allowed, logits, logits.min()).max(-1, keepdims=True)
        e = np.where(allowed, self.exp(np.where(allowed, largest - logits, 0)), 0)
        share: Integers = self.quotient(e, e.sum(-1, keepdims=True))
        return share

    def moved(self, at: int, h: int, rows: Integers) -> Integers:
        """Return V^T o of rows o."""
        return rows if self.V is None else self.matmul(rows, self.V[at, h])

    def after_mlp(self, at: int, Y: Integers) -> Integers:
        """Return the rows after the MLP."""
        if self.M1 is None or self.M2 is None:
            return Y
        hidden = np.maximum(self.matmul(Y, self.M1[at]), 0)
        rows: Integers = self.times(Y + self.matmul(hidden, self.M2[at]), self.half)
        return rows

    # --- backward ---------------------------------------------------------------------------------

    def of_readout(self, rows: Integers) -> Integers:
        """Return the adjoints of the rows after the last layer, up to a common factor."""
        readout, T = self.shape.readout, rows.shape[1]
        o = rows if readout == "every" else rows[:, :1]
        if readout == "mean":
            o = rows.sum(1, keepdims=True) // T
        value, gradient = self.of_head(o)
        Y = self.fixed(self.network.instance.Y).reshape(value.shape)
        weight = self.times(self.slope(self.times(Y, value)), Y)
        g = self.times(gradient, weight[..., None])
        if readout == "first":
            return np.concatenate([g, 0 * rows[:, 1:]], axis=1)
        return np.broadcast_to(g, rows.shape) if readout == "mean" else g

    def of_head(self, o: Integers) -> tuple[Integers, Integers]:
        """Return h and its gradient at o (n, k, d)."""
        head = self.network.head
        assert head is not None  # as checked in `unseen_shares`
        if head.kind == "Relu":
            V = self.fixed(self.network.instance.head["V"])
            hidden = self.matmul(o, V)
            return np.maximum(hidden, 0).sum(-1), np.where(hidden > 0, 1, 0).astype(object) @ V.T
        v, lam = self.fixed(self.network.instance.head["v"]), self.fixed(head.lam)
        square = self.times(lam, self.times(o, o).sum(-1))
        return self.matmul(o, v[:, None])[..., 0] - square, v - 2 * self.times(lam, o)

    def slope(self, u: Integers) -> Integers:
        """Return -l'(u) divided by the largest e^c of -l' = a e^c, as `Loss.slope` defines them."""
        head = self.network.head
        assert head is not None
        one = 1 << self.bits
        if head.loss == "LinearLoss":
            return np.full_like(u, one)
        if head.loss == "Squared":
            return np.asarray(2 * (self.fixed(head.target) - u))
        c = u if head.loss == "Exponential" else np.maximum(u, 0)
        e = self.exp(c - c.min())
        if head.loss == "Exponential":
            return np.asarray(e)
        return np.asarray(self.quotient(e, one + self.exp(np.abs(u))))

    def shares(self, seen: list[Mask]) -> list[Array] | None:
        """Return the shares of each layer, or None if these are too few bits."""
        layers, rows = self.forward()
        g, found = self.of_readout(rows), []
        for at in reversed(range(self.shape.layers)):
            X, attention, mixed = layers[at]
            g = self.before_mlp(at, mixed, g)
            if self.shape.residual:
                g = self.times(g, self.half)
            below = g if self.shape.residual else 0 * g
            parts = []
            for h, s in enumerate(attention):
                P, adjoint = self.through(at, h, X, s, self.times(g, self.root(self.shape.heads)))
                parts.append(self.share(P, X, seen[at]))
                below = below + adjoint
            if any(part is None for part in parts):
                return None
            found.append(np.array(parts, dtype=float))
            g = below
        return found[::-1]

    def before_mlp(self, at: int, Y: Integers, g: Integers) -> Integers:
        """Return the adjoints of the rows before the MLP."""
        if self.M1 is None or self.M2 is None:
            return g
        active = self.matmul(Y, self.M1[at]) > 0
        back = np.where(active, self.matmul(g, self.M2[at].T), 0)
        rows: Integers = self.times(g + self.matmul(back, self.M1[at].T), self.half)
        return rows

    def through(
        self, at: int, h: int, X: Integers, s: Integers, g: Integers
    ) -> tuple[Integers, Integers]:
        """Return dL/d(W x_k) of a head, and the adjoints of the rows through it."""
        r = g if self.V is None else self.matmul(g, self.V[at, h].T)
        scores = self.matmul(r, X.swapaxes(1, 2))
        mean = self.times(s, scores).sum(-1, keepdims=True)
        q, W = self.times(s, scores - mean), self.W[at, h]
        P = self.matmul(q, X)
        below = self.matmul(s.swapaxes(1, 2), r) + self.matmul(P, W)
        return P, below + self.matmul(q.swapaxes(1, 2), self.matmul(X, W.T))

    def share(self, P: Integers, X: Integers, seen: Mask) -> float | None:
        """Return ||G'|| / (||G|| + ||G'||); None where both have too few bits."""
        outer = P[..., None] * X[..., None, :]
        parts = [outer[rows].sum(0).ravel() for rows in (seen, ~seen)]
        largest = max(abs(value) for part in parts for value in part)
        if largest >> (self.bits + DIGITS) == 0:
            return None
        of_seen, of_others = (np.linalg.norm([value / largest for value in part]) for part in parts)
        return float(of_others / (of_seen + of_others))
