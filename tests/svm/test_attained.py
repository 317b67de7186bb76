"""Both parts of Gen-SVM as one problem: the least norm that has the softmax of a W, or more."""

import pytest
import torch

from attnsvm import margin_gap, sample, solve_svm
from attnsvm.norm import norm_of
from attnsvm.svm import attained, single_token, solve


def trained(B=5, n=3, T=4, d=6):
    """Return instances, weights that attend to some tokens, and log softmax."""
    batch = sample("sphere", n=n, T=T, d=d, trials=B)
    generator = torch.Generator().manual_seed(0)
    W = 20 * torch.randn(B, d, d, generator=generator, dtype=torch.float64)
    return batch, W, soft(batch, W)


def soft(batch, W):
    logits = torch.einsum("bntd,bde,bne->bnt", batch.X, W, batch.Z)
    return logits.log_softmax(-1)


@pytest.mark.parametrize("norm", ["frobenius", "nuclear", "max"])
def test_the_solution_attains_the_log_ratios_and_is_the_least(norm):
    """Its own softmax gives the same problem, whose bound is its norm; no W with it is smaller."""
    batch, W, log_s = trained()
    attended = log_s >= -7
    assert 1 < attended.sum(-1).double().mean() < 4
    problem, C = attained(batch.X, batch.Z, log_s.argmax(-1), attended, log_s)
    least = C[:, None, None] * solve(problem, norm, batch.T).W
    size = norm_of(norm).value(least)
    assert (size <= norm_of(norm).value(W) * (1 + 1e-9)).all()
    again = soft(batch, least)
    assert again.argmax(-1).equal(log_s.argmax(-1))
    first = log_s.argmax(-1)[..., None]
    ratios, wanted = (x.gather(2, first) - x for x in (again, log_s))
    torch.testing.assert_close(ratios[attended], wanted[attended])
    assert (ratios[~attended] >= C[:, None, None].expand_as(ratios)[~attended] * (1 - 1e-9)).all()
    problem, C = attained(batch.X, batch.Z, log_s.argmax(-1), attended, again)
    torch.testing.assert_close(C * solve(problem, norm, batch.T).lower_bound, size)


def test_of_one_token_a_sample_it_is_the_svm():
    batch, W, log_s = trained()
    selected = log_s.argmax(-1)
    item = torch.zeros_like(log_s, dtype=torch.bool).scatter(2, selected[..., None], True)
    problem, C = attained(batch.X, batch.Z, selected, item, log_s)
    alone = single_token(batch.X, batch.Z, selected)
    assert problem.h.equal(alone.h)
    assert problem.kind.equal(alone.kind)
    solution = solve_svm(batch.X, batch.Z, selected, "nuclear")
    expected = margin_gap(W, solution)
    least = solve(problem, "nuclear", batch.T).lower_bound
    gap = 1 - C * least / norm_of("nuclear").value(W)
    torch.testing.assert_close(gap, expected)
