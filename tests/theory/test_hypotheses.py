"""Hypotheses against closed forms, brute force and autograd, and local optima against training."""

import dataclasses
import itertools

import numpy as np
import pytest
import torch

import attnsvm
from attnsvm import ProblemBatch, theory
from attnsvm.loss import Exponential, LinearLoss, Logistic
from attnsvm.selection import optimal_tokens
from attnsvm.svm import single_token, solve_svm
from tests.quick import quick, quick_rows
from tests.svm.instances import batch_of

SHAPES = quick_rows((2, 2, 2, True), (2, 3, 3, True), (3, 2, 2, True), (6, 8, 10, False), count=3)


def of_scores(*gammas, d=4):
    """Return instances of one sample with tokens of these scores: v = e_1."""
    scores, eye = torch.tensor(gammas, dtype=torch.float64), torch.eye(d, dtype=torch.float64)
    X = torch.cat([scores[:, None, :, None], eye[1:, 1:].expand(len(gammas), 1, -1, -1)], 3)
    return ProblemBatch.of(X, torch.ones_like(X[:, :, 0]), torch.ones(len(gammas), 1), v=eye[0])


def test_unique_optimum_and_b2_of_given_scores():
    rounded, apart = [3, 3 - 1e-14, 1], [3, 3 - 1e-10, 1]
    batch = of_scores([3, 1, 1], [3, 3, 1], [3, 1, 2], rounded, [3, 1, 1 + 1e-14], apart)
    assert theory.unique_optimum(batch) == [True, False, True, None, True, True]
    assert theory.assumption_b2(batch) == [True, False, False, False, None, False]
    assert theory.assumption_b2(batch_of(3, 2, 4, 20)) == [True] * 20
    mask = torch.tensor([[True, True, True], [True, False, True]])[:, None]
    masked = dataclasses.replace(batch.take(slice(2)), mask=mask)
    assert theory.unique_optimum(masked) == theory.assumption_b2(masked) == [True, True]
    alone = dataclasses.replace(masked, mask=mask & torch.tensor([True, False, False]))
    assert all(test(alone) == [True, True] for test in theory.INSTANCE_HYPOTHESES.values())


def test_overparameterized():
    for *size, meets in ((3, 4, 3, True), (3, 5, 3, False), (4, 2, 3, False), (4, 5, 4, True)):
        assert theory.overparameterized(batch_of(*size, 2)) == [meets] * 2


def test_the_optimum_is_feasible_where_its_svms_are_solved_and_then_locally_optimal():
    batch = batch_of(4, 3, 2, 12)
    nuclear = solve_svm(batch.X, batch.Z, optimal_tokens(batch)[0], norm="nuclear").status
    expected = [status == "solved" for status in nuclear]
    assert theory.optimum_feasible(batch) == expected
    assert {True, False} == {*expected}
    for norm in ("frobenius", "nuclear"):
        optima = theory.local_optima(batch, norm)
        assert [bool(each.optimal.any()) for each in optima] == expected


def by_hand(batch, b, every):
    """Return Assumption D of an instance, and its locally optimal selections.

    Of every selection, or of those that differ from the optimal one in one sample.
    """
    (opt,), gamma = optimal_tokens(batch[b])[0].numpy(), batch.scores()[b].numpy()
    X, Z, samples = batch.X[b].numpy(), batch.Z[b].numpy(), np.arange(batch.n)
    holds, local, tokens = True, [], range(batch.T)
    selections = map(np.array, itertools.product(tokens, repeat=batch.n))
    if not every:
        selections = (np.where(samples == i, t, opt) for i in samples for t in tokens)
    for alpha in selections:
        others = alpha != opt
        solution = solve_svm(X, Z, alpha, gap=1e-9)
        if solution.status == "infeasible":
            continue
        D = X[samples, alpha][:, None] - X
        near = np.einsum("ntd,de,ne->nt", D, solution.W, Z) < 1 + 1e-6
        near[samples, alpha] = False
        holds &= not others.any() or near[samples, opt][others].any()
        if ((gamma[samples, alpha][:, None] > gamma) | ~near).all():
            local.append(alpha.tolist())
    return holds, local


@pytest.mark.parametrize(("n", "T", "d", "every"), SHAPES)
def test_assumption_d_and_local_optima_are_those_of_every_selection_by_hand(n, T, d, every):
    """Where there are too many to list, one that leaves out one optimal token may refute it."""
    batch = batch_of(n, T, d, 8)
    holds, local = zip(*(by_hand(batch, b, every) for b in range(8)), strict=True)
    assert [verdict is not False for verdict in theory.assumption_d(batch)] == [*holds]
    assert False in holds or d == 2
    if every:
        listed = theory.local_optima(batch)
        assert [optima.tokens.tolist() for optima in listed] == [*local]
        assert all(verdict for optima in listed for verdict in optima.local)


def test_too_many_selections_of_which_none_is_found_to_refute_it_leave_it_undecided():
    """Orthogonal tokens: margins of 1 under every SVM, so that nothing refutes it."""
    X = torch.eye(24, dtype=torch.float64).reshape(1, 3, 8, 24).repeat(1, 2, 1, 1)
    X[:, 3:] *= 2
    Z = torch.eye(24, dtype=torch.float64)[None, :6]
    batch = ProblemBatch.of(X, Z, torch.ones(1, 6), v=torch.arange(24.0))
    assert theory.assumption_d(batch) == [None]


@pytest.mark.parametrize("head", quick("quadratic", "linear", "relu"))
def test_verdicts_are_those_of_scaled_instances(head):
    """Tokens and head are scaled together, as a quadratic head needs, and queries on their own."""
    batch, decided = batch_of(3, 3, 3, 12, head=head), []
    for of_tokens, of_queries in ((1, 1), (1e-6, 1), (1e6, 1), (1e6, 1e6), (1e-6, 1e-6)):
        v = {name: of_tokens * p for name, p in batch.head_parameters.items()}
        X, Z = of_tokens * batch.X, of_queries * batch.Z
        scaled = dataclasses.replace(batch, X=X, Z=Z, head_parameters=v)
        optimal, _ = optimal_tokens(scaled)
        verdicts = {name: test(scaled) for name, test in theory.INSTANCE_HYPOTHESES.items()}
        verdicts["b1"] = theory.assumption_b1(single_token(scaled.X, scaled.Z, optimal))
        W = torch.zeros(12, 3, 3, dtype=torch.float64)
        verdicts["gradient"] = theory.aligned_gradient(scaled, W, LinearLoss())
        verdicts["mixture"] = theory.optimal_mixture(scaled).isnan().any(2).any(1).tolist()
        locally = [(optima.tokens.tolist(), optima.local) for optima in theory.local_optima(scaled)]
        decided.append(verdicts | {"local": locally})
    assert decided[1:] == decided[:1] * 4


@pytest.mark.parametrize("head", ["linear", "relu", "quadratic", "mlp"])
@pytest.mark.parametrize("loss", [Logistic(), Exponential()])
def test_aligned_is_a_gradient_whose_step_alone_separates_the_optimal_tokens(head, loss):
    batch = batch_of(2, 3, 3, 25, head=head)
    path = attnsvm.train(batch, optimizer="gd", loss=loss, steps=1, record_every=1)
    W, after = path.snapshots.unbind(1)
    moved = torch.einsum("bntd,bde,bne->bnt", batch.X, after - W, batch.Z)
    optimal = optimal_tokens(batch)[0][..., None]
    ahead = (moved.gather(2, optimal) - moved).scatter(2, optimal, torch.inf).flatten(1).amin(1)
    decided = theory.aligned_gradient(batch, W, loss)
    assert decided == (ahead > 0).tolist()
    assert set(decided) == {True, False}


@pytest.mark.parametrize("head", ["linear", "relu", "quadratic"])
def test_order_preserving_against_many_mixtures(head):
    batch = batch_of(2, 3, 3, 40, head=head)
    best = batch.scores().amax(-1)
    generator = torch.Generator().manual_seed(1)
    mixtures = torch.rand(3000, 3, generator=generator, dtype=torch.float64)
    near = torch.eye(3, dtype=torch.float64) + 1e-4 * mixtures[:300, None]
    mixtures = torch.cat([mixtures**4, near.flatten(0, 1)])
    mixtures = mixtures / mixtures.sum(1, keepdim=True)
    o = torch.einsum("pt,bntd->bnpd", mixtures, batch.X)
    flat = o.flatten(1, 2)
    value = batch.head.value(flat, batch.head_parameters).reshape(40, 2, -1)
    ahead = best - (batch.Y[..., None] * value).amax(-1)
    verdicts = theory.order_preserving(batch)
    assert verdicts == (ahead > 1e-12).all(1).tolist()
    assert set(verdicts) == ({True} if head == "linear" else {True, False})


def test_more_selections_than_are_listed_are_refused():
    with pytest.raises(ValueError, match="262144 selections of tokens; must be at most 4096"):
        theory.local_optima(batch_of(6, 8, 10, 2))


def test_b1_alone_does_not_lead_to_the_optimal_tokens():
    """The counterexample of sweep=convergence_types on the site."""
    X, Z = [[[2, -3], [0, 0]], [[0, -2], [-1, 0]]], [[1, 0], [2, 0]]
    batch = ProblemBatch.of(X, Z, [1, -1], v=[-1, 0])
    optimal = optimal_tokens(batch)[0]
    path = attnsvm.train(batch, init="zero", growth=0.05, steps=10_000)
    selected = attnsvm.select_tokens(batch, path).selected
    assert (optimal.tolist(), selected.tolist()) == ([[1, 0]], [[1, 1]])
    assert theory.assumption_b1(single_token(batch.X, batch.Z, optimal)) == [True]
    assert theory.assumption_d(batch) == [False]
    limit = solve_svm(batch.X, batch.Z, selected).W
    assert attnsvm.one_minus_correlation(path.W, limit) < 1e-11
