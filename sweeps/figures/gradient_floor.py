"""The accuracy limit of gradient descent: rounding noise after the softmax saturates."""

from ._curves import OverSteps

__all__ = ["draw", "tables"]

FIGURE = OverSteps(
    name="gradient_floor",
    quantities=("W_norm", "one_minus_corr_frobenius"),
    statistic="median",
    log_x=True,
    caption=(
        "Norm of W and median 1-correlation with W_mm over the steps: the gradient as published "
        "(direct) against the same update without cancellation (log_domain), with constant and "
        "with growing step sizes. Direct stops: the norm and the direction no longer change when "
        "the softmax is below the resolution of a 64-bit float."
    ),
)
tables, draw = FIGURE.tables, FIGURE.draw
