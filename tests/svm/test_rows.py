"""Rows of several attended tokens, and right-hand sides other than one."""

import math

import pytest
import torch

from attnsvm import margin_gap
from attnsvm.svm import attained, solve, solve_gen_svm, solve_svm
from tests.kkt import assert_near, assert_optimal, norm, normal
from tests.quick import quick
from tests.svm.instances import NORMS, every_norm, gaussian, spheres


@pytest.mark.parametrize("name", quick("frobenius", "spectral+max", *NORMS[1:], count=2))
def test_several_tokens_and_masks(name):
    """Logits minus log s, or minus 0, are constant inside O_i, and W_mm has margin one outside."""
    X, Z, _ = gaussian(3, 5, 6, 4, seed=8)
    mask = normal(4, 3, 5, seed=9) > -1
    attended = mask & (normal(4, 3, 5) > 0)
    mask[..., 0] = attended[..., 0] = True
    logs = normal(4, 3, 5, seed=8).log_softmax(-1)
    both = solve_gen_svm(X, Z, attended, logs, name, mask)
    for solution, wanted in zip(both, (logs, 0 * logs), strict=True):
        assert solution.status == ("solved",) * 4
        assert_optimal(solution.problem, solution)
        rest = torch.einsum("bntd,bde,bne->bnt", X, solution.W, Z) - wanted
        low = torch.where(attended, rest, torch.inf).amin(-1)
        high = torch.where(attended, rest, -torch.inf).amax(-1)
        assert_near(low, high, atol=1e-11)
    assert (torch.where(mask & ~attended, rest, -torch.inf).amax(-1) <= low - 1 + 1e-11).all()


def test_what_nothing_separates_is_clipped_from_some_ratio_on():
    """A token equals the selected one of a sample whose offset is not the least."""
    X, Z, selected = gaussian(3, 4, 6, 4, seed=1)
    X[:, 2, 1] = X[:, 2, 0]
    gamma, ratio = torch.arange(3.0).expand(4, 3), torch.tensor([0.0, 0.01, 1e6, math.inf])
    solution = solve_svm(X, Z, selected, offsets=gamma, ratio=ratio)
    assert solution.status == ("infeasible", "undecided", "solved", "solved")


@every_norm
def test_invariances(name):
    """Offsets plus a constant; the ratios 0 and inf; an instance out of its batch."""
    X, Z, selected = spheres(4, 4, 6, range(3))
    gamma, r = normal(3, 4, seed=2), torch.tensor([0.2, 1.0, 30.0]).double()

    def solved(b=slice(None), **changed):
        options = {"offsets": gamma[b], "ratio": r[b]} | changed
        return solve_svm(X[b], Z[b], selected[b], name, **options)

    solution, none = solved(), dict.fromkeys(("offsets", "ratio"))
    assert solution.status == ("solved",) * 3
    assert_near(norm(solution.W, name), solution.objective, rtol=1e-12)
    assert margin_gap(7 * solution.W, solution).abs().max() <= 1e-9
    plain = solved(**none).W
    least = (gamma == gamma.amin(1, keepdim=True)).double().repeat_interleave(3, 1)
    assert torch.equal(solved(ratio=0).W, plain)
    assert torch.equal(solved(ratio=math.inf).W, solved(margins=least, **none).W)
    for other in (plain, normal(3, 6, 6), solution.W + 1e-3 * normal(3, 6, 6, seed=1)):
        assert (margin_gap(other, solution) > 1e-6).all()
    shifted = solved(offsets=gamma + 3)
    assert_near(shifted.objective, solution.objective, rtol=1e-9)
    assert_near(solved(2).W, solution.W[2], atol=1e-11)


@every_norm
@pytest.mark.parametrize("least_log", [-7.0, 0.0])
def test_the_solution_attains_the_log_ratios_and_is_the_least(name, least_log):
    """No W with them is smaller; with one attended token a sample it is the SVM's direction."""
    X, Z, _ = spheres(3, 4, 6, range(5))
    W = 20 * normal(5, 6, 6)

    def soft(W):
        return torch.einsum("bntd,bde,bne->bnt", X, W, Z).log_softmax(-1)

    logs = soft(W)
    selected = logs.argmax(-1)
    attended = (logs >= least_log).scatter(2, selected[..., None], True)
    problem, C = attained(X, Z, selected, attended, logs)
    solution = solve(problem, name, 4)
    size = norm(W, name)
    assert (C * solution.objective <= size * (1 + 1e-9)).all()
    again = soft(C[:, None, None] * solution.W)
    ratios, wanted = (x.gather(2, selected[..., None]) - x for x in (again, logs))
    torch.testing.assert_close(ratios[attended], wanted[attended])
    assert (ratios[~attended] >= C[:, None, None].expand_as(ratios)[~attended] * (1 - 1e-9)).all()
    if least_log == 0:
        alone = solve_svm(X, Z, selected, name)
        gap = 1 - C * solution.lower_bound / size
        assert_near(gap, margin_gap(W, alone), rtol=1e-7, atol=1e-8)


@pytest.mark.parametrize("name", quick("l3", "l1", "max", "nuclear", "frobenius"))
def test_the_least_margin_is_that_of_w_also_where_the_gap_is_below_rounding(name):
    X, Z, selected = spheres(4, 3, 3, range(60))
    solution = solve_svm(X, Z, selected, norm=name, gap=1e-12)
    logits = (X @ solution.W[:, None] @ Z[..., None])[..., 0]
    margins = logits.take_along_dim(selected[..., None], 2) - logits
    others = torch.arange(3) != selected[..., None]
    least = margins.where(others, torch.inf).flatten(1).amin(1)
    feasible = solution.objective.isfinite()
    assert feasible.sum() > 50
    torch.testing.assert_close(solution.min_margin[feasible], least[feasible])


@pytest.mark.parametrize("name", ["frobenius", *quick("nuclear", "spectral", "schatten3")])
@pytest.mark.parametrize("apart", [1e-8, 1e-10, 1e-12])
def test_tokens_that_nearly_coincide(name, apart):
    """Of rows b that are nearly parallel one is held: norm(W) = 1 / (||d - (d.b) b|| ||z||)."""
    b, u, z = (normal(20, 1, 3, seed=k) for k in range(3))
    b = b / b.norm(dim=2, keepdim=True)
    across = u - (u * b).sum(2, keepdim=True) * b
    X, mask = torch.zeros(20, 2, 4, 3).double(), torch.ones(20, 2, 4).bool()
    X[:, 0, 1:], X[:, 1, 1:] = b - across, -b + apart * normal(20, 3, 3, seed=3)
    mask[:, 0, 2:] = False
    solution = solve_svm(
        *(X, z.expand(20, 2, 3), torch.zeros(20, 2).long(), name, mask),
        offsets=torch.tensor([[0.0, 1.0]]).double().expand(20, 2),
        ratio=torch.full((20,), math.inf).double(),
    )
    assert solution.status == ("solved",) * 20
    exact = 1 / (across.norm(dim=2) * z.norm(dim=2))[:, 0]
    torch.testing.assert_close(solution.objective, exact, rtol=1e-9 + 50 * apart, atol=0)
