"""Training from a random start against the SVMs of the tokens it selects (section 5)."""

from sweeps.figures._curves import OverSteps

__all__ = ["QUESTION", "draw", "tables"]

QUESTION = (
    "Does gradient descent from a random start converge in direction to the SVM solution of the "
    "tokens that it selects: W to W_mm, and (K, Q) to W_star_mm?"
)
FIGURE = OverSteps(
    name="local_convergence",
    quantities=("max_softmax", "one_minus_corr_w_mm", "one_minus_corr_w_star_mm"),
    facet="parameterization",
    caption=(
        "Largest softmax probability and 1-correlation with the Frobenius and the nuclear norm "
        "SVM at the selected tokens, over the steps, for W and for (K, Q): the published update "
        "(direct gradient, for W without ridge, for (K, Q) with one of 2.22e-16) beside the same "
        "update in exact arithmetic without ridge."
    ),
)
tables, draw = FIGURE.tables, FIGURE.draw
