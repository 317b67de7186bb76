from threading import get_ident

import pytest
import torch
from numba import njit

from attnsvm import jit, sample
from attnsvm.selection import optimal_tokens
from attnsvm.svm import laned, single_token
from attnsvm.svm.frobenius import LeastDistance
from attnsvm.svm.nuclear.cone import project
from attnsvm.svm.nuclear.interior_point import solve_batch
from attnsvm.svm.nuclear.small import solve_small
from attnsvm.svm.solve import solve

SHAPES = ((2, 3, 2), (5, 5, 5), (6, 8, 10), (7, 4, 20), (3, 9, 4))


def instances(n, T, d, trials):
    batch = sample("sphere", n=n, T=T, d=d, trials=trials)
    return single_token(batch.X, batch.Z, optimal_tokens(batch)[0])


def feasible(shape, trials=11):
    """Return the cones of feasible instances and their Frobenius solutions."""
    problem = instances(*shape, trials)
    start = LeastDistance().candidates(problem)
    found = start.W.isfinite().all(dim=(1, 2)).nonzero()[:, 0]
    cone = project(problem.take(found), start.W[found])
    return cone, *cone.reproject(start.W[found], start.multipliers[found])


def nuclear(W):
    return torch.linalg.svdvals(W).sum(dim=1)


@pytest.mark.parametrize("shape", SHAPES)
def test_bounds_meet_and_are_those_of_the_batched_method(shape):
    cone, W, a = feasible(shape)
    W, a, converged = solve_small(cone, W, a)
    assert converged.all()
    assert (torch.linalg.matrix_norm(cone.combine(a), ord=2) <= 1 + 1e-12).all()
    least = torch.where(cone.inequality, cone.apply(W) / cone.h, torch.inf).amin(dim=1)
    upper, lower = nuclear(W) / least, (cone.h * a * ~cone.padding).sum(dim=1)
    assert (upper >= lower * (1 - 1e-12)).all()
    assert (upper <= lower * (1 + 5e-10)).all()
    other, _, converged = solve_batch(*feasible(shape))
    least = torch.where(cone.inequality, cone.apply(other) / cone.h, torch.inf).amin(dim=1)
    assert converged.all()
    torch.testing.assert_close(nuclear(other) / least, upper, rtol=1e-9, atol=0)


@pytest.mark.parametrize("cores", [1, 3])
def test_bits_depend_neither_on_lanes_nor_on_threads(cores, monkeypatch):
    cone, W, a = feasible((6, 8, 10), 19)
    together = solve_small(cone, W, a)
    monkeypatch.setattr(laned, "_cores", lambda: cores)
    order = torch.randperm(19, generator=torch.Generator().manual_seed(0))
    shuffled = solve_small(cone.take(order), W[order], a[order])
    for b in range(19):
        index = torch.tensor([b])
        alone = solve_small(cone.take(index), W[index], a[index])
        for x, y, z in zip(together, shuffled, alone, strict=True):
            assert torch.equal(x[b], z[0])
            assert torch.equal(y[order == b][0], z[0])


def test_a_lane_of_nans_does_not_converge_and_leaves_the_others_alone():
    cone, W, a = feasible((5, 5, 5), 8)
    expected = solve_small(cone, W, a)
    cone.D[3] = torch.nan
    found = solve_small(cone, W, a)
    assert found[2].tolist() == [b != 3 for b in range(8)]
    for x, y in zip(expected, found, strict=True):
        for b in set(range(8)) - {3}:
            assert torch.equal(x[b], y[b])


@pytest.mark.parametrize("shape", SHAPES)
def test_solution_of_a_batch_is_that_of_singles_to_the_last_bit(shape):
    problem = instances(*shape, 10)
    together = solve(problem, "nuclear", shape[1])
    for b in range(10):
        alone = solve(problem.take(slice(b, b + 1)), "nuclear", shape[1])
        assert alone.status[0] == together.status[b]
        for x, y in ((alone.W, together.W), (alone.objective, together.objective)):
            torch.testing.assert_close(x[0], y[b], rtol=0, atol=0, equal_nan=True)


def test_what_a_thread_compiles_is_announced(monkeypatch, caplog):
    monkeypatch.setattr(laned, "_cores", lambda: 2)
    triple = njit(lambda x: 3 * x)
    batch = instances(2, 3, 2, 40)
    sizes = batch.D.new_ones(40, 2, 2), batch.D.new_ones(40, 4)
    with jit.announced("outer"), jit.announced("test"):
        _, _, answers = laned.shared(
            (batch.D, batch.Z, batch.h, batch.kind, *sizes),
            lambda groups: [(triple(1), get_ident()) for _ in groups],
        )
    assert len(answers) == 5
    assert get_ident() not in {thread for _, thread in answers}
    assert [record.getMessage().split(" for ")[0] for record in caplog.records] == [
        "compiling the test"
    ]
