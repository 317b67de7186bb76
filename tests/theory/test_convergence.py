"""Types of convergence of known selections, and whether a direction has settled."""

import dataclasses

import torch

import attnsvm
from attnsvm.theory import convergence_types, direction_change
from tests.kkt import normal


def selection_of(batch, selected: torch.Tensor, saturated: bool) -> attnsvm.TokenSelection:
    selection = attnsvm.select_tokens(batch, attnsvm.train(batch, steps=0))
    whole = torch.full((batch.B,), saturated)
    return dataclasses.replace(selection, selected=selected, saturated=whole)


def path_of(snapshots: torch.Tensor, steps: list[int]) -> attnsvm.Trajectory:
    """Return a trajectory of which only weights and steps are read."""
    B, _, d, _ = snapshots.shape
    batch = attnsvm.sample("sphere", n=2, T=2, d=d, trials=B)
    path = attnsvm.train(batch, steps=len(steps) - 1, record_every=1)
    fields = {"steps": torch.tensor(steps), "snapshots": snapshots, "W": snapshots[:, -1]}
    return dataclasses.replace(path, **fields)


def at_the_svm(W: torch.Tensor) -> attnsvm.Trajectory:
    """Return a training that has been at W since half-way."""
    return path_of(torch.stack([W, 2 * W], dim=1), [1, 2])


def types(batch, selected, saturated=True, norms=("frobenius",), path=None) -> list[str]:
    """Return the types of W trained by gradient descent, at its SVM if no path is given."""
    solutions = {norm: attnsvm.solve_svm(batch.X, batch.Z, selected, norm) for norm in norms}
    path = path or at_the_svm(next(iter(solutions.values())).W)
    selection = selection_of(batch, selected, saturated)
    return convergence_types(batch, selection, path, solutions, "frobenius", 1e-4)


def test_convergence_types_of_known_selections():
    batch = attnsvm.sample("sphere", n=2, T=3, d=20, trials=30)
    gamma = batch.scores()
    assert set(types(batch, gamma.argmax(-1))) == {"global"}
    assert set(types(batch, gamma.argmax(-1), saturated=False)) == {"unsaturated"}
    # n, T << d: every token is a support vector, so the worst token has better neighbours
    assert set(types(batch, gamma.argmin(-1))) == {"not_local"}
    # feasibility is the same for every norm, the neighbours are not
    assert set(types(batch, gamma.argmax(-1), norms=["nuclear"])) == {"global"}
    assert set(types(batch, gamma.argmin(-1), norms=["nuclear"])) == {"unknown"}


def test_an_svm_that_is_not_solved_has_no_neighbours():
    batch = attnsvm.sample("sphere", n=10, T=5, d=6, trials=8)
    selected = batch.scores().argmin(-1)
    selection = selection_of(batch, selected, True)
    solution = attnsvm.solve_rank_constrained(batch.X, batch.Z, selected, 2)
    path = at_the_svm(solution.W)
    got = convergence_types(batch, selection, path, {"nuclear": solution}, "nuclear", 1e-4)
    assert "undecided" in solution.statuses
    for status, kind in zip(solution.statuses, got, strict=True):
        assert (status == "undecided") == (kind == "undecided")


def test_what_is_not_local_has_stayed_at_its_svm():
    batch = attnsvm.sample("sphere", n=2, T=3, d=20, trials=10)
    best, worst = attnsvm.optimal_tokens(batch)[0], batch.scores().argmin(-1)
    W = attnsvm.solve_svm(batch.X, batch.Z, worst).W
    away = W + 0.1 * W.norm(dim=(1, 2), keepdim=True) * normal(10, 20, 20) / 20
    for path, kind in (
        (at_the_svm(W), "not_local"),
        (path_of(torch.stack([away, W], dim=1), [1, 2]), "unsettled"),  # it has just come
        (at_the_svm(away), "unsettled"),  # it does not move, but elsewhere
        (path_of(W[:, None], [0]), "unsettled"),  # nothing is known of how it came
    ):
        assert set(types(batch, worst, path=path)) == {kind}
        assert set(types(batch, best, path=path)) == {"global"}


def test_the_change_of_a_direction_is_that_since_half_of_the_steps():
    snapshots = normal(2, 4, 3, 3)
    for steps, half in (([0, 10, 50, 100], 2), ([0, 10, 60, 100], 1), ([0, 60, 70, 100], 0)):
        expected = attnsvm.one_minus_correlation(snapshots[:, -1], snapshots[:, half])
        assert torch.equal(direction_change(path_of(snapshots, steps)), expected)
    assert direction_change(path_of(snapshots[:, :1], [0])).isnan().all()
    snapshots[:, 2] = 0.0
    assert direction_change(path_of(snapshots, [0, 10, 50, 100])).isnan().all()
