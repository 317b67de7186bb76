"""The least Frobenius norm."""

from attnsvm.svm.frobenius.least_distance import least_norm

__all__ = ["least_norm"]
