"""Chords of the losses: their formulas for many digits, and ends far from each other and from 0."""

from __future__ import annotations

from mpmath import mp, mpf

EXACT = {
    "Logistic": lambda u: mp.log1p(mp.exp(-u)),
    "Exponential": lambda u: mp.exp(-u),
    "LinearLoss": lambda u: -u,
    "Squared": lambda u: (u - mpf(0.25)) ** 2,
}
"""l(u) by the name of the class, `Squared` with target 0.25."""

MARGINS = (-5000.0, -720.0, -501.0, -499.0, -301.0, -36.0, -0.5, 0.0, 0.5, 36.0, 50.0, 200.0, 299.0,
           299.5, 341.0, 499.0, 501.0, 539.0, 541.0, 720.0, 5000.0)  # fmt: skip

LENGTHS = (1e-300, 1e-280, 1e-250, 1e-100, 1e-16, 1e-9, 1e-5, 1.0, 30.0, 299.0, 301.0, 499.0, 501.0,
           720.0, 3000.0)  # fmt: skip

DIGITS = 700
"""Enough for chords of these lengths."""
