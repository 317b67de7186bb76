"""No forgery passes, although its checksums fit: by hand, and by seeded random mutation."""

import shutil
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest

from attnsvm.verify.comparison import Comparison
from attnsvm.verify.run import STEPS, prove
from tests.verify.forgeries import FORGERIES
from tests.verify.forging import Forgery, changed, refusal
from tests.verify.kinds import made, some_quick, written

USED = ("top", "optimal", "multi", "mixture", "kq", "path", "until_accepted", "kq_low_rank",
        "narrow_gap", "hypotheses", "excess_risk", "excess_risk_rounded")  # fmt: skip

QUICK = ("objective", "SVM status", "hidden by a status", "row doubled",
         "infeasible called ok", "another seed", "signature", "out of range", "accepted",
         "history dropped", "tokens moved", "other tokens, proved",
         "weights of another instance", "multiplier", "array missing")  # fmt: skip


@lru_cache
def genuine(name: str) -> Forgery:
    """Return a record of a kind, unchanged."""
    with TemporaryDirectory() as folder:
        return Forgery.of(written(Path(folder), *made(name)))


@pytest.mark.parametrize("name", some_quick(USED, ("top", "optimal")))
def test_the_unchanged_record_passes_when_it_is_written_again(name, tmp_path):
    assert refusal(genuine(name).copy().written(tmp_path)) == ""


@pytest.mark.parametrize("name", some_quick(FORGERIES, QUICK))
def test_a_forgery_by_hand_is_refused(name, tmp_path):
    kind, forge = FORGERIES[name]
    forged = genuine(kind).copy()
    forge(forged)
    assert refusal(forged.written(tmp_path)) != ""


@pytest.mark.parametrize(
    "name",
    some_quick(("top", "optimal", "mixture", "path", "hypotheses", "hypotheses_optimal",
                "excess_risk", "kq", "other_norms", "other_norms_multi"), ("top", "mixture")),
)  # fmt: skip
def test_every_column_and_curve_is_refused_by_name(name, tmp_path):
    """All cells of an accepted row are forged at once, and so are the ends of its curves."""
    forged, random = genuine(name).copy(), np.random.default_rng(0)
    columns, quantities = forged.everywhere(), set(forged.history["quantity"])
    seeds = forged.trials["seed"][forged.trials["status"] == "ok"][:2]
    for seed, end in zip(seeds, (0, -1), strict=False):
        for quantity in quantities:
            of = (forged.history["seed"] == seed) & (forged.history["quantity"] == quantity)
            at = forged.history.index[of][end]
            value = changed(forged.history.loc[at, "value"], np.dtype(float), random, 1, 1e-5)
            forged.history.loc[at, "value"] = value
    found = prove(forged.written(tmp_path)).refusals
    refused = {why.split(" is ")[0] for what, _, why in found if what == "table"}
    assert set(columns) - {"direction_change"} <= refused  # weights half-way are not stored
    assert {(at, why.split(" at ")[0]) for what, at, why in found if what == "history"} == {
        (seed, quantity) for seed in seeds for quantity in quantities
    }


@lru_cache
def as_recorded(name: str) -> set[tuple[str, str]]:
    """Return the columns and parts of curves that are not proved, as the tool says."""
    with TemporaryDirectory() as folder:
        proof = prove(genuine(name).copy().written(Path(folder)))
    return {one for one, count in proof.stated.items() if proof.derived[one] < count}


def mutated(unchanged: Forgery, random: np.random.Generator) -> tuple[Forgery, tuple[str, str]]:
    """Return a record with one random entry changed, and what: part and name."""
    f = unchanged.copy()
    kind = random.choice(["cell", "array", "history"], p=[0.45, 0.45, 0.1])
    if kind == "cell":
        column = str(random.choice(f.trials.columns))
        row = int(random.integers(len(f.trials)))
        value = f.trials.loc[row, column]
        what = "", column
        f.cell(column, changed(value, f.trials[column].dtype, random), row)
    elif kind == "array":
        name = str(random.choice(list(f.arrays)))
        flat = f.arrays[name].reshape(-1)
        k = int(random.integers(flat.size))
        what, size = ("arrays", name), 1.0
        if f.arrays[name].dtype.kind == "f":
            size = np.abs(flat[np.isfinite(flat)]).max(initial=1.0)
        infinite = f.arrays[name].dtype.kind == "f" and not np.isfinite(flat[k])
        zero = 1e-7 if "multipliers" in name else 1e-12  # they prove a bound up to 1e-10 of it
        given = f.arrays[name].dtype, random, size
        flat[k] = 0.5 if infinite else changed(flat[k], *given, zero=zero)
    else:
        k = int(random.integers(len(f.history)))
        steps = f.history["step"].sort_values().unique()
        at = [*steps[[0, -1]], f.history.loc[k, "step"]].index(f.history.loc[k, "step"])
        what = [*STEPS][at], str(f.history.loc[k, "quantity"])
        value = f.history.loc[k, "value"]
        f.history.loc[k, "value"] = changed(value, np.dtype(float), random)
    return f, what


MUTATED = ("top", "multi", "kq", "path", "kq_low_rank", "network", "scc", "hypotheses_multi")


@pytest.mark.parametrize(
    "count", [pytest.param(30, marks=pytest.mark.full), pytest.param(375, marks=pytest.mark.faults)]
)
@pytest.mark.parametrize("name", MUTATED)
def test_random_mutations_pass_only_where_the_tool_says_as_recorded(name, count, tmp_path):
    random, survivors = np.random.default_rng([count, MUTATED.index(name)]), []
    for _ in range(count):
        forged, what = mutated(genuine(name), random)
        folder = forged.written(tmp_path)
        if not refusal(folder) and what not in as_recorded(name):
            survivors.append(what)
        shutil.rmtree(folder)
    assert not survivors


@pytest.mark.parametrize(("stated", "refused"), [(24, 0), (25, 0), (27, 1), (None, 1)])
def test_a_count_follows_if_it_lies_between_its_bounds(stated, refused):
    bounds = [{("table", "support"): np.array([count], dtype=object)} for count in (24, 26)]
    given = {("table", "support"): np.array([stated], dtype=object)}
    assert len([*Comparison(bounds).differences(given)]) == refused


@pytest.mark.full
def test_an_excess_risk_is_compared_up_to_rounding(tmp_path):
    """Of logits near 1e17, whose rounding is more than 1, other numbers nearby pass; not others."""
    for change, passes in ((1, True), (1e9, False)):
        forged = genuine("excess_risk_rounded").copy()
        forged.cell("excess_risk_log", lambda x, by=change: x + by, 1)
        assert (refusal(forged.written(tmp_path / str(change))) == "") == passes
