"""The attention SVMs with many rows, or in many dimensions: constraint generation in every norm."""

from attnsvm.svm.large.generation import LARGE, ConstraintGeneration

__all__ = ["LARGE", "ConstraintGeneration"]
