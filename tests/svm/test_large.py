from dataclasses import replace

import pytest
import torch

from attnsvm import sample
from attnsvm.norm import norm_of
from attnsvm.selection import optimal_tokens
from attnsvm.svm import finite_part, multi_token, single_token, solve, solve_svm
from attnsvm.svm.certificate import MANY
from attnsvm.svm.interior_point import LARGE
from attnsvm.svm.reduction import WIDE
from attnsvm.theory.token_graph import label_components
from tests.kkt import assert_infeasible, assert_optimal
from tests.quick import quick
from tests.svm.instances import generated, spheres

EVERY = ["nuclear", "frobenius", "spectral", "max", "l1", "l1.75", "l3"]
ENTRYWISE = ["max", "l1", "l1.75", "l3", "l5"]


@pytest.mark.parametrize("norm", [*EVERY, "l5", "schatten1.5", "schatten3"])
@pytest.mark.parametrize("shape", quick((6, 8, 10), (8, 12, 12), (1, 30, 6)))
def test_constraint_generation_finds_the_same(norm, shape):
    X, Z, selected = spheres(*shape, range(3))
    problem = single_token(X, Z, selected)
    verdict = generated(problem, norm)
    usual = solve_svm(X, Z, selected, norm=norm)
    assert verdict.status == usual.status
    solved = [b for b, status in enumerate(usual.status) if status == "solved"]
    assert solved
    solution, known = verdict.certificate.upper[solved], usual.objective[solved]
    assert torch.allclose(solution, known, rtol=2e-9)


@pytest.mark.parametrize("norm", quick(*EVERY))
@pytest.mark.parametrize("count", [2, 4])
@pytest.mark.parametrize("part", ["margins", "finite"])
def test_equalities_stay(norm, count, part):
    X, Z, _ = spheres(8, 12, 12, range(3))
    attended = torch.zeros(X.shape[:3], dtype=torch.bool)
    attended[..., :count] = True
    logs = torch.randn(X.shape[:3], generator=torch.Generator().manual_seed(0)).double()
    margins = part == "margins"
    problem = multi_token(X, Z, attended) if margins else finite_part(X, Z, attended, logs)
    verdict = generated(problem, norm)
    usual = solve(problem, norm, 12)
    assert verdict.status == usual.status == ("solved",) * 3
    torch.testing.assert_close(verdict.certificate.upper, usual.objective, rtol=2e-9, atol=0)


@pytest.mark.parametrize("norm", quick(*EVERY))
def test_a_large_instance_with_equalities(norm):
    X, Z, _ = spheres(70, 16, 32, range(1))
    attended = torch.zeros(X.shape[:3], dtype=torch.bool)
    attended[..., :6] = True  # 350 equalities
    problem = multi_token(X, Z, attended)
    assert problem.N >= LARGE
    assert problem.equality.sum() > MANY
    assert_optimal(problem, solve(problem, norm, 16))
    X[0, 0, 6] = 2 * X[0, 0, 0] - X[0, 0, 7]  # opposite sides of the selected token
    problem = multi_token(X, Z, attended)
    assert_infeasible(problem, solve(problem, norm, 16))


@pytest.mark.parametrize("norm", quick(*EVERY))
def test_equalities_that_contradict_each_other(norm):
    X, Z, _ = spheres(70, 16, 32, range(1))
    attended = torch.zeros(X.shape[:3], dtype=torch.bool)
    attended[..., :3] = True
    logs = torch.zeros(X.shape[:3]).double()
    logs[..., 1] = 1.0
    assert solve(finite_part(X, Z, attended, logs), norm, 16).status == ("solved",)
    X[0, 3, 2] = X[0, 3, 1]  # one token, two probabilities
    problem = finite_part(X, Z, attended, logs)
    assert problem.N >= LARGE
    assert_infeasible(problem, solve(problem, norm, 16))


@pytest.mark.parametrize("K", quick(24, 32))
@pytest.mark.parametrize("embeddings", ["orthonormal", "sphere"])
def test_chains_of_margins_that_cannot_all_be_active(embeddings, K):
    """With a > b, b > c, a > c for each query: solved, also query by query where they decouple."""
    batch = sample("token_graph", n=500, T=6, K=K, d=K, embeddings=embeddings, trials=1)
    _, kept = label_components(batch)
    problem = single_token(batch.X, batch.Z, optimal_tokens(batch)[0], kept)
    assert problem.inequality.sum() >= LARGE
    solution = solve(problem, "frobenius", 6)
    assert_optimal(problem, solution)
    if embeddings == "orthonormal":
        _, of_query = torch.unique(batch.Z[0], dim=0, return_inverse=True)
        rows = of_query.repeat_interleave(5)
        parts = [problem.restrict((rows == k).nonzero()[:, 0]) for k in range(K)]
        alone = torch.cat([solve(part, "frobenius", 6).objective for part in parts])
        torch.testing.assert_close(alone.norm()[None], solution.objective, rtol=1e-10, atol=0)
    pair = problem.inequality.view(-1, 5)[:, :2].all(dim=1).nonzero()[0] * 5  # two of one sample
    opposite = problem.D.index_copy(1, pair + 1, -problem.D[:, pair])
    problem = replace(problem, D=opposite)
    assert_infeasible(problem, solve(problem, "frobenius", 6))


@pytest.mark.parametrize("shape", [(4, 600, 8), (10, 301, 16), (16, 70, 32)])
def test_large_instances(shape):
    """In few dimensions, the rows that a sample's first W violates are more than these can hold."""
    X, Z, selected = spheres(*shape, range(1))
    problem = single_token(X, Z, selected)
    assert problem.N >= LARGE
    solution = solve(problem, "frobenius", shape[1])
    assert solution.status == ("solved",)
    assert_optimal(problem, solution)
    assert solution.duality_gap.item() <= 1e-12
    token = X[:, :, :1]  # beside it its mirror image in the selected token: infeasible
    chosen = X.gather(2, selected[..., None, None].expand(-1, -1, 1, shape[2]))
    problem = single_token(torch.cat([X, 2 * chosen - token], dim=2), Z, selected)
    assert_infeasible(problem, solve(problem, "frobenius", shape[1] + 1))


@pytest.mark.parametrize("norm", quick(*EVERY))
def test_equal_tokens(norm):
    X, Z, selected = spheres(16, 70, 8, range(1))
    X[:, 5] = X[:, 5, :1]
    problem = single_token(X, Z, selected)
    assert problem.N >= LARGE
    assert_infeasible(problem, solve(problem, norm, 70))
    everything = torch.ones(X.shape[:3], dtype=torch.bool)  # nothing but 0 = 0 and 0 >= 0
    assert solve(multi_token(X, Z, everything), norm, 70).status == ("unconstrained",)


@pytest.mark.parametrize("norm", quick(*ENTRYWISE))
def test_entrywise_norms_in_many_dimensions_are_not_reduced_to_the_span(norm):
    """One row has the norm of its dual direction; several are solved, or proved infeasible."""
    X, Z, selected = spheres(1, 2, WIDE, range(2))
    problem = single_token(X, Z, selected)
    row = problem.combine(torch.ones_like(problem.h))
    solution = solve(problem, norm, 2)
    assert solution.status == ("solved", "solved")
    known = 1 / norm_of(norm).dual.value(row)
    torch.testing.assert_close(solution.objective, known, rtol=1e-9, atol=0)
    X, Z, selected = spheres(2, 3, WIDE, range(1))
    assert solve_svm(X, Z, selected, norm=norm).status == ("solved",)
    X = torch.cat([X, 2 * X[:, :, :1] - X[:, :, 1:]], dim=2)
    assert solve_svm(X, Z, torch.zeros_like(selected), norm=norm).status == ("infeasible",)
