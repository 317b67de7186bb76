"""The attention SVMs: least norm under token-separation constraints.

- `problem`: rows d_k^T W z_k >= h_k or = h_k; `tokens`: those of Att-SVM and Gen-SVM;
  `reduction`: to units of its own and few dimensions, and back.
- `frobenius`: the least Frobenius norm; `interior_point`: all other norms;
  `rank_constrained`: rank(W) <= m; `equalities`: those of Gen-SVM; `reference`: the same problems
  through CVXPY, to compare with.
- `weighted`: right-hand sides other than one, also those that depend on norm(W).
- `least_norm`: rows of any matrices, also those of a problem of CVXPY.
- `certificate`, `ranks`: what is proved, from the problem alone; `tolerances`: all of them;
  `solution`: the types of the results; `solve`: what users call.
"""

from attnsvm.svm.least_norm import from_cvxpy, solve_least_norm
from attnsvm.svm.problem import SvmProblem
from attnsvm.svm.solution import Certificate, SvmSolution, SvmStatus
from attnsvm.svm.solve import solve, solve_gen_svm, solve_rank_constrained, solve_svm
from attnsvm.svm.tokens import attained, finite_part, multi_token, single_token
