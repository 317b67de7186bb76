"""The columns of all tables: name, type, meaning, unit, allowed values, and stage that fills them.

Each is declared once, in `columns.csv`: what is measured of W is a column of the trials, where W is
the trained one, and a quantity of the history, where W is that of the step. Parquet files carry
meaning and unit of each of their columns; `attnsvm --columns` and the site show the whole
dictionary.
"""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self, cast

from attnsvm.config import ConfigError, Quantity
from attnsvm.config.fields import OneOf, Range, allowed_values
from attnsvm.config.groups import JointHeadConfig, LinearHeadConfig, is_transformer
from attnsvm.config.run import HYPOTHESES
from attnsvm.config.words import MEANINGS, rows

STAGES = MEANINGS["stage"]
"""What fills columns."""

STATES = MEANINGS["state"]
"""States of a run."""

Allowed = Range | OneOf | None


@dataclass(frozen=True)
class Column:
    """A column of a table, or a quantity of the history: its name, pandas dtype, meaning, unit, ...

    `allowed` are the values that it may have besides missing ones (NaN, an empty word), None for
    all of its type; `stage` is one of `STAGES`; `default` is that of an instance without a result.
    """

    name: str
    dtype: str
    meaning: str
    unit: str
    allowed: Allowed
    stage: str
    default: Any

    def of(self, norm: str) -> Self:
        """Return the column of a norm, whose name takes the place of `<norm>`."""
        name, meaning = (text.replace("<norm>", norm) for text in (self.name, self.meaning))
        return replace(self, name=name, meaning=meaning)

    @property
    def range(self) -> str:
        """The allowed values as text."""
        kinds = {"str": "any text", "bool": "true | false", "boolean": "true | false"}
        if self.allowed is None:
            return kinds.get(self.dtype, "any number")
        return str(self.allowed).removeprefix("a finite number ")


NAN = float("nan")
COUNT = Range(low=0)
KINDS: Mapping[str, tuple[str, Any, str, Allowed]] = {
    "number": ("float64", NAN, "1", None),
    "distance": ("float64", NAN, "1", Range(0, 2 + 1e-12)),  # 1 - correlation, up to rounding
    "whole": ("int64", 0, "count", COUNT),
    "count": ("Int64", None, "count", COUNT),
    "word": ("str", "", "word", None),
    "text": ("str", "", "text", None),
    "flag": ("boolean", None, "flag", None),
    "decided": ("bool", False, "flag", None),
}
"""Kind -> type, default, and unit and allowed values unless others are given.

Numbers, counts and flags may be missing; every row has the whole numbers and what is decided.
"""


def column(
    name: str, kind: str, stage: str, meaning: str, unit: str = "", allowed: Allowed = None
) -> Column:
    """Return a column of one of `KINDS`."""
    dtype, default, own_unit, own_allowed = KINDS[kind]
    return Column(name, dtype, meaning, unit or own_unit, allowed or own_allowed, stage, default)


DECLARED: dict[str, tuple[Column, ...]] = {}
"""The columns of `columns.csv`, by table."""
for _row in rows(Path(__file__).with_name("columns.csv")):
    _table, _allowed = _row.pop("table"), allowed_values(_row.pop("allowed"))
    DECLARED[_table] = (*DECLARED.get(_table, ()), column(**_row, allowed=_allowed))

NORMS = ("frobenius", "nuclear")
"""The norms whose columns every record has."""

SEED, *_ = DECLARED["key"]
LAYER_KEY = DECLARED["key"][1:]
"""Columns of trials and history that say of which layer and head a row is."""

TRAINED_LINEAR = (LinearHeadConfig._target_, JointHeadConfig._target_)
"""Classes of heads that may be trained and have a law of joint training."""

MEASURED = DECLARED["measured"]
"""Columns of the trials that are quantities of the history too."""

STATUS = cast(OneOf, DECLARED["trials"][0].allowed)
TRIAL_COLUMNS = (
    SEED,
    *DECLARED["trials"],
    *MEASURED,
    *(entry.of(norm) for norm in NORMS for entry in DECLARED["published"]),
    *(entry.of(norm) for norm in NORMS for entry in DECLARED["svm"]),
)
WORDS = {
    entry.name: entry.allowed.words for entry in TRIAL_COLUMNS if isinstance(entry.allowed, OneOf)
}
"""Column of words -> the words that it can hold."""

HISTORY_COLUMNS = (SEED, *DECLARED["history"])
"""Of history.parquet: a row for each instance, recorded step and quantity."""

QUANTITIES = (*MEASURED, *DECLARED["curves"])
LAYER_COLUMNS = (*LAYER_KEY, *DECLARED["layers"])
"""Further columns of trials of a network."""

RUN_COLUMNS = DECLARED["runs"]
"""Of the runs of a folder; the fields of the run's config follow."""


def key_columns(names: Iterable[Any]) -> list[str]:
    """Return which of these columns tell apart the rows of trials: instances, or their heads."""
    names = set(names)
    return ["seed", *(entry.name for entry in LAYER_KEY if entry.name in names)]


# --- columns that not every record has ------------------------------------------------------------


def norm_columns(norms: Iterable[str]) -> tuple[Column, ...]:
    """Return the columns of trials of norms other than Frobenius and nuclear."""
    columns = (*DECLARED["svm"], DECLARED["norm"][0])
    return tuple(entry.of(norm) for norm in norms if norm not in NORMS for entry in columns)


def svmeq_name(norm: str) -> str:
    """Return the column of 1 - correlation with W_fin + C W_mm of least `norm`."""
    return "one_minus_corr_svmeq" if norm == "frobenius" else f"one_minus_corr_svmeq_{norm}"


LAW_QUANTITIES = tuple(
    entry
    for table in ("law", "joint")
    for entry in DECLARED[table]
    if entry.name.startswith("one_")
)
"""Quantities of the history of a run with a law of joint training, or of those of one layer."""


def hypothesis_columns(names: Iterable[str]) -> tuple[Column, ...]:
    """Return the columns of the hypotheses that a run decides."""
    return tuple(column(name, "flag", "svm", HYPOTHESES[name]) for name in names)


def probe_columns(quantities: Mapping[str, Quantity]) -> tuple[Column, ...]:
    """Return the columns of trials that the `quantities` of probes, by column, add."""
    fixed = (*TRIAL_COLUMNS, *HISTORY_COLUMNS, *QUANTITIES, *LAYER_COLUMNS)
    for name in {*HYPOTHESES, *(entry.name for entry in fixed)} & set(quantities):
        raise ConfigError(f"probe: its column {name} must have another name, every record has one")
    return tuple(
        column(name, "number", "probe", entry.meaning, entry.unit, entry.allowed)
        for name, entry in quantities.items()
    )


def columns_digest(config: Mapping[str, Any], probes: Mapping[str, Mapping[str, str]]) -> str:
    """Return the sha256 (12 digits) of the names of all columns and quantities of a run."""
    columns = *TRIAL_COLUMNS, *HISTORY_COLUMNS, *QUANTITIES, *further_columns(config, probes)
    return hashlib.sha256(" ".join(entry.name for entry in columns).encode()).hexdigest()[:12]


def further_columns(
    config: Mapping[str, Any], probes: Mapping[str, Mapping[str, str]]
) -> tuple[Column, ...]:
    """Return the columns besides `TRIAL_COLUMNS` of a run with this `config` in its `run.json`.

    `probes` are meaning and unit of the quantities of its probes, by the name of their column.
    """
    norms, tokens, head = config["svm"]["norms"], config["selection"]["tokens"], config["head"]
    factor, correlation = DECLARED["multi"]
    several, layers = tokens in ("multi", "scc"), is_transformer(config["model"])
    joint = not layers and head["_target_"] in TRAINED_LINEAR and head["train"]
    return (
        *norm_columns(norms),
        *(
            entry.of(norm)
            for norm in (norms if several else ())
            # of frobenius every record has `one_minus_corr_svmeq`
            for entry in ((factor,) if norm == "frobenius" else (factor, correlation))
        ),
        *(DECLARED["scc"] if tokens == "scc" else ()),
        *(DECLARED["joint"] if tokens == "top" and joint else ()),
        *(DECLARED["law"] if tokens == "top" and (joint or layers) else ()),
        *hypothesis_columns(config["hypotheses"]),
        *(LAYER_COLUMNS if layers else ()),
        *probe_columns(
            {
                name: Quantity(entry["meaning"], entry["unit"])
                for name, entry in sorted(probes.items())
            }
        ),
    )
