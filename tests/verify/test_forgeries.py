"""No forgery passes, although its checksums fit: by hand, and by seeded random mutation."""

import shutil

import numpy as np
import pytest

from attnsvm.verify.run import prove
from tests.quick import quick
from tests.record.odd import rewritten
from tests.verify.forging import Forgery, changed, genuine, refusal


def passed_off(f: Forgery, k: int, status: str = "ok", reason: str = "") -> None:
    f.cell("status", status, k)
    f.cell("reason", reason, k)


def both(f: Forgery, name: str, change: object, k: int = 0) -> None:
    """Change a number of an SVM in its array and in its column."""
    f.array(name, change, k)
    f.cell(name.replace("duality_gap", "gap"), f.arrays[name][k].item(), k)


def infeasible_called_ok(f: Forgery) -> None:
    passed_off(f, f.trials.index[f.trials["frobenius_status"] == "infeasible"][0])


def rejected_by_taste(f: Forgery) -> None:
    """An accepted instance that does not please is rejected, without SVMs, curves and arrays."""
    row = f.trials.index[f.trials["status"] == "ok"][0]
    passed_off(f, row, "rejected", "all labels are +1")
    f.trials.loc[row, ["frobenius_status", "nuclear_status"]] = ""
    trials = f.trials
    f.keep(trials["seed"].drop(row))
    f.trials = trials


FORGERIES = {
    "its rank is more than 1": ("kq", lambda f: f.run["config"]["parameterization"].update(m=1)),
    "must have the rows of trials.parquet": ("top", lambda f: f.array("seeds", lambda s: s + 9)),
    "signature: is not that": ("top", lambda f: f.run.update(signature="0" * 64)),
    "trained_W (arrays): is missing": ("top", lambda f: f.arrays.pop("trained_W")),
    "X (arrays): is (": ("top", lambda f: f.arrays.update(X=f.arrays["X"].astype(np.float32))),
    "of 0 instances, must be of 4": ("top", lambda f: f.keep([])),
    "their seeds must be 7": ("top", lambda f: f.config("seed", value=7)),
    "os.system": ("top", lambda f: f.config("data", "_target_", value="os.system")),
    "trained_W differs": ("top", lambda f: f.config("optimizer", "lr", value=0.2)),
    "column proof unknown": ("top", lambda f: f.trials.insert(0, "proof", 1.0)),
    "history": ("top", lambda f: setattr(f, "history", f.history.iloc[:-1])),
    "status is infeasible, stated is ok": ("optimal", infeasible_called_ok),
    "status is ok, stated is rejected": ("multi", rejected_by_taste),
    "must end with number 2": ("until_accepted", lambda f: f.keep(f.trials["seed"][:-1])),
}
"""What is said -> kind of record, and a function that forges it."""


def test_counts_that_are_not_those_of_the_rows_are_refused(tmp_path):
    folder = genuine("top").written(tmp_path)
    assert refusal(folder) == ""
    counts = {"accepted": 3, "wanted": 5, "statuses": {"ok": 3, "rejected": 1}}
    rewritten(folder, **counts)
    differences = refusal(folder)
    for name, count in counts.items():
        assert f"seed None: {name}={count}: must be " in differences


@pytest.mark.parametrize("words", quick(*FORGERIES, count=4))
def test_a_forgery_by_hand_is_refused_for_what_it_is(words, tmp_path):
    kind, forge = FORGERIES[words]
    forged = genuine(kind)
    forge(forged)
    assert words in refusal(forged.written(tmp_path))


EVERY = ("top", "optimal", "hypotheses_optimal", "excess_risk", "kq")
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

WITHIN_ROUNDING = {"kq": {"trained_W"}}
"""Where training of an instance amplifies rounding by more than a random change, of 1e-5."""


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
    assert {*survivors} <= WITHIN_ROUNDING.get(name, set())


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
