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


@pytest.mark.parametrize(("x", "z"), [(-20, 0), (20, 0), (300, -400), (-500, -400)])
def test_powers_of_two_are_undone_exactly(x, z):
    X, Z, selected = spheres(10, 5, 6, range(3))
    solutions = []
    for arrays in ((X, Z, selected), (X * 2.0**x, Z * 2.0**z, selected)):
        solutions.append(solve_rank_constrained(*arrays, 3))
    one, other = solutions
    assert torch.equal(one.objective, other.objective * 2.0 ** (x + z))
    assert torch.equal(one.W.nan_to_num(), (other.W * 2.0 ** (x + z)).nan_to_num())


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
    with pytest.raises(ValueError, match="m=0"):
        solve_rank_constrained(X, Z[None], selected, 0)


def test_results_are_of_the_kind_and_shape_of_the_input():
    X, Z, selected = spheres(4, 4, 4, range(2))
    batch = solve_rank_constrained(X, Z, selected, 2)
    one = solve_rank_constrained(X[0].numpy(), Z[0].numpy(), selected[0].numpy(), 2)
    assert one.W.shape == (4, 4)
    assert float(one.objective) == float(batch.objective[0])
    assert one.status == batch.statuses[0]
    assert one.certificate.multipliers.shape == (12,)


def test_what_no_rank_separates_is_infeasible_and_proved():
    e = torch.eye(2).double()
    X = torch.stack([torch.zeros(2), e[0], -e[0]]).double()[None, None]
    solution = solve_rank_constrained(X, e[None, :1], torch.tensor([[0]]), 1)
    assert solution.status == ("infeasible",)
    assert (solution.certificate.ray_ratio >= 1e12).all()
    assert solution.W.isnan().all()


@pytest.mark.parametrize("m", [1, 2, 3])
def test_an_instance_does_not_depend_on_its_batch(m):
    X, Z, selected = spheres(6, 5, 6, range(5))
    whole = solve_rank_constrained(X, Z, selected, m)
    for k in range(5):
        one = solve_rank_constrained(X[k], Z[k], selected[k], m)
        assert torch.equal(one.W.nan_to_num(), whole.W[k].nan_to_num())
        assert one.objective == whole.objective[k]


@pytest.mark.parametrize("m", [0, 5, -1, 2.5, True, "2", None])
def test_a_rank_that_is_none_is_refused(m):
    X, Z, selected = spheres(4, 4, 4, range(1))
    with pytest.raises(ValueError, match=r"m=.*: must be an integer >= 1 and <= d=4"):
        solve_rank_constrained(X, Z, selected, m)
