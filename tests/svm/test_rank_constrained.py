import pytest
import torch

from attnsvm.svm import single_token, solve_rank_constrained, solve_svm
from tests.svm.instances import spheres


@pytest.fixture(scope="module")
def relaxed():
    X, Z, selected = spheres(10, 5, 6, range(3))
    problem = single_token(X, Z, selected)
    return problem, solve_svm(X, Z, selected, norm="nuclear")


@pytest.mark.parametrize("m", [1, 3, 6])
def test_feasible_of_rank_m_and_bounded_below(relaxed, m):
    problem, relaxation = relaxed
    solution = solve_rank_constrained(problem, relaxation, m)
    found = solution.objective.isfinite()
    W = solution.W[found]
    part = problem.take(found)
    assert (part.margins(W) >= 1 - 1e-9)[part.inequality].all()
    sigma = torch.linalg.svdvals(W)
    assert (sigma[:, m:] <= 1e-6 * sigma[:, :1]).all()
    assert torch.allclose(sigma.sum(dim=1), solution.objective[found], rtol=1e-9)
    assert (solution.gap[found] >= -1e-9).all()
    assert (solution.exact == (relaxation.rank <= m)).all()
    assert (solution.gap[solution.exact] <= 1e-9).all()
    if m >= 3:
        assert found.all()


def test_the_norm_falls_with_m(relaxed):
    problem, relaxation = relaxed
    norms = [solve_rank_constrained(problem, relaxation, m).objective for m in (3, 4, 5, 6)]
    for wide, narrow in zip(norms[1:], norms, strict=False):
        assert (wide <= narrow * (1 + 1e-6)).all()
    assert torch.equal(norms[-1], relaxation.objective)  # m = d: no constraint


def test_a_sign_pattern_that_no_rank_one_matrix_has():
    # W = u v^T cannot have the signs [[+, +], [+, -]].
    e = torch.eye(2).double()
    d, Z = torch.stack([e[0], e[0], e[1], -e[1]]), torch.stack([e[0], e[1], e[0], e[1]])
    X = torch.stack([d, torch.zeros_like(d)], dim=1)[None]
    selected = torch.zeros(1, 4, dtype=torch.int64)
    relaxation = solve_svm(X, Z[None], selected, norm="nuclear")
    problem = single_token(X, Z[None], selected)
    assert relaxation.status == ("solved",)
    assert solve_rank_constrained(problem, relaxation, 2).exact.all()
    one = solve_rank_constrained(problem, relaxation, 1)
    assert one.objective.isinf().all()
    assert one.W.isnan().all()
    with pytest.raises(ValueError, match="m=0"):
        solve_rank_constrained(problem, relaxation, 0)
