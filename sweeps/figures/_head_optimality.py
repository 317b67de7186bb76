"""In how many samples heads select tokens that the loss of their model prefers to others."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from .. import statistics

QUANTITIES = {
    "optimality_best": "best token",
    "optimality_frobenius": "locally optimal, frobenius norm",
    "optimality_nuclear": "locally optimal, nuclear norm",
}

CONTROLS = ("spectrum", "queries", "tokens")


def table(
    trials: pd.DataFrame, by: list[str], head: Sequence[str], statuses: Sequence[str]
) -> pd.DataFrame:
    """Return for each quantity and control the shares of both, and their difference over samples.

    Beside each share stands that by chance, the mean over the same instances. An instance is a head
    on a sample of sentences, with one token selected in each. Those of the given statuses that have
    both numbers are used, the others counted as left out. A sample has one difference, the mean
    over its heads, since heads share the sentences. Its mean over samples has a 95 % interval by
    Student's t.
    """
    keys = [*by, *head, "seed"]
    if "tokens" in trials:
        trials = trials[trials["tokens"] != "multi"]
    known = trials["status"].isin(statuses)
    rows = []
    for column, quantity in QUANTITIES.items():
        if column not in trials:
            continue
        shares = trials[[*keys, "control"]].assign(
            share=trials[column].astype("float64").where(known),
            chance=trials[f"{column}_chance"].astype("float64"),
        )
        own = shares[shares["control"] == "none"].drop(columns="control")
        for control in CONTROLS:
            other = shares[shares["control"] == control].drop(columns="control")
            both = own.merge(other, on=keys, suffixes=("", "_of_control"), how="left")
            rows.append(both.assign(quantity=quantity, control=control))
    if not rows:
        return pd.DataFrame(columns=[*by, "quantity", "control"])
    pairs = pd.concat(rows, ignore_index=True)
    pairs["difference"] = pairs["share"] - pairs["share_of_control"]
    group = [*by, "quantity", "control"]
    of_samples = pairs.groupby([*group, "seed"], dropna=False)["difference"].mean().reset_index()
    used = pairs[pairs["difference"].notna()]
    means = [f"{name}{of}" for name in ("share", "chance") for of in ("", "_of_control")]
    shares = used.groupby(group, dropna=False)[means].mean().reset_index()
    counts = pairs.groupby(group, dropna=False)["difference"].agg(
        instances="count", left_out=lambda difference: int(difference.isna().sum())
    )
    found = statistics.paired_means(of_samples, group, "difference")
    found = found.rename(columns={"used": "samples", "mean": "difference"})
    kept = [*group, "difference", "low", "high", "samples"]
    return shares.merge(found[kept], on=group).merge(counts.reset_index(), on=group)
