"""Where the predictor-corrector method of every norm stops, and how far a step goes."""

from __future__ import annotations

STEPS = 60

PATIENCE = 4
"""Steps without a narrower bracket before an instance stops: rounding dominates."""

BOUNDARY = 0.98
"""Share of the way to the boundary of the cone."""

CENTRING = 0.1
"""Target, relative to the mean of the products, of a step without a test of the predictor."""

REFINE_BELOW = 1e-6
"""Nuclear norm: relative complementarity below which directions are refined."""

REFINEMENTS = 2

SMALL = 1e-7
"""l_p and Schatten p norms: entries or singular values that are smaller, relative to the largest,
count as this in the derivative."""

CLOSE = 1e-6
"""The same norms: relative distance of singular values that count as equal in the derivative."""
