"""The attention SVM in the entry-wise norms: max and l1 (linear programs), and l_p."""

from attnsvm.svm.entrywise.linear_program import LinearProgram
from attnsvm.svm.entrywise.power import Power

__all__ = ["LinearProgram", "Power"]
