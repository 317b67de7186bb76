"""The least Frobenius norm."""

from attnsvm.svm.frobenius.least_distance import LeastDistance

__all__ = ["LeastDistance"]
