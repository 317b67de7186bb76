"""The interior-point method of the nuclear norm, eight instances at a time."""

from attnsvm.svm.nuclear.compiled.arrays import Best, Iterate, Work
from attnsvm.svm.nuclear.compiled.loop import solve_group

__all__ = ["Best", "Iterate", "Work", "solve_group"]
