"""Forgeries made by hand: the kind of record, and what is changed in it."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd

from tests.quick import beside, expressed
from tests.verify.forging import Forgery, array, cell, config_of, curve, stated

NORMS = ("frobenius", "nuclear")


def other(tokens: np.ndarray) -> np.ndarray:
    return (tokens + 1) % 4


def a_little_more(value: float) -> float:
    return value * (1 + 1e-6)


def trials(change: Callable[[pd.DataFrame], pd.DataFrame]) -> Callable[[Forgery], None]:
    return lambda f: setattr(f, "trials", change(f.trials))


def history(change: Callable[[pd.DataFrame], pd.DataFrame]) -> Callable[[Forgery], None]:
    return lambda f: setattr(f, "history", change(f.history))


def first(f: Forgery, norm: str, status: str) -> int:
    """Return the first instance whose SVM has this status."""
    return int(np.flatnonzero(f.arrays[f"{norm}_status"] == status)[0])


def infeasible(forge: Callable[[Forgery, int], object]) -> Callable[[Forgery], object]:
    return lambda f: forge(f, first(f, "frobenius", "infeasible"))


def undecided(forge: Callable[[Forgery, int], object]) -> Callable[[Forgery], object]:
    return lambda f: forge(f, first(f, "nuclear", "undecided"))


def passed_off(f: Forgery, k: int, status: str, reason: str = "") -> None:
    f.cell("status", status, k)
    f.cell("reason", reason, k)


def swapped_instances(f: Forgery) -> None:
    """All arrays and cells but the seeds change places: each instance is proved, and another's."""
    for name in set(f.arrays) - {"seeds"}:
        f.arrays[name] = f.arrays[name][[1, 0, 2, 3]]
    columns = [c for c in f.trials.columns if c != "seed"]
    rows = f.trials.loc[[1, 0], columns].reset_index(drop=True)
    f.trials.loc[[0, 1], columns] = rows
    one, two = f.trials["seed"].iloc[:2]
    f.history["seed"] = f.history["seed"].replace({one: two, two: one})
    f.history = f.history.sort_values("seed", kind="stable", ignore_index=True)


def scaled_weights(f: Forgery) -> None:
    """Longer weights, with a norm to match."""
    f.array("trained_W", lambda W: 2 * W)
    f.cell("W_norm", lambda norm: 2 * norm)
    f.curve("W_norm", -1, lambda norm: 2 * norm)


def called_undecided(f: Forgery, k: int = 0) -> None:
    """An instance is called undecided."""
    for norm in NORMS:
        f.array(f"{norm}_status", lambda _: "undecided", k)
        f.cell(f"{norm}_status", "undecided", k)
    passed_off(f, k, "undecided", "frobenius SVM: neither optimality nor infeasibility is proved")


def called_solved(f: Forgery, k: int) -> None:
    """An undecided SVM is called solved."""
    f.array("nuclear_status", lambda _: "solved", k)
    f.cell("nuclear_status", "solved", k)
    if f.trials.loc[k, "status"] == "undecided":
        passed_off(f, k, "ok")


def above_rank(f: Forgery, k: int) -> None:
    """The solution without the rank constraint is passed off as that with it."""
    f.select(f.arrays["selected"][k], k)
    if f.trials.loc[k, "status"] == "undecided":
        passed_off(f, k, "ok")


def other_bracket(f: Forgery, k: int) -> None:
    f.array("nuclear_lower_bound", lambda bound: bound / 2, k)
    f.cell("nuclear_lower_bound", lambda bound: bound / 2, k)


def accepted_too_early(f: Forgery) -> None:
    """A rejected instance is left out, so that fewer were drawn."""
    rejected = f.trials.index[f.trials["status"] == "rejected"][0]
    f.trials = f.trials.drop(index=rejected).reset_index(drop=True)


def rejected_by_taste(f: Forgery) -> None:
    """An accepted instance that does not please is rejected, with its curves and arrays."""
    row = f.trials.index[f.trials["status"] == "ok"][0]
    seed = f.trials.loc[row, "seed"]
    passed_off(f, row, "rejected", "all labels are +1")
    kept = f.arrays["seeds"] != seed
    f.arrays = {name: values[kept] for name, values in f.arrays.items()}
    f.history = f.history[f.history["seed"] != seed].reset_index(drop=True)


def shrunk_bracket(f: Forgery) -> None:
    """W scaled down below margin one: its norm is no upper bound any more."""
    a = f.arrays
    open_ = (a["nuclear_status"] == "undecided") & np.isfinite(a["nuclear_objective"])
    k = int(np.flatnonzero(open_)[0])
    scale = 0.5 * (1 + a["nuclear_lower_bound"][k] / a["nuclear_objective"][k])
    f.array("nuclear_W", lambda W: W * scale, k)
    objective = float(np.linalg.norm(f.arrays["nuclear_W"][k], "nuc"))
    numbers: dict[str, Any] = {
        "objective": objective,
        "duality_gap": objective / a["nuclear_lower_bound"][k] - 1,
        "min_margin": a["nuclear_min_margin"][k] * scale,
    }
    for name, value in numbers.items():
        f.array(f"nuclear_{name}", lambda _, value=value: value, k)
        f.cell(f"nuclear_{'gap' if name == 'duality_gap' else name}", value, k)
    f.cell("nuclear_kappa", lambda kappa: kappa * scale, k)


def own_option_as_plug_in(f: Forgery) -> None:
    """The head is called one of a package of the user: what it gives would be trusted."""
    f.run["config"]["extensions"] = ["attnsvm"]
    f.run["extension_code"] = {"attnsvm": "0" * 12}
    f.run["options"]["head"] = "mine"
    f.rehash = True


LISTED = beside(__file__)
FORGERIES = {
    **{name: (kind, cell(*given)) for name, (kind, *given) in LISTED["cells"].items()},
    **{name: ("top", config_of(*given)) for name, given in LISTED["config"].items()},
    **{name: ("top", stated(name, value=value, recount=False))
       for name, value in LISTED["counts"].items()},
    **{name: (kind, array(key, expressed("a", by)))
       for name, (kind, key, by) in LISTED["arrays"].items()},
    **{name: (kind, curve(quantity, at, expressed("x", by)))
       for name, (kind, quantity, at, by) in LISTED["curves"].items()},
    **{name: (kind, expressed("f", edit)) for name, (kind, edit) in LISTED["edits"].items()},
    **{name: (kind, table(expressed("t", by))) for table in (trials, history)
       for name, (kind, by) in LISTED[table.__name__].items()},
    # --- cells of the table: those that `test_every_column_and_curve` does not forge alike
    "a hypothesis that was not asked for": (
        "top", trials(lambda t: t.assign(assumption_d=pd.array([True] * len(t), "boolean")))
    ),
    "objective": ("top", cell("frobenius_objective", lambda x: x * (1 - 1e-9))),
    "training": ("top", cell("training", lambda end: "un" * (end == "saturated") + "saturated")),
    "one-token correlation": (
        "multi",
        lambda f: f.cell("one_minus_corr_1token", a_little_more,
                         f.trials.index[f.trials["status"] == "ok"][0]),
    ),
    # --- statuses and reasons
    "hidden by a status": ("top", called_undecided),
    "infeasible called undecided": ("optimal", infeasible(called_undecided)),
    "infeasible called ok": ("optimal", infeasible(lambda f, k: passed_off(f, k, "ok"))),
    "infeasible with a rank": ("optimal", infeasible(lambda f, k: f.cell("nuclear_rank", 1, k))),
    "infeasible with an objective": (
        "optimal",
        infeasible(lambda f, k: f.cell("nuclear_objective", 1.0, k)),
    ),
    "undecided with another bracket": ("narrow_gap", undecided(other_bracket)),
    "undecided called solved": ("narrow_gap", undecided(called_solved)),
    "low rank called solved": ("kq_low_rank", undecided(called_solved)),
    "another rank": ("kq_low_rank", undecided(above_rank)),
    "bracket of a smaller margin": ("kq_low_rank", shrunk_bracket),
    "rejected by taste": ("multi", rejected_by_taste),
    # --- rows, arrays
    "swapped": ("top", swapped_instances),
    "accepted too early": ("until_accepted", accepted_too_early),
    # --- run.json
    "seed and rows": ("top", lambda f: (f.renumber(7), config_of("", "seed", 7)(f))),
    "signature": ("top", stated("signature", value="0" * 64)),
    "option": ("top", stated("options", "optimizer", value="adam")),
    "own option as plug-in": ("top", own_option_as_plug_in),

    "other tokens": ("top", array("selected", other)),
    "weights scaled": ("top", scaled_weights),
    "weights of another instance": (
        "top", lambda f: f.array("trained_W", lambda _: f.arrays["trained_W"][1])
    ),
    "weights not finite": ("top", array("trained_W", lambda W: W * math.nan)),
}  # fmt: skip
"""Name -> kind of record, and a function that forges it."""
