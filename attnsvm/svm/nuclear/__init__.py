"""The least nuclear norm."""

from attnsvm.svm.nuclear.interior_point import InteriorPoint

__all__ = ["InteriorPoint"]
