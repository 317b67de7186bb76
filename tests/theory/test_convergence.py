"""Types of convergence of known selections, and whether a direction has settled."""

from types import SimpleNamespace

import pytest
import torch

import attnsvm
from attnsvm.theory import convergence_types, direction_change
from tests.kkt import normal
from tests.svm.instances import batch_of

BATCH = batch_of(2, 3, 20, 20)
BEST, WORST = BATCH.scores().argmax(-1), BATCH.scores().argmin(-1)


def path_of(snapshots, steps):
    """Return what is read of a trajectory."""
    fields = {"snapshots": snapshots, "W": snapshots[:, -1], "loss": snapshots[..., 0, 0]}
    return SimpleNamespace(steps=torch.tensor(steps), **fields)


def types(selected, batch=BATCH, saturated=True, path=None, norm="frobenius", solution=None):
    """Return the types of W trained by gradient descent, at its SVM since half-way by default."""
    solution = solution or attnsvm.solve_svm(batch.X, batch.Z, selected, norm)
    fields = {"optimal": attnsvm.optimal_tokens(batch)[0], "selected": selected}
    selection = SimpleNamespace(saturated=torch.full((batch.B,), saturated), **fields)
    path = path or path_of(torch.stack([solution.W, 2 * solution.W], dim=1), [1, 2])
    bias = "frobenius" if norm == "nuclear" else norm
    return convergence_types(batch, selection, path, {norm: solution}, bias, 1e-4)


@pytest.mark.parametrize(
    ("selected", "options", "kind"),
    [
        (BEST, {}, "global"),
        (BEST, {"saturated": False}, "unsaturated"),
        (WORST, {}, "not_local"),  # n, T << d: every token is a support vector
        (BEST, {"norm": "nuclear"}, "global"),  # feasibility is the same for every norm
        (WORST, {"norm": "nuclear"}, "unknown"),  # the neighbours are not
    ],
)
def test_convergence_types_of_known_selections(selected, options, kind):
    assert {*types(selected, **options)} == {kind}


def test_an_svm_that_is_not_solved_has_no_neighbours():
    batch = batch_of(10, 5, 6, 8)
    selected = batch.scores().argmin(-1)
    solution = attnsvm.solve_rank_constrained(batch.X, batch.Z, selected, 2)
    undecided = [status == "undecided" for status in solution.statuses]
    assert any(undecided)
    kinds = types(selected, batch, norm="rank 2", solution=solution)
    assert [kind == "undecided" for kind in kinds] == undecided


def test_what_is_not_local_has_stayed_at_its_svm():
    W = attnsvm.solve_svm(BATCH.X, BATCH.Z, WORST).W
    away = W + 0.1 * W.norm(dim=(1, 2), keepdim=True) * normal(20, 20, 20) / 20
    for path in (
        path_of(torch.stack([away, W], dim=1), [1, 2]),  # it has just come
        path_of(torch.stack([away, 2 * away], dim=1), [1, 2]),  # it does not move, but elsewhere
        path_of(W[:, None], [0]),  # nothing is known of how it came
    ):
        assert {*types(WORST, path=path)} == {"unsettled"}
        assert {*types(BEST, path=path)} == {"global"}


def test_the_change_of_a_direction_is_that_since_half_of_the_steps():
    snapshots = normal(2, 4, 3, 3)
    for steps, half in (([0, 10, 50, 100], 2), ([0, 10, 60, 100], 1)):
        expected = attnsvm.one_minus_correlation(snapshots[:, -1], snapshots[:, half])
        assert torch.equal(direction_change(path_of(snapshots, steps)), expected)
    assert direction_change(path_of(snapshots[:, :1], [0])).isnan().all()
    snapshots[:, 2] = 0.0
    assert direction_change(path_of(snapshots, [0, 10, 50, 100])).isnan().all()
