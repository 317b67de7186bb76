"""Difficult instances in every norm and by every method: the statuses are those of the truth."""

import json
import subprocess
import sys
from itertools import groupby
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from attnsvm.norm import norm_of
from attnsvm.svm import solve_svm
from attnsvm.svm.interior_point import LARGE
from attnsvm.svm.reduction import WIDE
from attnsvm.verify import verify
from benchmarks.nasty.benchmark_utils import CARD, CLASSES, load, word
from tests.quick import quick, quick_rows
from tests.svm.instances import every_norm, stored_svms

ROOT = Path(__file__).parents[2]
EPS = 2.3e-16
ALL = "frobenius", "nuclear", "max", "l1"
"""Other norms are tested on every sixth instance, as they take up to 150 ms for each."""


def misjudged(name, item, status, lower, upper):
    """Return what is wrong with the status, or with a bracket that misses the exact norms' bounds.

    ||W||_F / s' <= norm(W) <= s ||W||_F bounds the least norm by the least Frobenius norm.
    """
    least, kappa = item.norm, item.kappa
    at, (norm, d) = f"{item.family} {least} {status}", (norm_of(name), item.X.shape[-1])
    if np.isnan(least):
        return [] if status == "infeasible" else [at]
    slack = 1 + (1e-12 if name == "frobenius" else 1e-9) + 64 * EPS * kappa
    most, fewest = norm.spread(d) * least, least / norm.dual.spread(d)
    inside = lower <= most * slack and fewest <= upper * slack
    if kappa <= 1e6 and least > 0:
        decided = status == "solved" and upper <= (1 + 1e-8) * lower
    else:
        limit = 1e12 if name == "frobenius" else 1e6
        decided = status in ("solved", "unconstrained") or (status == "undecided" and kappa > limit)
    return [] if inside and decided else [at]


@pytest.fixture(scope="module")
def difficult():
    return list(load())


def test_the_data_set_has_its_instances(difficult):
    card = json.loads(CARD.read_text())
    assert card["instances"] == len(difficult) == 1258
    assert card["infeasible"] == sum(np.isnan(item.norm) for item in difficult) == 326
    assert set(card["families"]) == {item.family for item in difficult}
    assert set(CLASSES) == {item.conditioning for item in difficult}


@pytest.mark.parametrize("first", quick(*range(8)))
def test_its_truths_are_proved_in_exact_arithmetic(difficult, first):
    """A bracket or a ray, up to kappa = 1e6."""
    proved = 0
    for item in difficult[first::8]:
        X, Z, mask = item.X[None], item.Z[None], item.mask[None]
        selected = np.zeros((1, X.shape[1]), dtype=np.int64)
        solution = solve_svm(X, Z, selected, mask=mask)
        (record,) = stored_svms(solution, X, Z, selected, mask)
        if record.status != "undecided":
            assert verify(record).proved or item.kappa > 1e6, verify(record).reason
            proved += 1
    assert proved > 150


@every_norm
def test_nasty_instances(difficult, name):
    """In batches of equal shape."""
    by_class = sorted(difficult, key=lambda item: (item.family, item.conditioning))
    chosen = by_class[:: 1 if name in ALL else 6]
    chosen.sort(key=lambda item: item.X.shape)
    wrong, count = [], 0
    for _, group in groupby(chosen, key=lambda item: item.X.shape):
        batch = list(group)
        X, Z, mask = (np.stack([getattr(item, of) for item in batch]) for of in ("X", "Z", "mask"))
        solution = solve_svm(X, Z, np.zeros(X.shape[:2], int), norm=name, mask=mask)
        bounds = zip(batch, solution.status, solution.lower_bound, solution.objective, strict=True)
        wrong += [text for of in bounds for text in misjudged(name, *of)]
        count += solution.status.count("solved")
    assert wrong == []
    assert count > len(chosen) / 2


def spread(x):
    """Turn x into a wide x of equal products, exactly: 64 copies of an eighth, of either sign."""
    sign = np.where(np.arange(64 * x.shape[-1]) % 3 == 0, -1.0, 1.0)
    wide = np.tile(x, 64) * sign / 8
    return np.concatenate([wide, np.zeros((*x.shape[:-1], max(0, WIDE - wide.shape[-1])))], -1)


ROWS = [(name, np.asarray, 1) for name in ("frobenius", "max", "l1.75", "spectral", "nuclear")]
WIDER = [(name, spread, LARGE) for name in ("frobenius", "nuclear")]


@pytest.mark.parametrize(("name", "change", "large"), [*quick_rows(*ROWS), *quick_rows(*WIDER)])
def test_by_the_method_for_many_rows_and_in_many_dimensions(
    difficult, name, change, large, monkeypatch
):
    """Those are solved and certified in the span of tokens and queries."""
    monkeypatch.setattr(sys.modules["attnsvm.svm.solve"], "LARGE", large)
    for item in difficult[3::26]:
        X, Z = change(item.X), change(item.Z)
        of = solve_svm(X, Z, np.zeros(len(X), int), norm=name, mask=item.mask)
        assert not misjudged(name, item, of.status, of.lower_bound, of.objective)


@pytest.mark.parametrize(
    ("stated", "truth", "kappa", "answer"),
    [
        (2.0, 2.0, 10.0, "right"),
        (2.0 + 1e-5, 2.0, 10.0, "silent error"),
        (2.0 + 1e-5, 2.0, 1e12, "right"),
        (None, 2.0, 10.0, "no answer"),
        (None, np.nan, np.nan, "right"),
        (1.0, np.nan, np.nan, "silent error"),
        (1.0, np.inf, 10.0, "not judged"),
    ],
)
def test_a_stated_norm_gets_its_word(stated, truth, kappa, answer):
    assert word(stated, truth, kappa) == answer


@pytest.mark.full
def test_benchopt_runs_a_solver_of_one_file(tmp_path):
    pytest.importorskip("benchopt")
    text = (ROOT / "docs/trust.md").read_text().partition("or None:\n\n```python")[2]
    (tmp_path / "it.py").write_text(text.partition("```")[0])
    words = f"run benchmarks/nasty -s {tmp_path}/it.py -s attnsvm -d nasty[every=60] --no-plot"
    words += f" -o *[norm=frobenius] --output {tmp_path}/found"
    subprocess.run([sys.executable, "-m", "benchopt", *words.split()], cwd=ROOT, check=True)
    solution = pd.read_parquet(tmp_path / "found.parquet").groupby("solver_name").sum(True)
    assert solution["objective_silent error"]["attnsvm"] == 0
    assert solution["objective_right"]["attnsvm"] > solution["objective_right"]["SLSQP"] > 10
