"""The form of tables and arrays: which columns and arrays a record has, of which type and shape."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pandas as pd

from attnsvm.config.transformer import is_transformer
from attnsvm.record import trial_columns
from attnsvm.record.column import Column
from attnsvm.record.columns import LAYER_KEY
from attnsvm.verify.instances import UnknownError, option
from attnsvm.verify.probes import factors_are_stored, foreign_probes
from attnsvm.verify.stored import StoredArrays

FACTORS = ("trained_K", "trained_Q")


def table_refusal(table: pd.DataFrame, further: Iterable[Column]) -> str:
    """Return what is wrong with the columns of `trials.parquet`; empty if nothing is.

    `further` are those of other norms and of probes.
    """
    wanted = trial_columns(further)
    if list(table.columns) != list(wanted):
        names = sorted(set(map(str, table.columns)) ^ set(wanted))
        return f"its columns are not those of a record: {', '.join(names) or 'in another order'}"
    for name, (dtype, _) in wanted.items():
        if table[name].dtype != pd.Series([], dtype=dtype).dtype:
            return f"{name} is {table[name].dtype}, must be {dtype}"
    return "" if len(table) else "it has no rows"


def arrays_refusal(
    arrays: StoredArrays,
    config: Mapping[str, Any],
    rows: Mapping[str, Sequence[int]],
    shape: tuple[int, int, int] | None,
    snapshots: int,
) -> str:
    """Return which array is missing, one too many, or of another shape or type; empty if none is.

    Parameters
    ----------
    arrays : StoredArrays
        The content of `solutions.npz`.
    config : mapping
        The recorded config.
    rows : mapping of str to list of int
        The rows of the trials whose arrays must be there, in their order: `seeds` and, of a
        network, layer and head.
    shape : (n, T, d) or None
        That of an instance; None if it does not follow from the config.
    snapshots : int
        Number of recorded snapshots.
    """
    names = list(arrays)
    if len(names) != len(set(names)):
        return "an array is stored twice"
    seeds = rows["seeds"]
    if not seeds:
        return "it holds arrays, but no instance is recorded" if names else ""
    if "X" not in names or len(arrays.header("X")[0]) != 4:
        return "it holds no tokens X (B, n, T, d)"
    n, T, d = shape or arrays.header("X")[0][1:]
    wanted = array_shapes(config, n, T, d, snapshots)
    unknown = [*FACTORS] if foreign_probes(config) else []  # they may need K and Q
    if _head_shapes(config, d) is None:
        unknown += [name for name in names if name.startswith("network_head_")]
    for name in unknown:
        if name in names:
            wanted.setdefault(name, (arrays.header(name)[0][1:], "f8"))
    if set(names) != set(wanted):
        missing, extra = sorted(set(wanted) - set(names)), sorted(set(names) - set(wanted))
        return f"missing: {', '.join(missing) or 'none'}; too many: {', '.join(extra) or 'none'}"
    for name, (form, kind) in wanted.items():
        found, dtype = arrays.header(name)
        right = dtype.kind == "U" if kind == "U" else dtype.str in (f"<{kind}", f"|{kind}")
        if found != (len(seeds), *form) or not right:
            return f"{name}: {found} {dtype}, must be {(len(seeds), *form)} {kind}"
    for name, values in rows.items():
        if [int(value) for value in arrays[name]] != list(values):
            return f"its {name} are not those of the recorded rows"
    return ""


def trains_linear_head(config: Mapping[str, Any]) -> bool:
    """Return whether v of a linear head is trained, so that it and the labels are stored."""
    head = config["head"]
    linear = head["_target_"] == "attnsvm.head.Linear"
    return linear and bool(head["train"]) and not is_transformer(config["model"])


def _trained(config: Mapping[str, Any], d: int) -> dict[str, tuple[int, ...]]:
    """Return the shapes of what a network trains, by the names in the record without `network_`."""
    model = config["model"]
    L, H, width = model["layers"], model["heads"], model["mlp"]
    found: dict[str, tuple[int, ...]] = {"W": (L, H, d, d)}
    if model["trained"] in ("values", "all"):
        found["V"] = L, H, d, d
    if model["trained"] in ("mlp", "all") and width:
        found |= {"M1": (L, d, width), "M2": (L, width, d)}
    for name, form in (_head_shapes(config, d) or {}).items():
        found[f"head_{name}"] = form
    return found


def _head_shapes(config: Mapping[str, Any], d: int) -> dict[str, tuple[int, ...]] | None:
    """Return the shapes of the head's parameters if a network trains them; None for a plug-in."""
    if config["model"].get("trained") not in ("head", "all"):
        return {}
    try:
        kind = option(config, "head")
    except UnknownError:
        return None
    if kind == "Mlp":
        width = config["head"]["width"]
        of_layers = {"0_weight": (width, d), "0_bias": (width,)}
        return {**of_layers, "2_weight": (1, width), "2_bias": (1,)}
    return {"V": (d, d)} if kind == "Relu" else {"v": (d,)}


def array_shapes(
    config: Mapping[str, Any], n: int, T: int, d: int, snapshots: int
) -> dict[str, tuple[tuple[int, ...], str]]:
    """Return shape (of one instance) and kind of type of every array that a record must hold."""
    tokens, norms = config["selection"]["tokens"], config["svm"]["norms"]
    rows = n * max(T - 1, 1)
    arrays: dict[str, tuple[tuple[int, ...], str]] = {
        "X": ((n, T, d), "f8"), "Z": ((n, d), "f8"), "mask": ((n, T), "b1"),
        "seeds": ((), "i8"), "selected": ((n,), "i8"),
    }  # fmt: skip
    if tokens != "optimal":
        arrays["trained_W"] = (d, d), "f8"
        if factors_are_stored(config):
            m = config["parameterization"].get("m") or d
            arrays |= dict.fromkeys(FACTORS, ((d, m), "f8"))
        if trains_linear_head(config):
            arrays |= {"trained_v": ((d,), "f8"), "Y": ((n,), "f8")}
        if config["keep_path"]:
            grid = "f8" if "radii" in config["optimizer"] else "i8"
            arrays |= {
                "snapshots": ((snapshots, d, d), "f8"), "softmax": ((snapshots, n, T), "f8"),
                "steps": ((snapshots,), grid), "scores": ((n, T), "f8"),
            }  # fmt: skip
    if is_transformer(config["model"]):
        arrays |= dict.fromkeys([one.name for one in LAYER_KEY], ((), "i8"))
        arrays |= {f"network_{name}": (form, "f8") for name, form in _trained(config, d).items()}
    svms = list(norms)
    if tokens == "multi":
        arrays |= {"attended": ((n, T), "b1"), "log_softmax": ((n, T), "f8")}
        svms += [f"{norm}_fin" for norm in norms] + ["one_token"]
        arrays |= {f"{norm}_attained_multipliers": ((rows,), "f8") for norm in norms}
    for name in svms:
        arrays |= {
            f"{name}_W": ((d, d), "f8"), f"{name}_rank": ((), "i8"), f"{name}_status": ((), "U"),
            f"{name}_multipliers": ((rows,), "f8"), f"{name}_ray": ((rows,), "f8"),
        }  # fmt: skip
        numbers = ("objective", "lower_bound", "duality_gap", "min_margin")
        arrays |= {f"{name}_{number}": ((), "f8") for number in numbers}
    return arrays
