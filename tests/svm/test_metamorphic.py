import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from attnsvm.svm import solve_svm

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
@given(instances(), norms)
def test_duplicated_constraints(instance, norm):
    X, Z, selected = instance
    tokens = torch.cat([X, X[:, 1:]], dim=1)
    samples = torch.cat([X, X[:1]]), torch.cat([Z, Z[:1]]), torch.cat([selected, selected[:1]])
    one = solve_svm(*instance, norm=norm)
    assert_same(one, solve_svm(tokens, Z, selected, norm=norm))
    assert_same(one, solve_svm(*samples, norm=norm))


@SETTINGS
@given(instances(), norms)
def test_a_constraint_never_lowers_the_norm(instance, norm):
    X, Z, selected = instance
    more, fewer = solve_svm(*instance, norm=norm), solve_svm(X[:, :-1], Z, selected, norm=norm)
    assert more.status == "infeasible" or fewer.status != "infeasible"
    assert more.objective >= fewer.lower_bound * (1 - 1e-9)
