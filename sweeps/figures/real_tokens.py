"""Tokens that are not random: patches of handwritten digits, or any file of instances."""

from sweeps.figures._curves import OverSteps

__all__ = ["QUESTION", "draw", "tables"]

QUESTION = (
    "Does the theory hold on tokens that are not random? Image patches of handwritten digits, or "
    "the arrays of any .npz file?"
)
FIGURE = OverSteps(
    name="real_tokens",
    quantities=("max_softmax", "one_minus_corr_w_mm", "one_minus_corr_w_star_mm"),
    facet="learned_head",
    caption=(
        "Largest softmax probability and 1-correlation with the SVM at the selected tokens over "
        "the steps, for W and for (K, Q), on tokens that are data rather than draws, with a linear "
        "head that is fixed and one that is learned together with the attention."
    ),
)
tables, draw = FIGURE.tables, FIGURE.draw
