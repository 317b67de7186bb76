"""Norms other than Frobenius: one predictor-corrector method, and a file for the cone of each.

`loop` has the method; `nuclear`, `spectral`, `linear` (max, l1) and `power` (l_p, Schatten p) the
cones; `rows` the rows of one instance and their algebra, `kernels` what the compiled methods
for eight instances at a time share; `solver` chooses, generates the constraints of many rows, and
finishes by `face` what rounding leaves open.
"""

from attnsvm.svm.interior_point.solver import LARGE, constraint_generation, solve
