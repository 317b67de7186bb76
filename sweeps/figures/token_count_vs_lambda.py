"""Quadratic head: the number of attended tokens, and which SVM W agrees with (section 6)."""

from __future__ import annotations

import pandas as pd

from .. import statistics
from ..facets import Panel, facets, labels, named
from . import CellAxes, Figure, Pages, SweepFrames, Tables
from ._curves import PANELS, at_the_end
from ._numbers import outcomes

SOLUTIONS = {
    "one_minus_corr_svmeq": r"$W_{\mathrm{svmeq}}$",
    "one_minus_corr_frobenius": r"$W_{\mathrm{mm}}$",
    "one_minus_corr_1token": r"$W_{\mathrm{1token}}$",
}
SHOWN = {
    "attended": PANELS["attended_tokens"],
    "agreement": Panel(r"$1-\mathrm{corr}(W, \cdot\,)$", "log"),
    "kept": Panel("kept by the published rule", "share"),
}
ROWS = 4
"""Largest number of rows of panels of a figure."""
PUBLISHED_NEGLIGIBLE = 1e-6
NOTE = (
    "Lines: mean, on the right share; bands: 95 % intervals, bootstrap and Wilson. A token is "
    "attended if its softmax is at least 1e-3, and masked if it is less: no instance is excluded "
    "for a value in between. On the right, the share of the same instances that the published rule "
    "keeps, which excludes those with a softmax in (1e-6, 1e-3]."
)
CAPTION = (
    "Mean number of attended tokens per sample, 1-correlation of the trained W with the three SVM "
    "solutions, and the share that the published rejection rule keeps, versus lambda."
)


def tables(frames: SweepFrames) -> dict[str, pd.DataFrame]:
    """Return final quantities, the share the published rule keeps and status counts, by lambda."""
    trials = frames.trials
    kept = (trials["status"] == "ok") & (trials["max_masked_softmax"] <= PUBLISHED_NEGLIGIBLE)
    by = [*frames.axes.besides("lam"), "lam"]
    quantities = ("attended_tokens", *SOLUTIONS)
    return {
        "token_count_vs_lambda": at_the_end(frames, quantities, "lam", "mean"),
        "token_count_vs_lambda_kept": statistics.shares(trials.assign(kept=kept), by, "kept"),
        "token_count_vs_lambda_counts": outcomes(trials, frames.axes),
    }


def _figure(tables: Tables, axes: CellAxes) -> Figure:
    """Return a row of panels per combination of the axes besides lambda."""
    table, kept = tables["token_count_vs_lambda"], tables["token_count_vs_lambda_kept"]
    panel = table["quantity"].map(lambda name: "agreement" if name in SOLUTIONS else "attended")
    of_kept = kept.rename(columns={"share": "mean"}).assign(panel="kept", quantity="")
    table = pd.concat([table.assign(panel=panel), of_kept], ignore_index=True)
    table["curve"] = named(table["quantity"], {"": "", "attended_tokens": ""} | SOLUTIONS)
    table["row"] = labels(axes, table, axes.besides("lam"))
    return facets(
        table, "lam", "mean", hue="curve", row="row", col="panel", panels=SHOWN,
        x_label=r"$\lambda$", title="trained W against",
    )[0]  # fmt: skip


draw = Pages("token_count_vs_lambda", CAPTION, _figure, NOTE, x=("lam",), room=ROWS).draw
