"""Training from a random start against the SVMs of the tokens it selects (section 5)."""

from ._curves import OverSteps

__all__ = ["draw", "tables"]

FIGURE = OverSteps(
    name="local_convergence",
    quantities=("max_softmax", "one_minus_corr_frobenius", "one_minus_corr_nuclear"),
    facet="parameterization",
    caption=(
        "Largest softmax probability and 1-correlation with the Frobenius and the nuclear norm "
        "SVM at the selected tokens, over the steps, for W and for (K, Q): the published update "
        "(direct gradient; W without ridge, (K, Q) with a ridge of 2.22e-16) and the same update "
        "in exact arithmetic without ridge."
    ),
)
tables, draw = FIGURE.tables, FIGURE.draw
