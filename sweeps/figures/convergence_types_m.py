"""Convergence types of (K, Q) versus the number m of their columns."""

from .convergence_types import OVER_M

__all__ = ["draw", "tables"]

tables, draw = OVER_M.tables, OVER_M.draw
