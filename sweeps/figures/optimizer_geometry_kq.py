"""Every optimizer of K and Q against every norm: in which one K Q^T has the largest margin."""

from .optimizer_geometry import OF_KQ

__all__ = ["draw", "tables"]

tables, draw = OF_KQ.tables, OF_KQ.draw
