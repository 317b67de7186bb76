"""Heads of a pretrained transformer against the SVMs of the tokens that they attend to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from attnsvm.record import read_solutions
from sweeps import statistics, style
from sweeps.cells import CellAxes, rows_of
from sweeps.figures import Drawing, outcomes, status_counts
from sweeps.figures._pages import Tables, drawings

if TYPE_CHECKING:
    from sweeps.aggregate import SweepFrames

HEAD = ["at_layer", "at_head"]
NORMS = {"frobenius": "one_minus_corr_w_mm", "nuclear": "one_minus_corr_w_star_mm"}
NULLS = {
    "spectrum": "random weights with its singular values",
    "queries": "queries of other sentences",
    "tokens": "tokens at each place shuffled among sentences",
    "other_heads": "the other heads of the layer, on its tokens",
}
SHOWN = {
    "entropy_mean": "attention entropy (nat)",
    "at_layer": "layer",
    "rank_stable": "stable rank",
}
USED = ("ok", "unsaturated")
RATE = 0.05
"""False discovery rate."""

NOTE = (
    "Lean: correlation of the head with the SVM of the tokens that it attends to most, less that "
    "of a control; mean over samples of sentences, of the four controls the one of least "
    "difference, with its 95 % interval (Student's t, the same sentences in both). Controls: "
    + "; ".join(NULLS.values())
    + ". A star: more than all four, by one-sided t tests, at a false discovery rate of 5 % "
    "(Benjamini and Hochberg, over all heads and both norms)."
)
CAPTION = (
    "How much more each head of a pretrained transformer correlates with its SVM than four "
    "controls, in the Frobenius and in the nuclear norm, with 95 % intervals."
)


def tables(frames: SweepFrames) -> dict[str, pd.DataFrame]:
    """Return the lean of every head in both norms, by control too, and an example's attention."""
    by = frames.axes.besides("control", *HEAD)
    keys = [*by, *HEAD, "svm_norm"]
    values = _correlations(frames.trials, [*by, *HEAD])
    own = values[values["control"] == "none"]
    differences = _differences(values, own, keys)
    controls = statistics.paired_means(differences, [*keys, "null"], "difference")
    heads = _heads(own, controls, keys, by)
    return {
        "pretrained_heads": heads,
        "pretrained_heads_controls": controls,
        "pretrained_heads_total": _total(heads, by),
        "pretrained_heads_attention": _example(frames, heads, by),
        "pretrained_heads_counts": outcomes(frames.trials, frames.axes),
    }


def _correlations(trials: pd.DataFrame, keys: list[str]) -> pd.DataFrame:
    """Return a row for each instance and norm: correlation, and what else is known of it."""
    parts = []
    needed = (*keys, "control", "seed", "status", *NORMS.values())
    trials = trials.assign(**{name: np.nan for name in needed if name not in trials})
    for norm, column in NORMS.items():
        solved = (trials.get(f"{norm}_status", trials["status"]) == "solved") & trials[
            "status"
        ].isin(USED)
        part = trials[[*dict.fromkeys([*keys, "control", "seed"])]].assign(
            svm_norm=norm,
            correlation=(1 - trials[column]).where(solved),
            other_heads=_column(trials, f"other_heads_{norm}").where(solved),
            svm_rank=_column(trials, f"{norm}_rank").where(solved),
            margin_gap=_column(trials, f"{norm}_margin_gap").where(solved),
            **{name: _column(trials, name) for name in ("entropy_mean", "rank_effective",
                                                        "rank_stable")},
        )  # fmt: skip
        parts.append(part)
    return pd.concat(parts, ignore_index=True)


def _column(trials: pd.DataFrame, name: str) -> pd.Series[float]:
    values = trials[name] if name in trials else pd.Series(np.nan, index=trials.index)
    return values.astype("float64")


def _differences(values: pd.DataFrame, own: pd.DataFrame, keys: list[str]) -> pd.DataFrame:
    """Return a row for each instance, norm and control: by how much the head correlates more."""
    kept = [*keys, "seed"]
    parts = [
        own[kept].assign(null="other_heads", difference=own["correlation"] - own["other_heads"])
    ]
    for null in ("spectrum", "queries", "tokens"):
        other = values.loc[values["control"] == null, [*kept, "correlation"]]
        both = own[[*kept, "correlation"]].merge(other, on=kept, how="left", suffixes=("", "_null"))
        difference = both["correlation"] - both["correlation_null"]
        parts.append(both[kept].assign(null=null, difference=difference))
    return pd.concat(parts, ignore_index=True)


def _heads(
    own: pd.DataFrame, controls: pd.DataFrame, keys: list[str], by: list[str]
) -> pd.DataFrame:
    """Return a row for each head and norm: its lean, the adjusted p-value, and its means."""
    rows = []
    for key, part in controls.groupby(keys, dropna=False, sort=True):
        known = part[part["used"] >= 2].sort_values("mean")
        least = known.iloc[0] if len(known) == len(NULLS) else None
        cell = dict(zip(keys, key, strict=True))
        rows.append(
            cell
            | {"used": int(part["used"].min()), "null": "" if least is None else least["null"]}
            | {"p_value": np.nan if least is None else known["p_value"].max()}
            | {new: np.nan if least is None else least[old]
               for new, old in (("lean", "mean"), ("low", "low"), ("high", "high"))}
        )  # fmt: skip
    columns = [*keys, "used", "null", "lean", "low", "high", "p_value"]
    heads = pd.DataFrame(rows, columns=columns)
    heads["adjusted"] = np.nan
    for _, part in heads.groupby(by, dropna=False) if by else [((), heads)]:
        heads.loc[part.index, "adjusted"] = statistics.false_discovery(part["p_value"].to_numpy())
    heads["leans"] = (heads["adjusted"] <= RATE) & (heads["lean"] > 0)
    means = ("correlation", "margin_gap", "svm_rank", "rank_effective", "rank_stable",
             "entropy_mean")  # fmt: skip
    for name in means:
        found = statistics.summaries(own, keys, name)[[*keys, "mean"]]
        heads = heads.merge(found.rename(columns={"mean": name}), on=keys, how="left")
    return heads


def _total(heads: pd.DataFrame, by: list[str]) -> pd.DataFrame:
    """Return for each norm how many heads there are, were tested, lean, and which."""
    rows = []
    for key, part in heads.groupby([*by, "svm_norm"], dropna=False, sort=True):
        leaning = part[part["leans"]]
        named = [f"{row['at_layer']}.{row['at_head']}" for _, row in leaning.iterrows()]
        rows.append(
            dict(zip([*by, "svm_norm"], key, strict=True))
            | {
                "heads": len(part),
                "tested": int(part["p_value"].notna().sum()),
                "lean": len(leaning),
            }
            | {"which": " ".join(named)}
        )
    return pd.DataFrame(rows, columns=[*by, "svm_norm", "heads", "tested", "lean", "which"])


def _example(frames: SweepFrames, heads: pd.DataFrame, by: list[str]) -> pd.DataFrame:
    """Return the attention of the head of largest lean on its first sample of sentences."""
    columns = [*by, *HEAD, "seed", "sentence", "token", "attention", "selected", "support"]
    rows: list[dict[str, Any]] = []
    known = heads[(heads["svm_norm"] == "frobenius") & heads["lean"].notna()]
    for _, part in known.groupby(by, dropna=False) if by else [((), known)]:
        if part.empty:
            continue
        best = part.iloc[int(part["lean"].to_numpy().argmax())]
        cell = {name: best[name] for name in [*by, *HEAD]}
        trials = rows_of(frames.trials, cell | {"control": "none"})
        names = [run for run in trials["run"].unique() if run in frames.folders]
        arrays = read_solutions(frames.folders[str(names[0])]) if names else {}
        if "frobenius_W" not in arrays or "trained_W" not in arrays:
            continue
        rows += [cell | row for row in _of_instance({k: v[0] for k, v in arrays.items()})]
    return pd.DataFrame(rows, columns=columns)


def _of_instance(at: dict[str, np.ndarray]) -> list[dict[str, Any]]:
    """Return a row for each token of a stored instance: attention, and margin of its SVM."""

    def logits(W: np.ndarray) -> np.ndarray:
        return np.asarray(np.einsum("ntd,de,ne->nt", at["X"], W, at["Z"]))

    own = np.where(at["mask"], logits(at["trained_W"]), -np.inf)
    s = np.exp(own - own.max(1, keepdims=True))
    s /= s.sum(1, keepdims=True)
    svm, chosen = logits(at["frobenius_W"]), at["selected"]
    margin = svm[np.arange(len(s)), chosen][:, None] - svm
    is_chosen = np.arange(s.shape[1]) == chosen[:, None]
    support = (margin <= 1 + 1e-6) & at["mask"] & ~is_chosen
    return [
        {"seed": int(at["seeds"]), "sentence": i, "token": t, "attention": s[i, t],
         "selected": bool(is_chosen[i, t]), "support": bool(support[i, t])}
        for i, t in np.ndindex(*s.shape)
    ]  # fmt: skip


def draw(
    tables: dict[str, pd.DataFrame], axes: CellAxes, remarks: Sequence[str] = ()
) -> list[Drawing]:
    """Return the map of leans, the lean against other numbers of a head, and an example."""
    shown = ("control", *HEAD)
    made = (
        ("pretrained_heads", _map_figure, CAPTION),
        ("pretrained_heads_against", _against_figure,
         "The lean of every head against the entropy of its attention, its layer and its rank."),
        ("pretrained_heads_attention", _attention_figure,
         "Attention of the head that leans most, with the tokens that support its SVM."),
    )  # fmt: skip
    return [
        one
        for name, make, caption in made
        for one in drawings(
            name, tables, axes, remarks, make, caption=caption, x=shown, cells="pretrained_heads"
        )
    ]


def _map_figure(tables: Tables, axes: CellAxes, remarks: Sequence[str]) -> Figure:
    heads = tables["pretrained_heads"]
    layers, columns = (sorted(heads[name].unique()) for name in HEAD)
    fig = style.figure(max(9.6, 1.5 + 0.78 * len(columns)), 2.0 + 0.92 * max(len(layers), 1))
    grid = fig.subplots(2, 1, sharex=True)
    style.note(fig, [NOTE, *_told(tables["pretrained_heads_total"], axes),
                     status_counts(tables["pretrained_heads_counts"], axes), *remarks])  # fmt: skip
    most = np.nanmax([0.05, *heads["lean"].abs()])
    for ax, norm in zip(grid, NORMS, strict=True):
        style.heading(ax, f"lean, {norm} norm")
        part = heads[heads["svm_norm"] == norm]
        if not part["lean"].notna().any():
            style.empty(ax, "no head with all four controls and two samples")
            continue
        shades = _map(ax, part, layers, columns, most)
        fig.colorbar(shades, ax=ax, shrink=0.9, aspect=12, pad=0.01)
        ax.set_ylabel("layer")
    grid[-1].set_xlabel("head")
    return fig


def _map(ax: Axes, part: pd.DataFrame, layers: list[int], columns: list[int], most: float) -> Any:
    values = np.full((len(layers), len(columns)), np.nan)
    for _, row in part.iterrows():
        i, j = layers.index(row["at_layer"]), columns.index(row["at_head"])
        values[i, j] = row["lean"]
        if np.isfinite(row["lean"]):
            half = (row["high"] - row["low"]) / 2
            text = f"{row['lean']:.3f}{'*' if row['leans'] else ''}\n±{half:.3f}"
            dark = abs(row["lean"]) > 0.6 * most
            ax.text(j, i, text, ha="center", va="center", fontsize=6.5,
                    color="white" if dark else style.INK)  # fmt: skip
    shades = ax.imshow(values, cmap="RdBu_r", vmin=-most, vmax=most, aspect="auto")
    ax.set_xticks(range(len(columns)), [str(k) for k in columns])
    ax.set_yticks(range(len(layers)), [str(k) for k in layers])
    ax.grid(False)
    ax.tick_params(length=0)
    return shades


def _told(total: pd.DataFrame, axes: CellAxes) -> list[str]:
    """Return a sentence for each norm with the heads that lean."""
    return [
        f"{row['svm_norm']} norm: {row['lean']} of {row['tested']} heads lean"
        f"{': ' + row['which'] if row['which'] else ''}."
        for _, row in total.iterrows()
    ]


def _against_figure(tables: Tables, axes: CellAxes, remarks: Sequence[str]) -> Figure:
    heads = tables["pretrained_heads"]
    fig = style.figure(9.6, 3.6)
    grid = fig.subplots(1, len(SHOWN), sharey=True)
    style.note(fig, ["Every point is a head: filled if it leans, its 95 % interval as a line. See "
                     "the map of all heads for what lean means.", *remarks])  # fmt: skip
    looks = zip(NORMS, style.PALETTE, style.MARKERS, strict=False)
    for norm, colour, marker in looks:
        part = heads[(heads["svm_norm"] == norm) & heads["lean"].notna()]
        for ax, name in zip(grid, SHOWN, strict=True):
            shift = {"frobenius": -0.12, "nuclear": 0.12}[norm] if name == "at_layer" else 0.0
            x = part[name].to_numpy(float) + shift
            for leans, face in ((True, colour), (False, "white")):
                at = part["leans"].to_numpy() == leans
                rows = part[at]
                ends = [rows["lean"] - rows["low"], rows["high"] - rows["lean"]]
                ax.errorbar(
                    x[at], rows["lean"], yerr=np.array(ends, dtype=float), fmt=marker,
                    color=colour, markerfacecolor=face, markeredgecolor=colour, markeredgewidth=0.8,
                    elinewidth=0.5, label=f"{norm}, {'leans' if leans else 'does not'}",
                )  # fmt: skip
    for ax, label in zip(grid, SHOWN.values(), strict=True):
        ax.axhline(0, color=style.FAINT, linewidth=0.8)
        ax.set_xlabel(label)
    grid[0].set_ylabel("lean")
    style.legend(grid[-1], [])
    return fig


def _attention_figure(tables: Tables, axes: CellAxes, remarks: Sequence[str]) -> Figure:
    table = tables["pretrained_heads_attention"]
    rows = table["sentence"].nunique()
    fig = style.figure(6.4, 1.8 + 0.19 * max(rows, 6))
    ax = fig.subplots()
    if table.empty:
        style.empty(ax, "no head with a lean on record")
        return fig
    first = table.iloc[0]
    style.heading(ax, f"layer {first['at_layer']}, head {first['at_head']}, seed {first['seed']}")
    shades = table.pivot_table(index="sentence", columns="token", values="attention")
    image = ax.imshow(shades.to_numpy(float), cmap="Greys", vmin=0, vmax=1, aspect="auto")
    for name, marker in (("selected", "o"), ("support", "x")):
        at = table[table[name]]
        ax.plot(at["token"], at["sentence"], marker, color=style.PALETTE[name == "support"],
                markersize=4, markeredgewidth=1.2, label=name)  # fmt: skip
    ax.set(xlabel="token", ylabel="sentence")
    ax.grid(False)
    fig.colorbar(image, ax=ax, location="left", shrink=0.6, label="attention")
    style.legend(ax, [])
    style.note(fig, ["Each row is a sentence, for one of its queries. Selected: the token of "
                     "largest attention. Support: margin 1 in the SVM of least Frobenius norm "
                     "(within 1e-6).", *remarks])  # fmt: skip
    return fig
