"""Quadratic head: how many tokens attention keeps, and which SVM W agrees with (section 6)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pandas as pd

from sweeps import style
from sweeps.figures import Drawing, _curves, fates, outcomes

if TYPE_CHECKING:
    from sweeps.aggregate import SweepFrames

QUESTION = (
    "The head v^T o - lambda ||o||^2 rewards mixing tokens. How many tokens does attention keep as "
    "lambda grows, and which SVM does the trained W agree with?"
)
QUANTITIES = (
    "attended_tokens",
    "one_minus_corr_svmeq",
    "one_minus_corr_w_mm",
    "one_minus_corr_1token",
)
NOTE = (
    "Lines: mean; band: its 95 % bootstrap interval. A token is attended if its softmax is at "
    "least 1e-3, and masked if it is less: no instance is set aside for being in between."
)
CAPTION = (
    "Mean number of attended tokens per sample and 1-correlation of the trained W with the three "
    "SVM solutions, versus lambda."
)


def tables(frames: SweepFrames) -> dict[str, pd.DataFrame]:
    """Return the quantities at the last step per lambda, and what became of all instances."""
    return {
        "token_count_vs_lambda": _curves.at_the_end(frames, QUANTITIES, "mean"),
        "token_count_vs_lambda_counts": outcomes(frames.trials),
    }


def draw(tables: dict[str, pd.DataFrame], remarks: Sequence[str] = ()) -> list[Drawing]:
    """Return one figure."""
    table = tables["token_count_vs_lambda"]
    fig = _curves.panels(table, QUANTITIES, "lam", r"$\lambda$")
    style.note(fig, [NOTE, fates(tables["token_count_vs_lambda_counts"]), *remarks])
    return [Drawing("token_count_vs_lambda", fig, CAPTION)]
