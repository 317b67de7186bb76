from itertools import product

import numpy as np
import pytest
import torch
from torch.nn.functional import pad

from attnsvm.svm import single_token, solve_rank_constrained, solve_svm
from attnsvm.svm.frobenius import pivoting
from attnsvm.svm.reduction import MANY, WIDE
from tests.quick import quick_rows
from tests.svm.instances import spheres

CASES = [*product((1, 6, 3), [6], [pivoting.GRAM_ROWS, 0])]
CASES += product((1, 2), (MANY - 1, MANY, WIDE), [pivoting.GRAM_ROWS])


@pytest.mark.parametrize(("m", "d", "gram_rows"), quick_rows(*CASES, count=4))
def test_feasible_of_rank_m_and_bounded_below(m, d, gram_rows, monkeypatch):
    """Also where further dimensions are zero, and both with and without Gram matrices."""
    monkeypatch.setattr(pivoting, "GRAM_ROWS", gram_rows)
    X, Z, selected = spheres(10, 5, 6, range(3))
    instances = pad(X, (0, d - 6)), pad(Z, (0, d - 6)), selected
    problem = single_token(*instances)
    solution, relaxation = solve_rank_constrained(*instances, m), solve_svm(*instances, "nuclear")
    known = solution.objective.isfinite()
    assert m < 3 or known.all()
    W, part = solution.W[known], problem.take(known)
    assert (part.margins(W) >= 1 - 1e-9)[part.inequality].all()
    sigma = torch.linalg.svdvals(W)
    assert (sigma[:, m:] <= 1e-6 * sigma[:, :1]).all()
    assert torch.allclose(sigma.sum(dim=1), solution.objective[known], rtol=1e-9)
    assert (solution.duality_gap[known] >= -1e-9).all()
    assert torch.equal(solution.lower_bound, relaxation.lower_bound)
    exact = relaxation.rank <= m
    assert solution.statuses == tuple("solved" if item else "undecided" for item in exact)
    assert torch.equal(solution.W[exact], relaxation.W[exact])


def test_a_sign_pattern_that_no_rank_one_matrix_has():
    """W = u v^T cannot have the signs [[+, +], [+, -]]."""
    e = torch.eye(2).double()
    d, Z = torch.stack([e[0], e[0], e[1], -e[1]]), torch.stack([e[0], e[1], e[0], e[1]])
    X = torch.stack([d, torch.zeros_like(d)], dim=1)[None]
    selected = torch.zeros(1, 4, dtype=torch.int64)
    two, item = (solve_rank_constrained(X, Z[None], selected, m) for m in (2, 1))
    assert (two.status, two.rank.tolist()) == (("solved",), [2])
    assert item.status == ("undecided",)
    assert item.objective.isinf().all()
    assert torch.equal(item.lower_bound, two.lower_bound)
    assert item.W.isnan().all()
    X = torch.cat([X, -X[:, :, :1]], dim=2)  # the selected token between two others
    none = solve_rank_constrained(X, Z[None], selected + 1, 1)
    assert none.status == ("infeasible",)
    assert (none.certificate.ray_ratio >= 1e12).all()


@pytest.mark.parametrize("m", [1, 3])
def test_an_instance_does_not_depend_on_its_batch(m):
    instances = spheres(6, 5, 6, range(5))
    whole = solve_rank_constrained(*instances, m)
    for k in (0, 4):
        alone = solve_rank_constrained(*(x[k].numpy() for x in instances), m)
        np.testing.assert_array_equal(alone.W, whole.W[k])


@pytest.mark.parametrize("m", [0, 5, -1, 2.5, True, "2", None])
def test_a_rank_that_is_none_is_refused(m):
    with pytest.raises(ValueError, match=r"m=.*: must be an integer >= 1 and <= d=4"):
        solve_rank_constrained(*spheres(4, 4, 4, range(1)), m)
