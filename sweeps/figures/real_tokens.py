"""Tokens that are not random: patches of handwritten digits, or any file of instances."""

from ._curves import OverSteps

__all__ = ["draw", "tables"]

FIGURE = OverSteps(
    name="real_tokens",
    quantities=("max_softmax", "one_minus_corr_frobenius", "one_minus_corr_nuclear"),
    facet="train",
    caption=(
        "Largest softmax probability and 1-correlation with the SVM at the selected tokens over "
        "the steps, for W and for (K, Q), on tokens from data instead of random tokens, with a "
        "fixed linear head and with one that is trained together with the attention."
    ),
)
tables, draw = FIGURE.tables, FIGURE.draw
