"""The columns of all tables: name, type, meaning, unit, allowed values, and stage that fills them.

Each is declared here, once: what is measured of W is a column of the trials, where W is the trained
one, and a quantity of the history, where W is that of the step. Parquet files carry meaning and
unit of each of their columns; `attnsvm --columns` and docs/columns.md show the whole dictionary.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from attnsvm.config import ConfigError, Quantity
from attnsvm.config.fields import NON_NEGATIVE, Range
from attnsvm.config.groups import is_transformer
from attnsvm.config.run import HYPOTHESES
from attnsvm.record.column import (
    CONVERGENCE,
    DISTANCE,
    RUN_STATE,
    SHARE,
    STATUS,
    SVM_STATUS,
    TRAINING,
    Column,
    count,
    decided,
    flag,
    number,
    text,
    whole,
    word,
)

NORMS = ("frobenius", "nuclear")
"""The norms whose columns every record has."""

# --- what is measured of W: trials and history ----------------------------------------------------

SOLUTIONS = {
    "frobenius": "W_mm, the SVM of least Frobenius norm",
    "nuclear": "W_star_mm, the SVM of least nuclear norm",
}


def distance(name: str, meaning: str) -> Column:
    """Return a column of 1 - correlations with a result of the SVMs."""
    return number(name, "compare", meaning, allowed=DISTANCE)


def correlation(norm: str) -> Column:
    """Return the column of 1 - correlation of W with the SVM of a norm."""
    svm = SOLUTIONS.get(norm, f"an SVM solution of least {norm} norm, perhaps not the only")
    return distance(f"one_minus_corr_{norm}", f"1 - correlation of W with {svm}")


def margin_gap(norm: str, name: str) -> Column:
    """Return the column of the margin gap of W by a norm."""
    return number(
        name, "compare",
        f"1 - least {norm} norm with the margins of W, and with selection=multi its log-ratios of "
        f"the attended tokens, divided by the {norm} norm of W", allowed=Range(low=-1e-6),
    )  # fmt: skip


MEASURED = (
    number("risk", "train", "training loss, without ridge", "loss"),
    number("W_norm", "train", "Frobenius norm of W", "norm of W", NON_NEGATIVE),
    *map(correlation, NORMS),
    distance(
        "one_minus_corr_svmeq", "1 - correlation of W with W_fin + C W_mm, best C; selection=multi"
    ),
    distance(
        "one_minus_corr_svmeq_lsq",
        "the same with C of least squares, as published; selection=multi",
    ),
    distance(
        "one_minus_corr_1token",
        "1 - correlation of W with the SVM of the most attended tokens; selection=multi",
    ),
)
"""Columns of the trials that are quantities of the history too."""

# --- trials.parquet -------------------------------------------------------------------------------


def svm_columns(norm: str) -> tuple[Column, ...]:
    """Return the columns of trials about the SVM of a norm."""
    columns = (
        word("status", "svm", f"what is proved of the SVM, {norm} norm", allowed=SVM_STATUS),
        number(
            "objective", "svm",
            f"{norm} norm of the solution: upper bound of the least norm, inf without a solution",
            "norm of W", NON_NEGATIVE,
        ),
        number(
            "lower_bound", "svm", f"certified lower bound of the least {norm} norm", "norm of W",
            NON_NEGATIVE,
        ),
        number("gap", "svm", "duality gap, objective / lower_bound - 1"),
        number(
            "min_margin", "svm",
            "least margin of the solution, -inf without one, inf without constraints", "logit",
        ),
        number(
            "kappa", "svm", "conditioning: no certificate can have a gap below about 2e-16 kappa",
            allowed=NON_NEGATIVE,
        ),
        count(
            "rank", "svm",
            "rank of the solution: singular values above svm.rank_tolerance of the largest",
        ),
        count("rank_bound", "svm", "proved upper bound of the rank of every optimum"),
        count("support", "svm", "tokens whose constraint is active"),
        margin_gap(norm, "margin_gap"),
    )  # fmt: skip
    return tuple(one.renamed(f"{norm}_{one.name}") for one in columns)


def _published_columns(norm: str) -> tuple[Column, ...]:
    title = norm.capitalize() if norm == "frobenius" else norm
    said = f"what the solver of the published scripts says, least {title} norm"
    rank = "singular values above 1e-7 of its solution"
    return (
        word(f"published_{norm}_status", "published", said),
        count(f"published_{norm}_rank", "published", rank),
    )


SEED = whole("seed", "draw", "seed of the instance", "1")

TRIAL_COLUMNS = (
    SEED,
    word(
        "status", "select", "ok, or the first reason why the instance is no data point",
        allowed=STATUS, default="ok",
    ),
    text("reason", "select", "why the status is not ok"),
    word("training", "train", "how training ended", allowed=TRAINING),
    word(
        "convergence", "compare",
        "what W converged to: optimal, locally optimal or other tokens; selection=top",
        allowed=CONVERGENCE,
    ),
    distance("direction_change", "1 - correlation of the trained W with W half-way"),
    decided("tie", "select", "two tokens share the best score or the largest softmax"),
    decided("saturated", "select", "min_top_softmax >= selection.saturation"),
    number("min_top_softmax", "select", "least largest softmax of the samples", allowed=SHARE),
    number(
        "max_masked_softmax", "select",
        "largest softmax below selection.attended, 0 if there is none", allowed=SHARE,
    ),
    flag("assumption_b1", "svm", "Assumption B.1: all margins at the optimal tokens equal 1"),
    number(
        "attended_tokens", "select",
        "tokens per sample with softmax >= selection.attended, mean over the samples", "tokens",
        NON_NEGATIVE,
    ),
    flag(
        "flat", "train",
        "the gradient of the head is zero for some sample, which does not train W then",
    ),
    *MEASURED,
    *(one for norm in NORMS for one in _published_columns(norm)),
    *(one for norm in NORMS for one in svm_columns(norm)),
)  # fmt: skip

# --- history.parquet: a row for each instance, recorded step and quantity -------------------------

HISTORY_COLUMNS = (
    SEED,
    number(
        "step", "train", "number of updates; for a regularisation path the radius",
        "steps, or norm of W", NON_NEGATIVE,
    ),
    word("quantity", "train", "name of what is measured, see the quantities"),
    number("value", "train", "its value at this step", "that of the quantity"),
)  # fmt: skip
QUANTITIES = (
    *MEASURED,
    number("max_softmax", "train", "largest softmax of a sample, mean over samples", allowed=SHARE),
)

# --- layers and heads -----------------------------------------------------------------------------

LAYER_KEY = (
    whole("layer", "train", "layer of the network, the first is 0", "1"),
    whole("attention_head", "train", "head of this layer's attention, the first is 0", "1"),
)
"""Columns of trials and history that say of which layer and head a row is."""

LAYER_COLUMNS = (
    *LAYER_KEY,
    number(
        "positions_seen", "select",
        "positions at this layer's input that the readout sees, mean over the sequences",
        "positions", NON_NEGATIVE,
    ),
    number(
        "unseen_gradient", "train",
        "share of the gradient in W at the last step that comes from positions which the readout "
        "does not see", allowed=SHARE,
    ),
    number(
        "selected_since", "train",
        "first recorded step since which every sample attends most to the token that it selects",
        "steps", NON_NEGATIVE,
    ),
)  # fmt: skip
"""Further columns of trials of a network."""


def key_columns(names: Iterable[Any]) -> list[str]:
    """Return which of these columns tell the rows of a run's trials apart.

    A row is an instance, or a layer and head of one. The history has a row for each of these, step
    and quantity.
    """
    names = set(names)
    return ["seed", *(one.name for one in LAYER_KEY if one.name in names)]


# --- the runs of a folder; the fields of the run's config follow ----------------------------------

WALL_TIMES = {
    "wall": "all stages",
    "draw": "drawing",
    "train": "training",
    "svm": "the SVMs",
    "published": "the published solvers",
    "compare": "comparing",
    "probe": "the probes",
    "tabulate": "making the tables",
}

RUN_COLUMNS = (
    word("run", "aggregate", "name of the run's folder"),
    word("state", "aggregate", "how far the run is", allowed=RUN_STATE),
    text("reason", "aggregate", "why it is not done"),
    text("place", "record", "file and line of the error of a failed run"),
    word("sweep", "record", "name of the experiment, missing for an ad-hoc sweep"),
    text("question", "record", "what the experiment asks"),
    whole(
        "wanted", "record",
        "requested rows: instances, with model=transformer each layer and head of one",
    ),
    whole("drawn", "draw", "rows of the instances that were drawn"),
    whole("accepted", "select", "rows with status ok"),
    *(
        number(f"{stage}_s", "record", f"wall time of {what}", "seconds", NON_NEGATIVE)
        for stage, what in WALL_TIMES.items()
    ),
    word("device", "record", "where it was computed"),
    word("version", "record", "version of attnsvm"),
    word("git_revision", "record", "git revision of the code"),
    word("code", "record", "digest of the code"),
    word("python", "record", "version of Python"),
    text("packages", "record", "versions of the packages"),
    text("hardware", "record", "processor, cores and memory"),
    text("overrides", "record", "what was typed"),
)  # fmt: skip

# --- columns that not every record has ------------------------------------------------------------


def norm_columns(norms: Iterable[str]) -> tuple[Column, ...]:
    """Return the columns of trials of norms other than Frobenius and nuclear."""
    others = [norm for norm in norms if norm not in NORMS]
    return tuple(one for norm in others for one in (*svm_columns(norm), correlation(norm)))


def norm_quantities(norm: str) -> tuple[Column, ...]:
    """Return the quantities of the history of such a norm."""
    return correlation(norm), margin_gap(norm, f"margin_gap_{norm}")


def multi_columns(tokens: str, norms: Iterable[str]) -> tuple[Column, ...]:
    """Return the columns of trials that selection=multi adds for these norms."""
    columns: list[Column] = []
    for norm in norms if tokens == "multi" else ():
        meaning = (
            f"C of the W_fin + C W_mm of least {norm} norm that agrees best with the trained W, "
            "inf where W_mm alone does"
        )
        columns.append(number(f"svmeq_C_{norm}", "compare", meaning, allowed=NON_NEGATIVE))
        columns += svmeq_quantities(norm)
    return tuple(columns)


def svmeq_quantities(norm: str) -> tuple[Column, ...]:
    """Return the quantities of the history that selection=multi adds for a norm."""
    if norm == "frobenius":  # every record has its column
        return ()
    meaning = f"1 - correlation of W with W_fin + C W_mm of least {norm} norm, best C"
    return (distance(svmeq_name(norm), meaning),)


def svmeq_name(norm: str) -> str:
    """Return the column of 1 - correlation with W_fin + C W_mm of least `norm`."""
    return "one_minus_corr_svmeq" if norm == "frobenius" else f"one_minus_corr_svmeq_{norm}"


def hypothesis_columns(names: Iterable[str]) -> tuple[Column, ...]:
    """Return the columns of the hypotheses that a run decides."""
    return tuple(flag(name, "svm", HYPOTHESES[name]) for name in names)


def probe_columns(quantities: Mapping[str, Quantity]) -> tuple[Column, ...]:
    """Return the columns of trials that probes add; in the history they are quantities.

    `quantities` are given by the name of their column, see `attnsvm.config.probe.probe_quantities`.

    Raises
    ------
    ConfigError
        If a name is that of a fixed column or quantity.
    """
    fixed = (*TRIAL_COLUMNS, *HISTORY_COLUMNS, *QUANTITIES, *LAYER_COLUMNS)
    for name in {*HYPOTHESES, *(one.name for one in fixed)} & set(quantities):
        raise ConfigError(f"probe: its column {name} must have another name, every record has one")
    return tuple(
        number(name, "probe", one.meaning, one.unit, one.allowed)
        for name, one in quantities.items()
    )


def recorded_probe_columns(probes: Mapping[str, Mapping[str, str]]) -> tuple[Column, ...]:
    """Return the columns that a `run.json` says that its probes add."""
    stated = {name: (probes[name]["meaning"], probes[name]["unit"]) for name in sorted(probes)}
    return probe_columns({name: Quantity(*texts) for name, texts in stated.items()})


def further_columns(
    config: Mapping[str, Any], probes: Mapping[str, Mapping[str, str]]
) -> tuple[Column, ...]:
    """Return the columns besides `TRIAL_COLUMNS` of a run.

    Parameters
    ----------
    config : mapping
        The fields of its config, as in `run.json`.
    probes : mapping
        Meaning and unit of the quantities of its probes, by the name of their column.
    """
    norms, tokens = config["svm"]["norms"], config["selection"]["tokens"]
    return (
        *norm_columns(norms),
        *multi_columns(tokens, norms),
        *hypothesis_columns(config["hypotheses"]),
        *(LAYER_COLUMNS if is_transformer(config["model"]) else ()),
        *recorded_probe_columns(probes),
    )
