"""The columns of all tables: name, type, meaning, unit, allowed values, and stage that fills them.

This is the only place that says so. Parquet files carry meaning and unit of each of their columns;
`attnsvm --columns` and docs/columns.md show the whole dictionary.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from attnsvm.config import PROBES, ConfigError, Quantity
from attnsvm.config.fields import NON_NEGATIVE, OneOf, Range
from attnsvm.config.hypotheses import HYPOTHESES
from attnsvm.config.probe import probe_quantities
from attnsvm.config.transformer import is_transformer

NAN = float("nan")
NORMS = ("frobenius", "nuclear")
"""The norms whose columns every record has."""

STAGES = {
    "draw": "draws the instances",
    "train": "trains the weights",
    "select": "reads off the selected tokens and excludes instances",
    "svm": "solves and certifies the SVMs",
    "published": "solves them again as the published scripts do (svm.published=true)",
    "compare": "compares the trained weights with the SVMs",
    "probe": "measures what the config names in probe=[...]",
    "record": "writes the run to disk",
    "aggregate": "reads the runs of a folder",
}
"""What fills columns."""

Allowed = Range | OneOf | None

TYPES = {
    "int": "int64",
    "int | None": "Int64",
    "bool": "bool",
    "bool | None": "boolean",
    "float": "float64",
    "str": "str",
}
"""Annotation of a column -> its pandas dtype."""


@dataclass(frozen=True)
class Column:
    """A column of a table, or a quantity of the history.

    Attributes
    ----------
    name, dtype : str
        Its name and pandas dtype.
    meaning, unit : str
        What it says, and in what: `steps`, `seconds`, `word`, `1` for a pure number, ...
    allowed : Range, OneOf or None
        The values that it may have besides missing ones (NaN, an empty word); None for all of its
        type.
    stage : str
        One of `STAGES`.
    default : Any
        The value of an instance without a result.
    """

    name: str
    dtype: str
    meaning: str
    unit: str
    allowed: Allowed
    stage: str
    default: Any = NAN

    @property
    def range(self) -> str:
        """The allowed values as text."""
        kinds = {"str": "any text", "bool": "true | false", "boolean": "true | false"}
        if self.allowed is None:
            return kinds.get(self.dtype, "any number")
        return str(self.allowed).removeprefix("a finite number ")


def column(meaning: str, unit: str, allowed: Allowed, stage: str, default: Any = NAN) -> Any:
    """Return a dataclass field that declares a column."""
    metadata = {"meaning": meaning, "unit": unit, "allowed": allowed, "stage": stage}
    return dataclasses.field(default=default, metadata=metadata)


def columns_of(schema: type, norm: str = "") -> list[Column]:
    """Return the columns declared by a dataclass; those of a norm start with its name."""
    return [
        Column(
            name=f"{norm}_{f.name}" if norm else f.name,
            dtype=TYPES[str(f.type)],
            **{key: f.metadata[key] for key in ("unit", "allowed", "stage")},
            meaning=f.metadata["meaning"].format(norm=norm),
            default=f.default,
        )
        for f in dataclasses.fields(schema)
    ]


# --- allowed values -------------------------------------------------------------------------------

COUNT = Range(low=0)
SHARE = Range(0, 1)
DISTANCE = Range(0, 2 + 1e-12)  # 2 up to rounding

STATUS = OneOf(
    ("ok", "rejected", "tie", "unsaturated", "diverged", "stalled", "infeasible", "undecided",
     "unconstrained")
)  # fmt: skip
SVM_STATUS = OneOf(("solved", "infeasible", "undecided", "unconstrained"))
TRAINING = OneOf(("saturated", "unsaturated", "finite_optimum", "stalled", "diverged"))
CONVERGENCE = OneOf(
    ("global", "local", "not_local", "unsettled", "unknown", "unsaturated", "infeasible",
     "undecided")
)  # fmt: skip
STATES = OneOf(("done", "running", "failed", "interrupted", "lost", "missing", "corrupt"))


# --- trials.parquet -------------------------------------------------------------------------------


@dataclass(frozen=True)
class TrialRow:
    """Columns of `trials.parquet`; the columns of `NormColumns` follow for each norm."""

    seed: int = column("seed of the instance", "1", COUNT, "draw", default=0)
    status: str = column(
        "ok, or the first reason why the instance is no data point", "word", STATUS, "select", "ok"
    )
    reason: str = column("why the status is not ok", "text", None, "select", "")
    training: str = column("how training ended", "word", TRAINING, "train", "")
    convergence: str = column(
        "what W converged to: optimal, locally optimal or other tokens; selection=top",
        "word", CONVERGENCE, "compare", "",
    )  # fmt: skip
    direction_change: float = column(
        "1 - correlation of the trained W with W half-way", "1", DISTANCE, "compare"
    )
    tie: bool = column(
        "two tokens share the best score or the largest softmax", "flag", None, "select", False
    )
    saturated: bool = column(
        "min_top_softmax >= selection.saturation", "flag", None, "select", False
    )
    min_top_softmax: float = column("least largest softmax of the samples", "1", SHARE, "select")
    max_masked_softmax: float = column(
        "largest softmax below selection.attended, 0 if there is none", "1", SHARE, "select"
    )
    assumption_b1: bool | None = column(
        "Assumption B.1: all margins at the optimal tokens equal 1", "flag", None, "svm", None
    )
    attended_tokens: float = column(
        "tokens per sample with softmax >= selection.attended, mean over the samples", "tokens",
        NON_NEGATIVE, "select",
    )  # fmt: skip
    flat: bool | None = column(
        "the gradient of the head is zero for some sample, which does not train W then", "flag",
        None, "train", None,
    )  # fmt: skip
    risk: float = column(
        "training loss of the trained weights, without ridge", "loss", None, "train"
    )
    W_norm: float = column("Frobenius norm of the trained W", "norm of W", NON_NEGATIVE, "train")
    one_minus_corr_frobenius: float = column(
        "1 - correlation of the trained W with W_mm, the SVM of least Frobenius norm", "1",
        DISTANCE, "compare",
    )  # fmt: skip
    one_minus_corr_nuclear: float = column(
        "1 - correlation of the trained W with W_star_mm, the SVM of least nuclear norm", "1",
        DISTANCE, "compare",
    )  # fmt: skip
    one_minus_corr_svmeq: float = column(
        "1 - correlation of the trained W with W_fin + C W_mm, best C; selection=multi", "1",
        DISTANCE, "compare",
    )  # fmt: skip
    one_minus_corr_svmeq_lsq: float = column(
        "the same with C of least squares, as published; selection=multi", "1", DISTANCE, "compare"
    )
    one_minus_corr_1token: float = column(
        "1 - correlation of the trained W with the SVM of the most attended tokens; "
        "selection=multi", "1", DISTANCE, "compare",
    )  # fmt: skip
    published_frobenius_status: str = column(
        "what the solver of the published scripts says, least Frobenius norm", "word", None,
        "published", "",
    )  # fmt: skip
    published_frobenius_rank: int | None = column(
        "singular values above 1e-7 of its solution", "count", COUNT, "published", None
    )
    published_nuclear_status: str = column(
        "what the solver of the published scripts says, least nuclear norm", "word", None,
        "published", "",
    )  # fmt: skip
    published_nuclear_rank: int | None = column(
        "singular values above 1e-7 of its solution", "count", COUNT, "published", None
    )


@dataclass(frozen=True)
class NormColumns:
    """Columns of one SVM in `TrialRow`, prefixed by the norm's name."""

    status: str = column("what is proved of the SVM, {norm} norm", "word", SVM_STATUS, "svm", "")
    objective: float = column(
        "{norm} norm of the solution: upper bound of the least norm, inf without a solution",
        "norm of W", NON_NEGATIVE, "svm",
    )  # fmt: skip
    lower_bound: float = column(
        "certified lower bound of the least {norm} norm", "norm of W", NON_NEGATIVE, "svm"
    )
    gap: float = column("duality gap, objective / lower_bound - 1", "1", None, "svm")
    min_margin: float = column(
        "least margin of the solution, -inf without one, inf without constraints", "logit", None,
        "svm",
    )  # fmt: skip
    kappa: float = column(
        "conditioning: no certificate can have a gap below about 2e-16 kappa", "1", NON_NEGATIVE,
        "svm",
    )  # fmt: skip
    rank: int | None = column(
        "rank of the solution: singular values above svm.rank_tolerance of the largest", "count",
        COUNT, "svm", None,
    )  # fmt: skip
    rank_bound: int | None = column(
        "proved upper bound of the rank of every optimum", "count", COUNT, "svm", None
    )
    support: int | None = column("tokens whose constraint is active", "count", COUNT, "svm", None)
    margin_gap: float = column(
        "1 - least {norm} norm with the margins of the trained W, and with selection=multi its "
        "log-ratios of the attended tokens, divided by the {norm} norm of W", "1",
        Range(low=-1e-6), "compare",
    )  # fmt: skip


# --- history.parquet ------------------------------------------------------------------------------


@dataclass(frozen=True)
class HistoryRow:
    """Columns of `history.parquet`: a row for each instance, recorded step and quantity."""

    seed: int = column("seed of the instance", "1", COUNT, "draw", 0)
    step: float = column(
        "number of updates; for a regularisation path the radius", "steps, or norm of W",
        NON_NEGATIVE, "train",
    )  # fmt: skip
    quantity: str = column(
        "name of what is measured, see the quantities", "word", None, "train", ""
    )
    value: float = column("its value at this step", "that of the quantity", None, "train")


@dataclass(frozen=True)
class Quantities:
    """Quantities of `history.parquet`, each at every recorded step."""

    risk: float = column("training loss, without ridge", "loss", None, "train")
    max_softmax: float = column(
        "largest softmax of a sample, mean over samples", "1", SHARE, "train"
    )
    W_norm: float = column("Frobenius norm of W", "norm of W", NON_NEGATIVE, "train")
    one_minus_corr_frobenius: float = column(
        "1 - correlation of W with W_mm, the SVM of least Frobenius norm", "1", DISTANCE, "compare"
    )
    one_minus_corr_nuclear: float = column(
        "1 - correlation of W with W_star_mm, the SVM of least nuclear norm", "1", DISTANCE,
        "compare",
    )  # fmt: skip
    one_minus_corr_svmeq: float = column(
        "1 - correlation of W with W_fin + C W_mm, best C; selection=multi", "1", DISTANCE,
        "compare",
    )  # fmt: skip
    one_minus_corr_svmeq_lsq: float = column(
        "the same with C of least squares, as published; selection=multi", "1", DISTANCE, "compare"
    )
    one_minus_corr_1token: float = column(
        "1 - correlation of W with the SVM of the most attended tokens; selection=multi", "1",
        DISTANCE, "compare",
    )  # fmt: skip


# --- layers and heads -----------------------------------------------------------------------------


@dataclass(frozen=True)
class LayerRow:
    """Columns of trials and history that say of which layer and head a row is."""

    layer: int = column("layer of the network, the first is 0", "1", COUNT, "train", 0)
    attention_head: int = column(
        "head of this layer's attention, the first is 0", "1", COUNT, "train", 0
    )


@dataclass(frozen=True)
class LayerColumns:
    """Further columns of trials of a network."""

    positions_seen: float = column(
        "positions at this layer's input that the readout sees, mean over the sequences",
        "positions", NON_NEGATIVE, "select",
    )  # fmt: skip
    unseen_gradient: float = column(
        "share of the gradient in W at the last step that comes from positions which the readout "
        "does not see", "1", SHARE, "train",
    )  # fmt: skip
    selected_since: float = column(
        "first recorded step since which every sample attends most to the token that it selects",
        "steps", NON_NEGATIVE, "train",
    )  # fmt: skip


def layer_columns(model: Mapping[str, Any]) -> tuple[Column, ...]:
    """Return the columns that trials have with this model only."""
    return LAYER_COLUMNS if is_transformer(model) else ()


def key_columns(names: Iterable[Any]) -> list[str]:
    """Return which of these columns tell the rows of a run's trials apart.

    A row is an instance, or a layer and head of one. The history has a row for each of these, step
    and quantity.
    """
    names = set(names)
    return ["seed", *(one.name for one in LAYER_KEY if one.name in names)]


# --- the runs of a folder -------------------------------------------------------------------------


@dataclass(frozen=True)
class RunRow:
    """Columns of the table of runs; the fields of the run's config follow."""

    run: str = column("name of the run's folder", "word", None, "aggregate", "")
    state: str = column("how far the run is", "word", STATES, "aggregate", "")
    reason: str = column("why it is not done", "text", None, "aggregate", "")
    place: str = column("file and line of the error of a failed run", "text", None, "record", "")
    sweep: str = column(
        "name of the experiment, missing for an ad-hoc sweep", "word", None, "record", ""
    )
    question: str = column("what the experiment asks", "text", None, "record", "")
    wanted: int = column(
        "rows that the run was asked for: instances, with model=transformer each layer and head of "
        "one", "count", COUNT, "record", 0,
    )  # fmt: skip
    drawn: int = column("rows of the instances that were drawn", "count", COUNT, "draw", 0)
    accepted: int = column("rows with status ok", "count", COUNT, "select", 0)
    wall_s: float = column("wall time of all stages", "seconds", NON_NEGATIVE, "record")
    draw_s: float = column("wall time of drawing", "seconds", NON_NEGATIVE, "record")
    train_s: float = column("wall time of training", "seconds", NON_NEGATIVE, "record")
    svm_s: float = column("wall time of the SVMs", "seconds", NON_NEGATIVE, "record")
    published_s: float = column(
        "wall time of the published solvers", "seconds", NON_NEGATIVE, "record"
    )
    compare_s: float = column("wall time of comparing", "seconds", NON_NEGATIVE, "record")
    probe_s: float = column("wall time of the probes", "seconds", NON_NEGATIVE, "record")
    tabulate_s: float = column("wall time of making the tables", "seconds", NON_NEGATIVE, "record")
    device: str = column("where it was computed", "word", None, "record", "")
    version: str = column("version of attnsvm", "word", None, "record", "")
    git_revision: str = column("git revision of the code", "word", None, "record", "")
    code: str = column("digest of the code", "word", None, "record", "")
    python: str = column("version of Python", "word", None, "record", "")
    packages: str = column("versions of the packages", "text", None, "record", "")
    hardware: str = column("processor, cores and memory", "text", None, "record", "")
    overrides: str = column("what was typed", "text", None, "record", "")


# --- probes ---------------------------------------------------------------------------------------


def probe_columns(quantities: Mapping[str, Quantity]) -> tuple[Column, ...]:
    """Return the columns of trials that probes add; in the history they are quantities.

    Parameters
    ----------
    quantities : mapping of str to Quantity
        By the name of their column, see `attnsvm.config.probe.probe_quantities`.

    Raises
    ------
    ConfigError
        If a name is that of a fixed column or quantity.
    """
    fixed = *TRIAL_COLUMNS, *hypothesis_columns(HYPOTHESES), *HISTORY_COLUMNS, *QUANTITIES
    fixed = *fixed, *LAYER_COLUMNS
    taken = {one.name for one in fixed}
    for name in taken & set(quantities):
        raise ConfigError(f"probe: its column {name} must have another name, every record has one")
    return tuple(
        Column(name, "float64", one.meaning, one.unit, one.allowed, "probe")
        for name, one in quantities.items()
    )


def recorded_probe_columns(probes: Mapping[str, Mapping[str, str]]) -> tuple[Column, ...]:
    """Return the columns that a `run.json` says that its probes add."""
    stated = {name: (probes[name]["meaning"], probes[name]["unit"]) for name in sorted(probes)}
    return probe_columns({name: Quantity(*texts) for name, texts in stated.items()})


# --- norms beside the two that every record has ---------------------------------------------------


def norm_columns(norms: Sequence[str]) -> tuple[Column, ...]:
    """Return the columns of trials of those of these norms that not every record has."""
    columns: list[Column] = []
    for norm in norms:
        if norm not in NORMS:
            columns += [*columns_of(NormColumns, norm), correlation(norm)]
    return tuple(columns)


def correlation(norm: str) -> Column:
    """Return the column of 1 - correlation of W with the SVM of a further norm."""
    meaning = (
        f"1 - correlation of W with an SVM solution of least {norm} norm, perhaps not the only"
    )
    return Column(f"one_minus_corr_{norm}", "float64", meaning, "1", DISTANCE, "compare")


def norm_quantities(norm: str) -> tuple[Column, ...]:
    """Return the quantities of the history of a further norm."""
    (gap,) = (one for one in columns_of(NormColumns, norm) if one.name.endswith("_margin_gap"))
    gap = dataclasses.replace(gap, name=f"margin_gap_{norm}")
    return correlation(norm), gap


# --- selection=multi ------------------------------------------------------------------------------


def multi_columns(tokens: str, norms: Sequence[str]) -> tuple[Column, ...]:
    """Return the columns of trials that selection=multi adds for these norms."""
    if tokens != "multi":
        return ()
    return tuple(one for norm in norms for one in (_factor(norm), *svmeq_quantities(norm)))


def svmeq_quantities(norm: str) -> tuple[Column, ...]:
    """Return the quantities of the history that selection=multi adds for a norm."""
    if norm == "frobenius":  # every record has its column
        return ()
    meaning = f"1 - correlation of W with W_fin + C W_mm of least {norm} norm, best C"
    return (Column(svmeq_name(norm), "float64", meaning, "1", DISTANCE, "compare"),)


def svmeq_name(norm: str) -> str:
    """Return the column of 1 - correlation with W_fin + C W_mm of least `norm`."""
    return "one_minus_corr_svmeq" if norm == "frobenius" else f"one_minus_corr_svmeq_{norm}"


def _factor(norm: str) -> Column:
    meaning = (
        f"C of the W_fin + C W_mm of least {norm} norm that agrees best with the trained W, inf "
        "where W_mm alone does"
    )
    return Column(f"svmeq_C_{norm}", "float64", meaning, "1", NON_NEGATIVE, "compare")


def further_columns(run: Mapping[str, Any]) -> tuple[Column, ...]:
    """Return the columns that the trials of a `run.json` have beside the fixed ones."""
    config = run["config"]
    norms, tokens = config["svm"]["norms"], config["selection"]["tokens"]
    fixed = *norm_columns(norms), *multi_columns(tokens, norms)
    fixed = *fixed, *hypothesis_columns(config["hypotheses"])
    return (*fixed, *layer_columns(config["model"]), *recorded_probe_columns(run["probes"]))


# --- hypotheses of theorems -----------------------------------------------------------------------


def hypothesis_columns(names: Iterable[str]) -> tuple[Column, ...]:
    """Return the columns of the hypotheses that a run decides."""
    return tuple(
        Column(name, "boolean", HYPOTHESES[name], "flag", None, "svm", None) for name in names
    )


# --- the dictionary -------------------------------------------------------------------------------

TRIAL_COLUMNS = (
    *columns_of(TrialRow),
    *(one for norm in NORMS for one in columns_of(NormColumns, norm)),
)
HISTORY_COLUMNS = tuple(columns_of(HistoryRow))
QUANTITIES = tuple(columns_of(Quantities))
RUN_COLUMNS = tuple(columns_of(RunRow))
LAYER_KEY = tuple(columns_of(LayerRow))
LAYER_COLUMNS = (*LAYER_KEY, *columns_of(LayerColumns))


def dictionary(probes: Mapping[str, Any] = PROBES.own) -> dict[str, Sequence[Column]]:
    """Return the columns of every table, and the quantities of the history, by heading.

    `probes` are those that are listed, by default attnsvm's own.
    """
    return {
        "trials": TRIAL_COLUMNS,
        "history": HISTORY_COLUMNS,
        "trials, for each further norm of svm.norms": norm_columns(["<norm>"]),
        "trials, with selection=multi, for each norm of svm.norms": multi_columns(
            "multi", ["<norm>"]
        ),
        "columns of hypotheses": hypothesis_columns(HYPOTHESES),
        "trials, with model=transformer": LAYER_COLUMNS,
        "history, with model=transformer": LAYER_KEY,
        "quantities of the history": QUANTITIES,
        "quantities of the history, for each further norm of svm.norms": norm_quantities("<norm>"),
        "quantities of the history, with selection=multi, for each norm but frobenius": (
            svmeq_quantities("<norm>")
        ),
        "columns and quantities of probes": probe_columns(probe_quantities(probes)),
        "runs": RUN_COLUMNS,
    }
