import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from attnsvm.svm import solve_gen_svm, solve_svm

SETTINGS = settings(max_examples=40, deadline=None, derandomize=True, database=None)
norms = st.sampled_from(["frobenius", "nuclear"])


@st.composite
def instances(draw):
    """X (n, T, d), Z (n, d), token 0 selected; feasible and infeasible."""
    n, T, d = (draw(st.integers(1, 4)), draw(st.integers(2, 4)), draw(st.integers(1, 5)))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 10**6)))
    X = torch.randn(n, T, d, generator=generator, dtype=torch.float64)
    Z = torch.randn(n, d, generator=generator, dtype=torch.float64)
    return X, Z, torch.zeros(n, dtype=torch.int64)


def assert_same(one, other, factor=1.0):
    assert one.status == other.status
    if one.status == "solved" and one.kappa < 1e6:
        assert abs(one.objective.item() * factor / other.objective.item() - 1) <= 1e-9


@SETTINGS
@given(instances(), norms, st.integers(-30, 30), st.integers(-30, 30))
def test_powers_of_two_scale_the_norm_exactly(instance, norm, p, q):
    X, Z, selected = instance
    one = solve_svm(X, Z, selected, norm=norm)
    other = solve_svm(X * 2.0**p, Z * 2.0**q, selected, norm=norm)
    assert one.status == other.status
    assert one.objective.item() == other.objective.item() * 2.0 ** (p + q)


@SETTINGS
@given(instances(), norms, st.integers(0, 1000))
def test_permuted_constraints(instance, norm, seed):
    X, Z, selected = instance
    random = np.random.default_rng(seed)
    samples, tokens = random.permutation(len(X)), 1 + random.permutation(X.shape[1] - 1)
    other = X[samples][:, np.r_[0, tokens]], Z[samples], selected
    assert_same(solve_svm(*instance, norm=norm), solve_svm(*other, norm=norm))


@SETTINGS
@given(instances(), norms)
def test_duplicated_constraints(instance, norm):
    X, Z, selected = instance
    tokens = torch.cat([X, X[:, 1:]], dim=1)
    samples = torch.cat([X, X[:1]]), torch.cat([Z, Z[:1]]), torch.cat([selected, selected[:1]])
    one = solve_svm(*instance, norm=norm)
    assert_same(one, solve_svm(tokens, Z, selected, norm=norm))
    assert_same(one, solve_svm(*samples, norm=norm))


@SETTINGS
@given(instances(), norms, st.integers(0, 1000))
def test_rotated_basis(instance, norm, seed):
    X, Z, selected = instance
    generator = torch.Generator().manual_seed(seed)
    d = X.shape[2]
    P, Q = torch.linalg.qr(torch.randn(2, d, d, generator=generator, dtype=torch.float64))[0]
    one, other = solve_svm(*instance, norm=norm), solve_svm(X @ P, Z @ Q, selected, norm=norm)
    assert_same(one, other)


@SETTINGS
@given(instances(), norms)
def test_a_constraint_never_lowers_the_norm(instance, norm):
    X, Z, selected = instance
    more, fewer = solve_svm(*instance, norm=norm), solve_svm(X[:, :-1], Z, selected, norm=norm)
    assert more.status == "infeasible" or fewer.status != "infeasible"
    assert more.objective >= fewer.lower_bound * (1 - 1e-9)


@SETTINGS
@given(instances())
def test_each_norm_prefers_its_own_solution(instance):
    frobenius, nuclear = (solve_svm(*instance, norm=norm) for norm in ("frobenius", "nuclear"))
    assert frobenius.status == nuclear.status
    if frobenius.status == "solved":
        slack = 1 + 1e-9
        assert frobenius.W.norm() <= nuclear.W.norm() * slack
        assert nuclear.sigma.sum() <= frobenius.sigma.sum() * slack


@st.composite
def batches(draw):
    """X (B, n, T, d), Z (B, n, d), selected (B, n), the sets O_i (B, n, T), log_softmax."""
    B, n, T, d = (draw(st.integers(*r)) for r in ((2, 5), (1, 4), (2, 5), (1, 6)))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 10**6)))
    X = torch.randn(B, n, T, d, generator=generator, dtype=torch.float64)
    Z = torch.randn(B, n, d, generator=generator, dtype=torch.float64)
    attended = torch.rand(B, n, T, generator=generator) < 0.4
    selected = torch.randint(T, (B, n), generator=generator)
    attended = attended.scatter(2, selected[..., None], True)
    logs = torch.randn(B, n, T, generator=generator, dtype=torch.float64).log_softmax(dim=2)
    return X, Z, selected, attended, logs


def assert_each(together, singles):
    for b, alone in enumerate(singles):
        assert together.status[b] == alone.status
        if alone.status == "solved" and alone.kappa < 1e6:
            assert abs(together.objective[b] / alone.objective - 1) <= 1e-9


@pytest.mark.full
@SETTINGS
@given(batches(), norms)
def test_batch_result_is_single_results(batch, norm):
    X, Z, selected, attended, logs = batch
    each = range(len(X))
    together = solve_svm(X, Z, selected, norm=norm)
    assert_each(together, [solve_svm(X[b], Z[b], selected[b], norm=norm) for b in each])
    together = solve_gen_svm(X, Z, attended, logs, norm=norm)
    alone = [solve_gen_svm(X[b], Z[b], attended[b], logs[b], norm=norm) for b in each]
    for part in range(2):
        assert_each(together[part], [solutions[part] for solutions in alone])
