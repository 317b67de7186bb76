"""The rows of `trials.parquet`: which seeds, and the status that follows from the other columns."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from attnsvm.config.optimizer import CONES
from attnsvm.config.transformer import one_layer_problems
from attnsvm.record.columns import key_columns

MAX_DRAWS_PER_TRIAL = 200
WITHOUT_START = "init=cone: the SVM of the tokens is not solved and has no direction"
TIED = "two tokens share the best score: which one is optimal is not decided"

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
            told = ", ".join(f"{name} {value}" for name, value in zip(keys, must, strict=True))
            yield "rows", row["seed"], f"row {k} must be of {told}"
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


def key_of(row: Row, keys: Sequence[str]) -> tuple[int, ...]:
    """Return what tells the row apart from the others: its values in the columns `keys`."""
    return tuple(int(row[name]) for name in keys)


@dataclass(frozen=True)
class Facts:
    """What decides a status beside the row itself; None where it is not known.

    Attributes
    ----------
    tied_softmax, tied_scores : bool or None
    other_tokens : bool or None
        Tied best scores belong to different tokens.
    all_positive : bool or None
        All labels are +1.
    some_negligible : bool or None
        Some softmax is <= selection.negligible.
    svms : mapping of str to str
        Status of each SVM, by its name in `solutions.npz`.
    """

    tied_softmax: bool | None = None
    tied_scores: bool | None = None
    other_tokens: bool | None = None
    all_positive: bool | None = None
    some_negligible: bool | None = None
    svms: Mapping[str, str] | None = None


Mark = tuple[bool | None, str, str]
"""Whether an instance is marked, with which status and which reason (or its beginning)."""


def status_refusal(row: Row, facts: Facts, config: Mapping[str, Any]) -> str:
    """Return why status and reason do not follow; empty if they do."""
    allowed = []
    for holds, status, reason in _MARKS[config["selection"]["tokens"]](row, facts, config):
        if holds or holds is None:
            allowed.append((status, reason))
        if holds:
            break
    else:
        allowed.append(("ok", ""))
    for status, reason in allowed:
        begins = row["reason"].startswith(reason) if reason else row["reason"] == ""
        if row["status"] == status and begins:
            return ""
    words = " or ".join(f"{status} ({reason})" if reason else status for status, reason in allowed)
    return f"status is {words}, stated is {row['status']} ({row['reason']})"


def is_recorded(row: Row, tokens: str) -> bool:
    """Return whether curves and arrays of the instance are kept."""
    return tokens != "multi" or row["status"] in ("ok", "infeasible", "undecided")


def _optimal(row: Row, facts: Facts, config: Mapping[str, Any]) -> Iterator[Mark]:
    yield facts.other_tokens, "tie", TIED
    yield from _svms(facts, config)
    yield row["tie"], "tie", TIED


def _top(row: Row, facts: Facts, config: Mapping[str, Any]) -> Iterator[Mark]:
    yield from _training(row, facts, config)
    yield facts.tied_scores, "tie", TIED
    saturation = config["selection"]["saturation"]
    reason = f"smallest top softmax is below {saturation:g}"
    yield not row["saturated"], "unsaturated", reason
    yield from _svms(facts, config)


def _multi(row: Row, facts: Facts, config: Mapping[str, Any]) -> Iterator[Mark]:
    yield from _training(row, facts, config)
    asked = config["selection"]
    attended, negligible = asked["attended"], asked["negligible"]
    if asked["reject_all_positive"]:
        yield facts.all_positive, "rejected", "all labels are +1"
    reason = f"a softmax lies in ({negligible:g}, {attended:g})"
    yield row["max_masked_softmax"] > negligible, "rejected", reason
    none = None if facts.some_negligible is None else not facts.some_negligible
    yield none, "rejected", f"no softmax is <= {negligible:g}"
    reason = f"a sample attends to no token, all its softmax are < {attended:g}"
    yield not row["min_top_softmax"] >= attended, "rejected", reason
    names = {
        f"{norm}{part}": f"{norm} W_{name}: "
        for norm in config["svm"]["norms"]
        for part, name in (("_fin", "fin"), ("", "mm"))
    }
    yield from _unsolved({**names, "one_token": "one-token SVM: "}, facts)


def _training(row: Row, facts: Facts, config: Mapping[str, Any]) -> Iterator[Mark]:
    diverged = row["training"] == "diverged"
    if diverged and config["optimizer"].get("init") in CONES:
        yield None, "rejected", WITHOUT_START
    yield diverged, "diverged", "a weight is not finite"
    yield facts.tied_softmax, "tie", "two tokens share the largest softmax"
    if not config["selection"]["keep_stalled"]:
        reason = "the last steps are rounding noise, or the path's last point is not a minimiser"
        yield row["training"] == "stalled", "stalled", reason


def _svms(facts: Facts, config: Mapping[str, Any]) -> Iterator[Mark]:
    for norm in config["svm"]["norms"]:
        yield from _unsolved({norm: f"{norm} SVM: "}, facts)
        if facts.svms is not None:
            yield facts.svms[norm] == "unconstrained", "unconstrained", "there is no token"


def _unsolved(names: Mapping[str, str], facts: Facts) -> Iterator[Mark]:
    for name, reason in names.items():
        for status in ("infeasible", "undecided"):
            found = None if facts.svms is None else facts.svms[name] == status
            yield found, status, reason


_MARKS = {"optimal": _optimal, "top": _top, "multi": _multi}
