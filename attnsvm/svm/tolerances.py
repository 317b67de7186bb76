"""What counts as proved, and where the solvers stop; constants of one method are in its file.

All are relative: numbers without unit, to be compared with ratios that do not change with the units
of rows, right-hand sides or W. EPS is the relative precision of float64.
"""

from attnsvm.linalg import EPS

# --- what is proved ------------------------------------------------------------------------------

GAP = 1e-9
"""Default of the largest duality gap of a `solved` instance."""

MAX_GAP = 2e-2
"""Largest duality gap of a `solved` instance that is ill-conditioned."""

ROUNDING = 64 * EPS
"""ROUNDING * kappa is the duality gap that is accepted because of rounding errors."""

CLEAR = 16 * ROUNDING
"""A right-hand side is reached to the relative accuracy CLEAR ||d_k|| ||z_k|| ||W||_F / h_k."""

RANK_TOLERANCE = 1e-6
"""Default threshold of the numerical rank, relative to the largest singular value."""

RANKED_GAP = 1e-8
"""Largest duality gap of an instance whose rank is reported."""

NEAR = 1e-5
"""A singular value this near the threshold, but above a tenth of it, leaves a rank undecided."""

RAY_RATIO = 1e12
"""Least ratio (`certificate.check_ray`) of a ray that proves infeasibility."""

MAX_RESIDUAL = 1e-11
"""Largest residual of a satisfied equality, relative to ||d_k|| ||z_k|| ||W||_F."""

ACTIVE = 1e-6
"""Largest excess over one of a support token's margin, unless ROUNDING * kappa is larger."""

DEPENDENT = 32 * EPS
"""Unit rows count as dependent if a singular value is at most this times the largest."""

FAINT = 1e-153
"""Least norm of a matrix whose squared entries do not underflow, in canonical units."""

# --- when a solver stops -------------------------------------------------------------------------

CONVERGED_GAP = 5e-10
"""Gap at which the interior-point method for the nuclear norm stops: half of GAP."""

CONVERGED_GAP_LARGE = 3e-10
"""The same for constraint generation; rows outside the working set widen the gap further."""

TIGHT = 1e-12
"""Largest duality gap, by its own estimate, of a method on Gram matrices."""

MAX_GRAM_NORM = 1e2
"""Largest ||W||, for unit rows, at which a Gram matrix keeps enough digits."""

VIOLATED = 1e-11
"""A row with slack below -VIOLATED * ||W|| counts as violated in constraint generation."""

LIFT = 1e-10
"""Largest share of ||W|| that is added so that margins hold beyond rounding errors."""

ROUND_DECREASE = 1e-8
"""Least relative decrease of ||K||_F^2 + ||Q||_F^2 in a round of alternating minimisation."""
