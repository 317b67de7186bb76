"""Norms other than Frobenius, by the interior-point method of `attnsvm.norm.cone`.

`solver` starts it at the Frobenius solution, generates the constraints of many rows, and finishes
by `face` what rounding leaves open.
"""

from attnsvm.svm.interior_point.solver import LARGE, constraint_generation, decided, solve
