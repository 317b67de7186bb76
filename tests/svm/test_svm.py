import json
from itertools import groupby
from pathlib import Path

import numpy as np
import pytest
import torch

from attnsvm.svm import SvmStatus, finite_part, multi_token, single_token, solve_gen_svm, solve_svm
from attnsvm.svm.reference import published_rank, solutions
from tests.kkt import assert_infeasible, assert_optimal
from tests.svm.instances import gaussian, spheres

REFERENCE = json.loads((Path(__file__).parents[1] / "reference" / "svm.json").read_text())
SHAPES = groupby(REFERENCE, key=lambda r: (r["n"], r["T"], r["d"]))
NORMS = [("frobenius", "fro"), ("nuclear", "nuc")]
both_norms = pytest.mark.parametrize("name", ["frobenius", "nuclear"])


@pytest.mark.parametrize(("shape", "records"), [(s, list(r)) for s, r in SHAPES])
@pytest.mark.parametrize(("name", "key"), NORMS)
def test_reference_values(shape, records, name, key):
    assert [r["seed"] for r in records] == [0, 1, 2, 3]
    X, Z, selected = spheres(*shape, range(4))
    assert selected.tolist() == [r["selected"] for r in records]
    solution = solve_svm(X, Z, selected, norm=name)
    for b, record in enumerate(records):
        want = record[key]
        expected = "infeasible" if want["status"] == "infeasible" else "solved"
        assert solution.status[b] == expected
        if expected == "solved":
            assert solution.duality_gap[b] <= 1e-9
        if want["status"] == "optimal":
            assert solution.objective[b] == pytest.approx(want["obj"], rel=1e-7)
            assert solution.lower_bound[b] == pytest.approx(want["obj"], rel=1e-7)
            assert solution.rank[b] == want["rank"]
            assert solution.rank[b] <= solution.rank_bound[b]
            assert solution.support[b].sum() == want["nsupport"]
            sigma = torch.tensor(want["sigma"], dtype=torch.float64)
            assert torch.allclose(solution.sigma[b][: len(sigma)], sigma, rtol=0, atol=1e-3)


@both_norms
def test_gen_svm_infeasible_twin(name):
    X, Z, _ = gaussian(2, 4, 5, 2, seed=9)
    attended = torch.zeros(2, 2, 4, dtype=torch.bool)
    attended[:, :, :2] = True
    log_softmax = torch.zeros(2, 2, 4, dtype=torch.float64)
    X[:, 0, 2] = (X[:, 0, 0] + X[:, 0, 1]) / 2  # a masked token between two attended ones
    fin, mm = solve_gen_svm(X, Z, attended, log_softmax, norm=name)
    assert_infeasible(multi_token(X, Z, attended), mm)
    assert fin.status == (SvmStatus.unconstrained,) * 2  # equal logits: W = 0
    log_softmax[:, 0, 0] = 1.0
    X[:, 0, 1] = X[:, 0, 0]  # equal tokens, different softmax
    fin, _ = solve_gen_svm(X, Z, attended, log_softmax, norm=name)
    assert_infeasible(finite_part(X, Z, attended, log_softmax), fin)


@both_norms
def test_dependent_equalities(name):
    X, Z, _ = gaussian(2, 5, 6, 2, seed=10)
    attended = torch.zeros(2, 2, 5, dtype=torch.bool)
    attended[:, :, :3] = True
    X[:, :, 2] = 2 * X[:, :, 1] - X[:, :, 0]  # consistent with log s = 0, -1, -2
    log_softmax = -torch.arange(5, dtype=torch.float64).expand(2, 2, 5)
    fin, mm = solve_gen_svm(X, Z, attended, log_softmax, norm=name)
    assert fin.status == mm.status == (SvmStatus.solved,) * 2
    assert_optimal(finite_part(X, Z, attended, log_softmax), fin)
    assert_optimal(multi_token(X, Z, attended), mm)


def test_published_rank():
    X, Z, selected = spheres(5, 5, 2, range(2))
    problem = single_token(X, Z, selected)
    solution = solutions(problem, "frobenius")
    assert [published_rank(item.W) for item in solution] == [2, 1]  # the second is infeasible
    assert solution[1].status == SvmStatus.infeasible


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
