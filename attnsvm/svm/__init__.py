"""The attention SVMs: least norm under token-separation constraints.

- `problem`: the rows d_k^T W z_k >= h_k or = h_k of Att-SVM and Gen-SVM; `scaling`: to unit size
  and back, exactly; `wide`: few vectors in many dimensions.
- `solver`: the interface of all methods; `frobenius`, `nuclear`, `entrywise` (max, l1, l_p),
  `schatten` (spectral, Schatten p): a folder for each kind of norm; `powers`: what l_p and Schatten
  p have in common; `oracle`: any norm through CVXPY; `from_frobenius`: what all but the first have
  in common; `laned`: eight problems at a time; `large`: 1000 rows or more, in every norm;
  `rank_constrained`: rank(W) <= m; `equalities`: those of Gen-SVM; `reference`: the same problems
  through CVXPY, to compare with.
- `certificate`: bracket, ray, rank bound, from the problem alone; `tolerances`: all of them;
  `solution`: the types of the results; `solve`: the functions that users call.
"""

from attnsvm.svm.problem import SvmProblem, attained, finite_part, multi_token, single_token
from attnsvm.svm.solution import Certificate, SvmSolution, SvmStatus
from attnsvm.svm.solve import solve, solve_gen_svm, solve_rank_constrained, solve_svm

__all__ = [
    "Certificate",
    "SvmProblem",
    "SvmSolution",
    "SvmStatus",
    "attained",
    "finite_part",
    "multi_token",
    "single_token",
    "solve",
    "solve_gen_svm",
    "solve_rank_constrained",
    "solve_svm",
]
