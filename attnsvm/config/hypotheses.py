"""The hypotheses of the papers' theorems that a run decides on request: names and meanings."""

from __future__ import annotations

HYPOTHESES = {
    "unique_optimum": "every sample has one token of highest score",
    "assumption_b2": "Assumption B.2: all tokens of a sample but the best have the same score",
    "assumption_d": "Assumption D, Frobenius norm: every other feasible selection leaves out an "
    "optimal token that is its neighbour",
    "overparameterized": "d >= max(T - 1, n)",
    "optimum_feasible": "some W separates the optimal tokens",
    "order_preserving": "no mixture of a sample's tokens scores above its best token",
    "runner_up_local": "the optimal tokens, but in the first sample the second best, are locally "
    "optimal, Frobenius norm",
    "aligned_gradient": "-grad L at the initial weights separates the optimal tokens",
}
"""Column of `trials` -> what it says; missing where it is undecided."""
