"""Both parts of Gen-SVM as one problem: the least norm that has the softmax of a W, or more."""

import pytest
import torch

from attnsvm import margin_gap, sample, solve_svm
from attnsvm.norm import norm_of
from attnsvm.svm import attained, solve
from tests.kkt import normal


@pytest.mark.parametrize("norm", ["frobenius", "nuclear", "max"])
@pytest.mark.parametrize("least_log", [-7.0, 0.0])
def test_the_solution_attains_the_log_ratios_and_is_the_least(norm, least_log):
    """No W with them is smaller; with one attended token a sample it is the SVM's direction."""
    batch = sample("sphere", n=3, T=4, d=6, trials=5)
    W = 20 * normal(5, 6, 6)

    def soft(W):
        return torch.einsum("bntd,bde,bne->bnt", batch.X, W, batch.Z).log_softmax(-1)

    logs = soft(W)
    selected = logs.argmax(-1)
    attended = (logs >= least_log).scatter(2, selected[..., None], True)
    problem, C = attained(batch.X, batch.Z, selected, attended, logs)
    solution = solve(problem, norm, 4)
    least, size = C[:, None, None] * solution.W, norm_of(norm).value(W)
    assert (C * solution.objective <= size * (1 + 1e-9)).all()
    again = soft(least)
    ratios, wanted = (x.gather(2, selected[..., None]) - x for x in (again, logs))
    torch.testing.assert_close(ratios[attended], wanted[attended])
    assert (ratios[~attended] >= C[:, None, None].expand_as(ratios)[~attended] * (1 - 1e-9)).all()
    if least_log == 0:
        alone = solve_svm(batch.X, batch.Z, selected, norm)
        gap = 1 - C * solution.lower_bound / size
        torch.testing.assert_close(gap, margin_gap(W, alone), rtol=1e-7, atol=1e-8)
