import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from attnsvm import optimal_tokens
from attnsvm.svm import single_token, solve_svm
from attnsvm.svm.reference import published_rank, solutions
from attnsvm.verify import verify
from tests.kkt import assert_near
from tests.quick import quick
from tests.svm.instances import batch_of, every_norm, gaussian, spheres, stored_svms

REFERENCE = Path(__file__).parents[1] / "reference"


def reference_solutions(name):
    """Yield the instances of two JSON files with a bracket by an independent solver."""
    if name in ("frobenius", "nuclear"):
        for case in json.loads((REFERENCE / "svm.json").read_text()):
            known = case[name[:3]]
            size = known.get("obj") or 0.0
            yield case | known | {"upper": size * (1 + 1e-7), "lower": size * (1 - 1e-7)}
    else:
        cases = json.loads((REFERENCE / "norms.json").read_text())
        yield from (case for case in cases if case["norm"] == name)


@pytest.mark.parametrize(
    "name", ["frobenius", "nuclear", *quick("max", "spectral", "l1", "l1.75", "l3")]
)
def test_brackets_overlap_those_of_an_independent_solver(name):
    """Also of the former norms ranks, singular values and the number of support tokens."""
    seen = set()
    for case in reference_solutions(name):
        batch = batch_of(case["n"], case["T"], case["d"], 1, seed=case["seed"])
        assert optimal_tokens(batch)[0][0].tolist() == case["selected"]
        solution = solve_svm(batch.X[0], batch.Z[0], torch.tensor(case["selected"]), norm=name)
        seen.add(solution.statuses[0])
        if case["status"] == "infeasible":
            assert solution.status == "infeasible"
            continue
        assert solution.duality_gap <= 1e-9
        if case["status"] != "optimal":
            continue
        assert solution.lower_bound <= case["upper"] * (1 + 1e-12)
        assert solution.objective >= case["lower"] * (1 - 1e-12)
        bounds = {"frobenius": min(case["n"], case["d"]), "nuclear": solution.rank_bound}
        assert solution.rank_bound == bounds.get(name, -1)
        if "sigma" in case:
            assert solution.objective <= case["upper"]
            assert solution.rank == case["rank"] <= solution.rank_bound
            assert solution.support.sum() == case["nsupport"]
            sigma = torch.tensor(case["sigma"], dtype=torch.float64)
            assert_near(solution.sigma[: len(sigma)], sigma, atol=1e-3)
    assert {"solved", "infeasible"} <= seen


def test_published_rank():
    X, Z, selected = spheres(5, 5, 2, range(2))
    problem = single_token(X, Z, selected)
    solution = solutions(problem, "frobenius")
    assert [published_rank(item.W) for item in solution] == [2, 1]  # the second is infeasible
    assert solution[1].cvxpy_status == "infeasible"


def test_rank_bound_bounds_the_numerical_rank():
    # Samples of sizes 1 ... 1e5: sigma_2(M(a)) is 1 - 1.5e-6 where sigma_2(W) is 1.5e-6 sigma_1(W).
    random = np.random.default_rng(2)
    Z, X = random.normal(size=(30, 2, 3)), random.normal(size=(30, 2, 3, 3))
    X *= (10.0 ** random.uniform(0, 5, size=(30, 2)))[..., None, None]
    selected = np.zeros((30, 2), dtype=int)
    for tolerance in (1e-6, 1e-4):
        solution = solve_svm(X, Z, selected, norm="nuclear", rank_tolerance=tolerance)
        known = (solution.rank >= 0) & (solution.rank_bound >= 0)
        assert known.sum() >= 15
        assert (solution.rank <= solution.rank_bound)[known].all()
    wide = solve_svm(X[:5], Z[:5], selected[:5], norm="nuclear", rank_tolerance=1e-14)
    assert (wide.rank_bound == -1).all()  # no gap is small enough for this threshold


@every_norm
@pytest.mark.parametrize("margins", [1e13, 1e90, (1.0, 1e-14, 1e-3), (1.0, 0.0, 1e-7)])
def test_margins_are_proved_in_exact_arithmetic(name, margins):
    X, Z, selected = (x.numpy() for x in gaussian(4, 4, 6, 3, seed=7))
    margins = np.resize(margins, (3, 12)).astype(float)
    solution = solve_svm(X, Z, selected, name, margins=margins)
    assert solution.status == ("solved",) * 3
    assert (solution.duality_gap <= 1e-9).all()
    for record in stored_svms(solution, X, Z, selected, margins=margins):
        assert verify(record).proved, verify(record).reason


SOLVERS = """
import sys
for name in ("jinja2", "hydra", "omegaconf", "seaborn", "matplotlib", "pandas", "pyarrow", "cvxpy"):
    sys.modules[name] = None  # an import raises ImportError
import torch, attnsvm
X, Z, selected = torch.rand(2, 3, 4), torch.rand(2, 4), torch.zeros(2).long()
for norm in ("frobenius", "nuclear", "l1"):
    print(attnsvm.solve_svm(X, Z, selected, norm))
attnsvm.nn.attention(X, X, X)
assert "torch._dynamo" not in sys.modules
"""


def test_the_solvers_need_no_sweep_framework():
    subprocess.run([sys.executable, "-c", SOLVERS], check=True)
