"""The rows of `trials.parquet`: which seeds, and the status that follows from the other columns."""

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from attnsvm.config import RunConfig
from attnsvm.config.groups import one_layer_problems
from attnsvm.config.optimizer import CONES
from attnsvm.experiment import MAX_DRAWS_PER_TRIAL
from attnsvm.experiment.results import exclusions
from attnsvm.record.columns import key_columns
from attnsvm.verify.stored import key_of

Row = Mapping[str, Any]
Refusal = tuple[str, int | None, str]
"""What is refused, the seed of its row, and why."""


def row_refusals(
    run: Mapping[str, Any], rows: Sequence[Row], available: float
) -> Iterator[Refusal]:
    """Yield what is wrong with number and order of the rows, and with the counts of `run.json`.

    `available` is the number of instances in a data file, NaN if it is not here.
    """
    config = run["config"]
    keys, model = key_columns(rows[0] if rows else ()), config["model"]
    each, heads = one_layer_problems(model), model["heads"] if len(keys) > 1 else 1
    for k, row in enumerate(rows):
        must = (config["seed"] + k // each, k % each // heads, k % heads)[: len(keys)]
        if key_of(row, keys) != must:
            words = ", ".join(f"{name} {value}" for name, value in zip(keys, must, strict=True))
            yield "rows", row["seed"], f"row {k} must be of {words}"
            break
    accepted = sum(row["status"] == "ok" for row in rows)
    wanted, available = config["trials"] * each, available * each
    if not config["selection"]["until_accepted"]:
        unknown = math.isnan(available)
        count = f"1 to {wanted}" if unknown else min(wanted, available)
        if not (0 < len(rows) <= wanted if unknown else len(rows) == count):
            yield "rows", None, f"there are {len(rows)} rows, must be {count}"
    elif accepted < wanted:
        if len(rows) < MAX_DRAWS_PER_TRIAL * wanted:
            yield "rows", None, f"{accepted} are accepted of {len(rows)}, must be {wanted}"
    elif accepted > wanted or rows[-1]["status"] != "ok":
        yield "rows", None, f"the rows must end with the accepted instance number {wanted}"
    statuses = dict(Counter(row["status"] for row in rows))
    stated = {"wanted": wanted, "drawn": len(rows), "accepted": accepted, "statuses": statuses}
    for name, value in stated.items():
        if run[name] != value:
            yield "run.json", None, f"{name} is {value}, stated is {run[name]}"


def is_recorded(row: Row, tokens: str) -> bool:
    """Return whether curves and arrays of the instance are kept."""
    return tokens != "multi" or row["status"] in ("ok", "infeasible", "undecided")


def rejection_refusals(
    row: Row,
    config: RunConfig,
    ranges: Mapping[str, Callable[[Any], bool]],
    all_positive: bool | None,
) -> Iterator[str]:
    """Yield what is impossible in the row of an instance without arrays.

    Its weights are not stored: status and reason follow from its own columns, which are trusted.
    `ranges` says whether a value of a column that follows from the weights is possible, and
    `all_positive` whether all labels are +1; None if they are not known.
    """
    chosen, ended = config.selection, row["training"]
    ranges = {
        **ranges,
        "max_masked_softmax": lambda value: 0 <= value <= chosen.attended,
        "min_top_softmax": lambda value: 0 <= value <= 1,
        "W_norm": lambda value: value >= 0,
        "attended_tokens": lambda value: value >= 0,
    }
    for name, allowed in ranges.items():
        if ended != "diverged" and not allowed(row[name]):
            yield f"{name}: {row[name]} is impossible"
    end = "saturated" if row["saturated"] else "unsaturated"
    saturated = row["min_top_softmax"] >= chosen.saturation
    possible = ended in (end, "stalled", "finite_optimum", "diverged")
    if not possible or row["saturated"] != saturated:
        yield f"training {ended}, saturated {row['saturated']}: is impossible"
    startless = ended == "diverged" and getattr(config.optimizer, "init", "") in CONES
    pairs = []
    for holds, *pair in exclusions(  # None: it may be
        chosen,
        startless=None if startless else False,
        diverged=ended == "diverged",
        tied_softmax=None if row["tie"] else False,
        stalled=ended == "stalled",
        positive=all_positive,
        ambiguous=row["max_masked_softmax"] > chosen.negligible,
        nothing_negligible=None,
        unattended=not row["min_top_softmax"] >= chosen.attended,
    ):
        pairs += [tuple(pair)] if holds or holds is None else []
        if holds:
            break
    if (row["status"], row["reason"]) not in pairs:
        words = " or ".join(f"{status} ({reason})" for status, reason in pairs) or "ok"
        yield f"status is {words}, stated is {row['status']} ({row['reason']})"
