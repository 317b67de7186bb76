"""Quadratic head: the number of attended tokens, and which SVM W agrees with (section 6)."""

import pandas as pd

from .. import statistics
from ..facets import facets, labels, named, panels_of
from ..notation import SVMS
from . import MOST_PANELS, CellAxes, Figure, Pages, SweepFrames, Tables
from ._curves import at_the_end
from ._numbers import outcomes

SOLUTIONS = {f"one_minus_corr_{svm}": SVMS[svm] for svm in ("svmeq", "frobenius", "1token")}
SHOWN = panels_of("attended_tokens", "agreement", "kept")
PUBLISHED_NEGLIGIBLE = 1e-6


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
    panel = table["quantity"].map(lambda name: "agreement" if name in SOLUTIONS else name)
    of_kept = kept.rename(columns={"share": "mean"}).assign(panel="kept", quantity="")
    table = pd.concat([table.assign(panel=panel), of_kept], ignore_index=True)
    table["curve"] = named(table["quantity"], {"": "", "attended_tokens": ""} | SOLUTIONS)
    table["row"] = labels(axes, table, axes.besides("lam"))
    return facets(
        table, "lam", "mean", hue="curve", row="row", col="panel", panels=SHOWN,
        x_label=r"$\lambda$", title="trained $W$ against",
    )[0]  # fmt: skip


draw = Pages("token_count_vs_lambda", _figure, x=("lam",), room=MOST_PANELS).draw
