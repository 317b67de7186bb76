"""The batched method for devices without compiled code, on the CPU, against the compiled one."""

import json
from itertools import groupby

import numpy as np
import pytest
import torch

from attnsvm.svm import finite_part, multi_token, single_token, solve
from attnsvm.svm.frobenius import active_set, interior_point
from attnsvm.svm.frobenius.least_distance import from_gram
from tests.kkt import assert_infeasible, assert_optimal
from tests.svm.instances import gaussian, spheres
from tests.svm.nasty import TRUTHS, instances

TRUTH = {(row[0], row[1]): (row[3], row[4]) for row in json.loads(TRUTHS.read_text())}


@pytest.fixture
def on_device(monkeypatch):
    """Send the CPU's instances the way of a GPU's."""
    monkeypatch.setattr(active_set, "solve_batch", interior_point.solve_batch)


def attended(X, count):
    inside = torch.zeros(X.shape[:3], dtype=torch.bool)
    inside[:, :, :count] = True
    return inside


@pytest.mark.parametrize("shape", [(5, 5, 5), (5, 5, 20), (6, 8, 10), (15, 5, 20), (1, 6, 8)])
@pytest.mark.parametrize("count", [1, 2, 3])
def test_ordinary_instances_need_no_other_method(shape, count):
    X, Z, _ = spheres(*shape, range(20))
    problem = multi_token(X, Z, attended(X, count))
    known, solved = from_gram(problem)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(active_set, "solve_batch", interior_point.solve_batch)
        a, optimal = from_gram(problem)
    assert (optimal == solved).all()
    value, exact = ((problem.h * x).sum(dim=1)[solved] for x in (a, known))
    torch.testing.assert_close(value, exact, rtol=1e-11, atol=0)


def test_equalities_alone():
    X, Z, _ = gaussian(3, 5, 8, 10, seed=5)
    logs = torch.randn(X.shape[:3], generator=torch.Generator().manual_seed(0)).double()
    problem = finite_part(X, Z, attended(X, 3), logs)
    known, solved = from_gram(problem)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(active_set, "solve_batch", interior_point.solve_batch)
        a, optimal = from_gram(problem)
    assert solved.all()
    assert optimal.all()
    torch.testing.assert_close(problem.combine(a), problem.combine(known), rtol=1e-9, atol=1e-12)


def test_optimal_by_the_certificate(on_device):
    X, Z, selected = spheres(6, 8, 10, range(10))
    problem = single_token(X, Z, selected)
    assert_optimal(problem, solve(problem, "frobenius", 8))
    X, Z, selected = gaussian(3, 4, 6, 5, seed=1)  # its twin: a token mirrored at the selected one
    problem = single_token(torch.cat([X, 2 * X[:, :, :1] - X[:, :, 1:2]], dim=2), Z, selected)
    assert_infeasible(problem, solve(problem, "frobenius", 5))


def test_copies_of_rows_are_shared_between():
    X, Z, selected = gaussian(3, 4, 6, 20, seed=2)
    once, twice = single_token(X, Z, selected), torch.cat([X, X[:, :, 1:]], dim=2)
    twice = single_token(twice, Z, selected)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(active_set, "solve_batch", interior_point.solve_batch)
        (a, optimal), (b, also) = from_gram(once), from_gram(twice)
    assert optimal.all()
    assert also.all()
    torch.testing.assert_close(once.combine(a), twice.combine(b), rtol=1e-10, atol=1e-12)


def test_an_infeasible_instance_proposes_nothing_and_disturbs_none():
    X, Z, selected = gaussian(3, 4, 6, 4, seed=3)
    X[2, 0, 1] = X[2, 0, 0]  # a zero row
    X[3, 1, 1] = 2 * X[3, 1, 0] - X[3, 1, 2]  # opposing rows
    problem = single_token(X, Z, selected)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(active_set, "solve_batch", interior_point.solve_batch)
        a, optimal = from_gram(problem)
        alone, _ = from_gram(problem.take(torch.tensor([0, 1])))
    assert optimal.tolist() == [True, True, False, False]
    torch.testing.assert_close(a[:2], alone, rtol=1e-12, atol=0)


def test_nasty_instances_keep_their_truth(on_device):
    for _, batch in groupby(sorted(instances(), key=lambda i: i.X.shape), key=lambda i: i.X.shape):
        batch = list(batch)
        X, Z, mask = (
            torch.from_numpy(np.stack(x))
            for x in zip(*((i.X, i.Z, i.mask) for i in batch), strict=True)
        )
        selected = torch.zeros(X.shape[:2], dtype=torch.int64)
        solution = solve(single_token(X, Z, selected, mask), "frobenius", X.shape[2])
        for b, instance in enumerate(batch):
            norm, kappa = TRUTH[instance.family, instance.index]
            status = solution.status[b]
            if norm is None:
                assert status == "infeasible", instance
                continue
            assert status in ("solved", "unconstrained") or kappa > 1e12, instance
            slack = 1e-9 + 64 * 2.3e-16 * kappa
            assert solution.lower_bound[b] <= norm * (1 + slack), instance
            assert solution.objective[b] >= norm * (1 - slack), instance
