"""The floor of gradient descent: rounding noise once the softmax saturates."""

from sweeps.figures._curves import OverSteps

__all__ = ["QUESTION", "draw", "tables"]

QUESTION = (
    "Do the published curves flatten because theory says so, or because the gradient is rounding "
    "noise once the softmax is saturated?"
)
FIGURE = OverSteps(
    name="gradient_floor",
    quantities=("W_norm", "one_minus_corr_w_mm"),
    statistic="median",
    log_x=True,
    caption=(
        "Norm of W and median 1-correlation with W_mm over the steps: the gradient as published "
        "(direct) against the same update free of cancellation (log_domain), with a constant and "
        "with growing step sizes. Direct freezes: the norm and the direction stop where the "
        "softmax leaves the resolution of a 64-bit float."
    ),
)
tables, draw = FIGURE.tables, FIGURE.draw
