"""The rows of `trials.parquet`: which seeds, and the status that follows from the other columns."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from attnsvm.config.groups import one_layer_problems
from attnsvm.config.optimizer import CONES
from attnsvm.experiment import MAX_DRAWS_PER_TRIAL
from attnsvm.experiment.stages import STALLED_REASON, WITHOUT_START
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
    config: Mapping[str, Any],
    ranges: Mapping[str, Callable[[Any], bool]],
    all_positive: bool | None,
) -> Iterator[str]:
    """Yield what is impossible in the row of an instance without arrays.

    Its weights are not stored: status and reason follow from its own columns, which are trusted.

    Parameters
    ----------
    row : mapping
        The row.
    config : mapping
        The recorded config.
    ranges : mapping of str to callable
        Whether a value of a column of training, that follows from the weights, is possible.
    all_positive : bool or None
        Whether all its labels are +1; None if they are not known.
    """
    selection = config["selection"]
    ranges = {
        **ranges,
        "max_masked_softmax": lambda value: 0 <= value <= selection["attended"],
        "min_top_softmax": lambda value: 0 <= value <= 1,
        "W_norm": lambda value: value >= 0,
        "attended_tokens": lambda value: value >= 0,
    }
    for name, allowed in ranges.items():
        if row["training"] != "diverged" and not allowed(row[name]):
            yield f"{name}: {row[name]} is impossible"
    end = "saturated" if row["saturated"] else "unsaturated"
    saturated = row["min_top_softmax"] >= selection["saturation"]
    possible = row["training"] in (end, "stalled", "finite_optimum", "diverged")
    if not possible or row["saturated"] != saturated:
        yield f"training {row['training']}, saturated {row['saturated']}: is impossible"
    allowed_pairs = []
    for holds, status, reason in _marks(row, config, all_positive):
        if holds or holds is None:
            allowed_pairs.append((status, reason))
        if holds:
            break
    if (row["status"], row["reason"]) not in allowed_pairs:
        words = " or ".join(f"{status} ({reason})" for status, reason in allowed_pairs) or "ok"
        yield f"status is {words}, stated is {row['status']} ({row['reason']})"


def _marks(
    row: Row, config: Mapping[str, Any], all_positive: bool | None
) -> Iterator[tuple[bool | None, str, str]]:
    """Yield whether an instance is excluded, with which status and reason, in their order."""
    selection, diverged = config["selection"], row["training"] == "diverged"
    attended, negligible = selection["attended"], selection["negligible"]
    if diverged and config["optimizer"].get("init") in CONES:
        yield None, "rejected", WITHOUT_START
    yield diverged, "diverged", "a weight is not finite"
    yield None if row["tie"] else False, "tie", "two tokens share the largest softmax"
    if not selection["keep_stalled"]:
        yield row["training"] == "stalled", "stalled", STALLED_REASON
    if selection["reject_all_positive"]:
        yield all_positive, "rejected", "all labels are +1"
    reason = f"a softmax lies in ({negligible:g}, {attended:g})"
    yield row["max_masked_softmax"] > negligible, "rejected", reason
    yield None, "rejected", f"no softmax is <= {negligible:g}"
    reason = f"a sample attends to no token, all its softmax are < {attended:g}"
    yield not row["min_top_softmax"] >= attended, "rejected", reason
