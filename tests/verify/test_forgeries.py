"""No forgery passes, although its checksums fit: by hand, and by seeded random mutation."""

import shutil

import numpy as np
import pytest

from attnsvm.verify.run import prove
from tests.quick import quick
from tests.record.odd import rewritten
from tests.verify.forging import Forgery, changed, genuine, refusal

NORMS = ("frobenius", "nuclear")


def first(f: Forgery, norm: str, status: str) -> int:
    """Return the first instance whose SVM has this status, and a W where one is possible."""
    solved = np.isfinite(f.arrays[f"{norm}_objective"]) | (status == "infeasible")
    return int(np.flatnonzero((f.arrays[f"{norm}_status"] == status) & solved)[0])


def passed_off(f: Forgery, k: int, status: str = "ok", reason: str = "") -> None:
    f.cell("status", status, k)
    f.cell("reason", reason, k)


def both(f: Forgery, name: str, change: object, k: int = 0) -> None:
    """Change a number of an SVM in its array and in its column."""
    f.array(name, change, k)
    f.cell(name.replace("duality_gap", "gap"), f.arrays[name][k].item(), k)


def called_undecided(f: Forgery) -> None:
    for norm in NORMS:
        both(f, f"{norm}_status", lambda _: "undecided")
    passed_off(f, 0, "undecided", "frobenius SVM: neither optimality nor infeasibility is proved")


def called_solved(f: Forgery) -> None:
    k = first(f, "nuclear", "undecided")
    both(f, "nuclear_status", lambda _: "solved", k)
    passed_off(f, k)


def without_rank_constraint(f: Forgery) -> None:
    """The solution without the rank constraint is passed off as that with it."""
    k = first(f, "nuclear", "undecided")
    f.select(f.arrays["selected"][k], k)
    passed_off(f, k)


def rejected_by_taste(f: Forgery) -> None:
    """An accepted instance that does not please is rejected, with its curves and arrays."""
    row = f.trials.index[f.trials["status"] == "ok"][0]
    seed = f.trials.loc[row, "seed"]
    passed_off(f, row, "rejected", "all labels are +1")
    kept = f.arrays["seeds"] != seed
    f.arrays = {name: values[kept] for name, values in f.arrays.items()}
    f.history = f.history[f.history["seed"] != seed].reset_index(drop=True)


def accepted_too_early(f: Forgery) -> None:
    """A rejected instance is left out, so that fewer were drawn."""
    rejected = f.trials.index[f.trials["status"] == "rejected"][0]
    f.trials = f.trials.drop(index=rejected).reset_index(drop=True)


def shrunk_bracket(f: Forgery) -> None:
    """W scaled down below margin one: its norm is no upper bound any more."""
    k = first(f, "nuclear", "undecided")
    lower = f.arrays["nuclear_lower_bound"][k]
    scale = 0.5 * (1 + lower / f.arrays["nuclear_objective"][k])
    f.array("nuclear_W", lambda W: W * scale, k)
    objective = float(np.linalg.norm(f.arrays["nuclear_W"][k], "nuc"))
    both(f, "nuclear_objective", lambda _: objective, k)
    both(f, "nuclear_duality_gap", lambda _: objective / lower - 1, k)
    both(f, "nuclear_min_margin", lambda margin: margin * scale, k)


FORGERIES = {
    "hidden by a status": ("top", called_undecided),
    "other tokens, proved": ("top", lambda f: f.select((f.arrays["selected"][0] + 1) % 4)),
    "row doubled": ("top", lambda f: f.keep([0, 0, 1, 2])),
    "signature": ("top", lambda f: f.run.update(signature="0" * 64)),
    "array missing": ("top", lambda f: f.arrays.pop("trained_W")),
    "another type": ("top", lambda f: f.arrays.update(X=f.arrays["X"].astype(np.float32))),
    "no rows": ("top", lambda f: f.keep([])),
    "another seed": ("top", lambda f: f.config("seed", value=7)),
    "a class of no package": ("top", lambda f: f.config("data", "_target_", value="os.system")),
    "another step size": ("top", lambda f: f.config("optimizer", "lr", value=0.2)),
    "a column too many": ("top", lambda f: f.trials.insert(0, "proof", 1.0)),
    "history dropped": ("top", lambda f: setattr(f, "history", f.history.iloc[:-1])),
    "infeasible called ok": (
        "optimal",
        lambda f: passed_off(f, first(f, "frobenius", "infeasible")),
    ),
    "undecided called solved": ("narrow_gap", called_solved),
    "another rank": ("kq_low_rank", without_rank_constraint),
    "bracket of a smaller margin": ("kq_low_rank", shrunk_bracket),
    "rejected by taste": ("multi", rejected_by_taste),
    "accepted too early": ("until_accepted", accepted_too_early),
}
"""Name -> kind of record, and a function that forges it."""


def test_counts_that_are_not_those_of_the_rows_are_refused(tmp_path):
    folder = genuine("top").written(tmp_path)
    assert refusal(folder) == ""
    counts = {"accepted": 3, "wanted": 5, "statuses": {"ok": 3, "rejected": 1}}
    rewritten(folder, **counts)
    differences = refusal(folder)
    for name, count in counts.items():
        assert f"seed None: {name}={count}: must be " in differences


@pytest.mark.parametrize("name", quick(*FORGERIES, count=4))
def test_a_forgery_by_hand_is_refused(name, tmp_path):
    kind, forge = FORGERIES[name]
    forged = genuine(kind)
    forge(forged)
    assert refusal(forged.written(tmp_path)) != ""


EVERY = ("top", "optimal", "mixture", "path", "hypotheses_optimal", "excess_risk", "kq")
EVERY += ("other_norms", "other_norms_multi", "planted")
"""Kinds of records with an accepted row whose steps do not amplify rounding."""


@pytest.mark.parametrize("name", quick(*EVERY))
def test_every_column_and_curve_is_refused_by_name(name, tmp_path):
    """All cells of an accepted row are forged at once, and so is each curve in its middle."""
    forged = genuine(name)
    columns, quantities = forged.everywhere(), set(forged.history["quantity"])
    seed = forged.trials["seed"][forged.trials["status"] == "ok"].iloc[0]
    for quantity in quantities:
        of = (forged.history["seed"] == seed) & (forged.history["quantity"] == quantity)
        at = forged.history.index[of]
        middle = at[len(at) // 2]
        forged.history.loc[middle, "value"] = changed(forged.history.loc[middle, "value"])
    differences = prove(forged.written(tmp_path), 10**6).differences
    assert {of for of, _ in differences} == {seed}
    assert {why.split()[0] for _, why in differences} >= {*columns, *quantities}


def mutated(f: Forgery, random: np.random.Generator) -> str:
    """Change a random cell, entry of an array, or point of a curve of a record; return its name."""
    kind = random.choice(["cell", "array", "history"], p=[0.45, 0.45, 0.1])
    if kind == "cell":
        name = str(random.choice(f.trials.columns))
        f.cell(name, changed, int(random.integers(len(f.trials))))
    elif kind == "array":
        name = str(random.choice(list(f.arrays)))
        flat = f.arrays[name].reshape(-1)
        k, size = int(random.integers(flat.size)), 0.0
        if flat.dtype.kind == "f":  # what is small beside the largest entry is rounding
            size = 1e-3 * np.abs(flat[np.isfinite(flat)]).max(initial=0.0)
        flat[k] = changed(flat[k]) if not size or abs(flat[k]) > size else size
    else:
        k = int(random.integers(len(f.history)))
        name = str(f.history.loc[k, "quantity"])
        f.history.loc[k, "value"] = changed(f.history.loc[k, "value"])
    return name


MUTATED = ("top", "multi", "kq", "path", "kq_low_rank", "network_all", "scc", "hypotheses_multi")


@pytest.mark.parametrize(
    "count", [pytest.param(2, marks=pytest.mark.full), pytest.param(375, marks=pytest.mark.faults)]
)
@pytest.mark.parametrize("name", MUTATED)
def test_no_random_mutation_passes(name, count, tmp_path):
    random, survivors = np.random.default_rng([max(count, 30), MUTATED.index(name)]), []
    for _ in range(count):
        forged = genuine(name)
        what = mutated(forged, random)
        folder = forged.written(tmp_path)
        if not refusal(folder):
            survivors.append(what)
        shutil.rmtree(folder)
    assert not survivors


def test_another_solution_of_an_svm_is_proved_and_used(tmp_path):
    """One that a solver might find here: W is longer by less than the gap that is allowed."""
    longer, name = 1 + 5e-9, "frobenius"
    forged = genuine("top")
    forged.config("svm", "gap", value=1e-6)
    forged.array(f"{name}_W", lambda W: W * longer)
    for number in ("objective", "min_margin"):
        both(forged, f"{name}_{number}", lambda value: value * longer)
    gap = forged.arrays[f"{name}_objective"][0] / forged.arrays[f"{name}_lower_bound"][0] - 1
    both(forged, f"{name}_duality_gap", lambda _: gap)
    assert f"{name}_margin_gap is" in refusal(forged.written(tmp_path / "by the other"))
    forged.cell(f"{name}_margin_gap", lambda value: 1 - (1 - value) * longer)
    assert refusal(forged.written(tmp_path / "by its own")) == ""
