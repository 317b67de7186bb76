import json
from functools import cache
from itertools import groupby

import numpy as np
import pytest
import torch

from attnsvm.svm import solve_svm
from tests.svm.nasty import FAMILIES, TRUTHS, instances, truth

RECORDS = {(row[0], row[1]): row[2:] for row in json.loads(TRUTHS.read_text())}
EPS = 2.3e-16


@cache
def solved(norm):
    """Solve every instance, in batches of equal shape."""
    everything = sorted(instances(), key=lambda i: i.X.shape)
    results = {}
    for _, batch in groupby(everything, key=lambda i: i.X.shape):
        batch = list(batch)
        X, Z, mask = (
            torch.from_numpy(np.stack(x))
            for x in zip(*((i.X, i.Z, i.mask) for i in batch), strict=True)
        )
        selected = torch.zeros(X.shape[:2], dtype=torch.int64)
        solution = solve_svm(X, Z, selected, norm=norm, mask=mask)
        for b, instance in enumerate(batch):
            results[instance.family, instance.index] = (
                solution.status[b].value,
                solution.lower_bound[b].item(),
                solution.objective[b].item(),
                solution.duality_gap[b].item(),
            )
    return results


def test_instances_are_those_of_the_truths():
    assert {(i.family, i.index): i.digest for i in instances()} == {
        key: row[0] for key, row in RECORDS.items()
    }
    assert len(RECORDS) >= 1000
    assert {family for family, _ in RECORDS} == set(FAMILIES)


def test_truth_by_hand():
    # Recomputing all truths takes ten seconds; a few stand for them.
    pytest.importorskip("flint")
    for instance in instances():
        if instance.index == 7:
            feasible, norm, _ = truth(instance)
            assert (norm if feasible else None) == RECORDS[instance.family, 7][1]


@pytest.mark.parametrize("family", FAMILIES)
def test_frobenius(family):
    for (name, index), (_, norm, kappa) in RECORDS.items():
        if name != family:
            continue
        status, lower, upper, _ = solved("frobenius")[name, index]
        if norm is None:
            assert status == "infeasible", (name, index)
            continue
        assert status in ("solved", "unconstrained") or (status == "undecided" and kappa > 1e12)
        slack = 1e-12 + 64 * EPS * kappa
        assert lower <= norm * (1 + slack), (name, index)
        assert upper >= norm * (1 - slack), (name, index)


@pytest.mark.full
@pytest.mark.parametrize("family", FAMILIES)
def test_nuclear(family):
    for (name, index), (_, norm, kappa) in RECORDS.items():
        if name != family:
            continue
        status, lower, upper, gap = solved("nuclear")[name, index]
        if norm is None:
            assert status == "infeasible", (name, index)
            continue
        assert status in ("solved", "unconstrained") or (status == "undecided" and kappa > 1e6)
        slack = 1e-12 + 64 * EPS * kappa
        assert upper >= norm * (1 - slack), (name, index)  # ||W||_F <= ||W||_*
        assert lower <= upper * (1 + slack), (name, index)
        assert kappa > 1e6 or gap <= 1e-8
