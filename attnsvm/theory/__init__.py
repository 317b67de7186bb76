"""The assumptions of the papers, tested for each instance."""

from attnsvm.theory.assumptions import assumption_b1

__all__ = ["assumption_b1"]
