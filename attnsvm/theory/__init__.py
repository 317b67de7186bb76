"""The theory of the papers, tested for each instance: assumptions, and types of convergence."""

from attnsvm.theory.convergence import convergence_types, direction_change
from attnsvm.theory.hypotheses import (
    INSTANCE_HYPOTHESES,
    aligned_gradient,
    assumption_b1,
    assumption_b2,
    assumption_d,
    optimum_feasible,
    order_preserving,
    overparameterized,
    runner_up_local,
    unique_optimum,
)
from attnsvm.theory.joint import ratio_of_steps
from attnsvm.theory.local_optima import LocalOptima, local_optima
from attnsvm.theory.mixture import finite_part_distance, optimal_mixture
