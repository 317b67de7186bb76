"""Self-attention on whole sequences, with and without a causal mask (section 8)."""

from ._curves import OverSteps

__all__ = ["draw", "tables"]

FIGURE = OverSteps(
    name="sequence",
    quantities=("max_softmax", "one_minus_corr_frobenius", "one_minus_corr_nuclear"),
    facet="model",
    caption=(
        "Largest softmax probability and 1-correlation with the SVM at the selected tokens over "
        "the steps. Every position of every sequence is a query with its own label; with a causal "
        "mask position k attends to tokens up to k."
    ),
)
tables, draw = FIGURE.tables, FIGURE.draw
