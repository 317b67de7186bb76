"""Convergence types of (K, Q) versus the number m of their columns, drawn as those versus d."""

from sweeps.figures.convergence_types import draw, tables

__all__ = ["QUESTION", "draw", "tables"]

QUESTION = "Does a low-rank (K, Q) with m < d columns still find the optimal tokens?"
