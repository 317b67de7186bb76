import pytest
import torch

from attnsvm.svm import single_token, solve_rank_constrained, solve_svm
from tests.svm.instances import gaussian, spheres


@pytest.fixture(scope="module")
def instances():
    X, Z, selected = spheres(10, 5, 6, range(3))
    return X, Z, selected


@pytest.mark.parametrize("m", [1, 3, 6])
def test_feasible_of_rank_m_and_bounded_below(instances, m):
    problem = single_token(*instances)
    solution = solve_rank_constrained(*instances, m)
    relaxation = solve_svm(*instances, norm="nuclear")
    found = solution.objective.isfinite()
    W = solution.W[found]
    part = problem.take(found)
    assert (part.margins(W) >= 1 - 1e-9)[part.inequality].all()
    sigma = torch.linalg.svdvals(W)
    assert (sigma[:, m:] <= 1e-6 * sigma[:, :1]).all()
    assert torch.allclose(sigma.sum(dim=1), solution.objective[found], rtol=1e-9)
    assert (solution.duality_gap[found] >= -1e-9).all()
    assert torch.equal(solution.lower_bound, relaxation.lower_bound)
    exact = relaxation.rank <= m
    assert solution.statuses == tuple("solved" if one else "undecided" for one in exact)
    assert torch.equal(solution.W[exact], relaxation.W[exact])
    if m >= 3:
        assert found.all()


@pytest.mark.parametrize("m", [1, 3])
@pytest.mark.parametrize(("x", "z"), [(1e-6, 1.0), (1e6, 1.0), (1e-3, 1e-3), (3.0, 1e6)])
def test_the_scale_of_the_tokens_decides_nothing(m, x, z):
    X, Z, selected = spheres(10, 5, 6, range(3))
    X = torch.cat([X, gaussian(10, 5, 6, 1, seed=4)[0]])  # not all of rank 3
    Z, selected = torch.cat([Z, Z[:1]]), torch.cat([selected, selected[:1] * 0])
    solutions = []
    for arrays in ((X, Z, selected), (x * X, z * Z, selected)):
        solutions.append(solve_rank_constrained(*arrays, m))
    one, other = solutions
    assert one.statuses == other.statuses
    found = one.objective.isfinite()
    assert torch.equal(found, other.objective.isfinite())
    # The search is local: rounding the tokens anew shifts where it stands after its last round.
    norms = other.objective[found] * x * z, one.objective[found]
    torch.testing.assert_close(*norms, rtol=1e-4, atol=0)


def test_the_norm_falls_with_m(instances):
    norms = [solve_rank_constrained(*instances, m).objective for m in (3, 4, 5, 6)]
    for wide, narrow in zip(norms[1:], norms, strict=False):
        assert (wide <= narrow * (1 + 1e-6)).all()
    least = solve_svm(*instances, norm="nuclear").objective
    assert torch.equal(norms[-1], least)  # m = d: no constraint


def test_a_sign_pattern_that_no_rank_one_matrix_has():
    # W = u v^T cannot have the signs [[+, +], [+, -]].
    e = torch.eye(2).double()
    d, Z = torch.stack([e[0], e[0], e[1], -e[1]]), torch.stack([e[0], e[1], e[0], e[1]])
    X = torch.stack([d, torch.zeros_like(d)], dim=1)[None]
    selected = torch.zeros(1, 4, dtype=torch.int64)
    two = solve_rank_constrained(X, Z[None], selected, 2)
    assert two.status == ("solved",)
    assert two.rank.tolist() == [2]
    one = solve_rank_constrained(X, Z[None], selected, 1)
    assert one.status == ("undecided",)
    assert one.objective.isinf().all()
    assert torch.equal(one.lower_bound, two.lower_bound)
    assert one.W.isnan().all()
    X = torch.cat([X, -X[:, :, :1]], dim=2)  # the selected token between two others
    none = solve_rank_constrained(X, Z[None], selected + 1, 1)
    assert none.status == ("infeasible",)
    assert (none.certificate.ray_ratio >= 1e12).all()


@pytest.mark.parametrize("m", [1, 3])
def test_an_instance_does_not_depend_on_its_batch(m):
    """Results are of the kind and shape of the input."""
    X, Z, selected = spheres(6, 5, 6, range(5))
    whole = solve_rank_constrained(X, Z, selected, m)
    for k in range(5):
        one = solve_rank_constrained(X[k].numpy(), Z[k].numpy(), selected[k].numpy(), m)
        assert one.certificate.multipliers.shape == (24,)
        assert torch.equal(torch.from_numpy(one.W).nan_to_num(), whole.W[k].nan_to_num())
        assert one.objective == whole.objective[k]
        assert one.status == whole.statuses[k]


@pytest.mark.parametrize("m", [0, 5, -1, 2.5, True, "2", None])
def test_a_rank_that_is_none_is_refused(m):
    X, Z, selected = spheres(4, 4, 4, range(1))
    with pytest.raises(ValueError, match=r"m=.*: must be an integer >= 1 and <= d=4"):
        solve_rank_constrained(X, Z, selected, m)
