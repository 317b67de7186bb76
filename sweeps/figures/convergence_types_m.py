"""Convergence types of (K, Q) versus the number m of their columns."""

from sweeps.figures.convergence_types import draw, tables

__all__ = ["draw", "tables"]
