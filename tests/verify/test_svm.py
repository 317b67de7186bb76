"""A stored SVM is proved from its tokens, W and multipliers, and every forged one is refused."""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from attnsvm.svm import solve_gen_svm, solve_rank_constrained, solve_svm
from attnsvm.verify import exact, verify
from attnsvm.verify.exact import Exact, RejectedError
from benchmarks.nasty.benchmark_utils import load
from tests.svm.instances import gaussian, spheres, stored_svms

SHAPES = ((5, 5, 2), (3, 4, 4), (5, 5, 5), (6, 8, 10))
CASES = {"frobenius": SHAPES, "nuclear": SHAPES}
CASES |= dict.fromkeys(
    ("max", "l1", "l1.75", "l3", "spectral", "schatten3", "spectral+max"), ((3, 4, 5),)
)


def svms(norm, tokens, **of_rows):
    """Yield the solved SVMs of a batch of tokens, queries and selected tokens, as stored."""
    X, Z, selected = map(np.asarray, tokens)
    solution = solve_svm(X, Z, selected, norm=norm, **of_rows)
    yield from stored_svms(solution, X, Z, selected, **of_rows)


def proved_records():
    """Records of every norm, kind of rows and status that proves something."""
    for norm, shapes in CASES.items():
        for shape in shapes:
            yield from svms(norm, spheres(*shape, range(2)))
    known = [item for item in load() if item.family == "opposing"][12]  # M(a) = 0 exactly
    yield from svms("frobenius", (known.X[None], known.Z[None], [[0] * len(known.Z)]))
    gamma = np.random.default_rng(1).normal(size=(2, 5))
    margins = np.abs(np.tile(gamma, 4)) * (np.tile(gamma, 4) > -0.5)
    weights = [{"offsets": gamma, "ratio": np.full(2, r)} for r in (0.4, 2.0, np.inf)]
    for norm in ("frobenius", "nuclear", "l1.75"):
        for of_rows in ({"margins": margins}, *weights):
            yield from svms(norm, spheres(5, 5, 5, range(2)), **of_rows)
    tokens = [x.numpy() for x in spheres(6, 5, 6, range(4))]
    for record in stored_svms(solve_rank_constrained(*tokens, 2), *tokens):
        yield replace(record, max_rank=2)
    mask = np.ones((2, 3, 4), dtype=bool)
    mask[0, :, 1:] = mask[1, :, 3] = False
    for norm in ("frobenius", "nuclear"):
        # the error bound of a singular value decomposition grows like d^2, its error does not
        yield from svms(norm, spheres(2, 3, 300, range(1)))
        yield from gen_svms(norm)
        yield from svms(norm, gaussian(3, 4, 5, 2, seed=1), mask=mask)


def gen_svms(norm, twins=False):
    """Yield both SVMs of several tokens of three instances; `twins`: two samples are equal."""
    X, Z, _ = gaussian(3, 5, 6, 3, seed=2)
    if twins:
        X[:, 1], Z[:, 1] = X[:, 0], Z[:, 0]
    attended = torch.zeros(3, 3, 5, dtype=torch.bool)
    attended[:, :, 1] = True
    attended[:, :2, 3] = True
    logs = torch.randn(3, 3, 5, generator=torch.Generator().manual_seed(3)).double()
    arrays = [x.numpy() for x in (X, Z, attended, logs)]
    for solution, of_rows in zip(solve_gen_svm(*arrays, norm=norm), (logs, None), strict=True):
        plain = stored_svms(solution, X.numpy(), Z.numpy(), np.ones((3, 3), dtype=int))
        for b, record in enumerate(plain):
            log_softmax = None if of_rows is None else arrays[3][b]
            yield replace(record, attended=arrays[2][b], log_softmax=log_softmax)


OTHER = {"solved": "undecided", "undecided": "solved"}


def mutations(record, random):
    """Yield every kind of forgery of a record."""
    W, a, ray = record.W, record.multipliers, record.ray
    if record.status == "infeasible":
        for factor in (-1, 1 - 1e-6):
            yield replace(record, ray=np.where(ray == ray.max(), factor * ray, ray))
        yield replace(record, status="solved")
        yield replace(record, status="unconstrained", W=np.zeros_like(W), objective=0.0)
        return
    if not record.mask.all():
        yield replace(record, mask=np.ones_like(record.mask))
    if record.status == "unconstrained":
        yield replace(record, W=W + 1.0)
        return
    i, T = random.integers(len(record.X)), record.X.shape[1]
    other = (record.selected[i] + 1 + random.integers(T - 1)) % T
    X, selected, nan = record.X.copy(), record.selected.copy(), W.copy()
    X[i, [record.selected[i], other]] = X[i, [other, record.selected[i]]]
    selected[i], nan[0, 0] = other, np.nan
    numbers = {
        "W": [W * (1 - 1e-6), -W, W + 1e-3 * np.eye(len(W)), W[:-1], nan],
        "objective": [record.objective * (1 + 1e-9 * random.choice([-1, 1]))],
        "multipliers": [-a, np.roll(a, 1)],
        "lower_bound": [record.lower_bound * (1 + 1e-9)],
        "duality_gap": [record.duality_gap + 1e-12],
        "status": ["infeasible", "unconstrained", "certain", OTHER[record.status]],
        "attended": [] if record.attended is None else [~record.attended],
    }
    if record.attended is None and len(W) < 100:
        numbers |= {"X": [X], "selected": [selected], "min_margin": [record.min_margin + 1e-6]}
        numbers["norm"] = ["nuclear" if record.norm == "frobenius" else "frobenius", "l0"]
        numbers["rank"] = [record.rank + k for k in (-1, 1) if record.rank > 0]
    if record.max_rank is not None:
        numbers["max_rank"] = [1]
    if record.status == "undecided":  # W below margin one, whose norm is no upper bound
        share = 0.5 * (1 + record.lower_bound / record.objective)
        changes = {name: share * getattr(record, name) for name in ("W", "objective", "min_margin")}
        gap = changes["objective"] / record.lower_bound - 1
        yield replace(record, **changes, duality_gap=gap)
    if record.margins is not None:
        numbers["margins"] = [record.margins * (1 + 1e-9), -record.margins]
    if record.offsets is not None:
        numbers["offsets"] = [-record.offsets, record.offsets[:-1]]
        numbers["ratio"] = [-record.ratio, 0.0]
    for name, values in numbers.items():
        for value in values:
            yield replace(record, **{name: value})


def test_records_are_proved_and_mutated_ones_rejected():
    random = np.random.default_rng(0)
    pool = list(proved_records())
    assert {r.status for r in pool} == {"solved", "undecided", "infeasible", "unconstrained"}
    # A low-rank Frobenius W of one sample could have both norms alike: none here does.
    for record in pool:
        assert verify(record).proved, verify(record).reason
        for mutated in mutations(record, random):
            proof = verify(mutated)
            changed = [name for name, of in vars(mutated).items() if of is not vars(record)[name]]
            assert proof.reason, changed
            assert not proof.proved


def test_multipliers_that_cancel_prove_no_larger_bound():
    """Equal samples have equal rows: a pair of them adds nothing to M(a), however large."""
    record = [*gen_svms("frobenius", twins=True)][3]
    pair = np.zeros_like(record.multipliers)
    pair[[2, 6]] = 2.0**30, -(2.0**30)  # the rows of token 3 in both samples
    for factor, proved in ((1.0, True), (1 + 1e-5, False)):
        lower, a = factor * record.lower_bound, factor * record.multipliers + pair
        gap = record.objective / lower - 1
        forged = replace(record, multipliers=a, lower_bound=lower, duality_gap=gap)
        assert verify(forged).proved == proved, verify(forged).reason


KNOWN = {"max": 4.0, "l1": 10.0, "l3": 100.0 ** (1 / 3), "spectral": 5.0, "l1+max": 4.0}


@pytest.mark.parametrize("norm", KNOWN)
def test_bounds_of_norms_are_those_of_a_known_matrix(norm):
    A = np.array([[3.0, 4], [0, 0]] if norm == "spectral" else [[1.0, -2], [3, 4]])
    bound, error = exact.upper_bound(Exact.of(A), norm)
    assert KNOWN[norm] <= bound * (1 + 1e-15)
    assert float(bound) == pytest.approx(KNOWN[norm], rel=max(error, 1e-14))
    assert error < 1e-12


@pytest.mark.processors
@pytest.mark.parametrize("norm", ["frobenius", "nuclear"])
def test_a_rank_near_its_threshold_is_undecided_and_proved_to_be(norm):
    """W = diag(1, ratio); and a sample with sigma_4(M(a)) = 1 - 1.7e-5: rank 3, or 4."""
    ratios = 10.0 ** -np.array([3, 4.7, 5.2, 6, 6.9, 12])
    X, Z = np.zeros((6, 2, 2, 2)), np.tile(np.eye(2), (6, 1, 1))
    X[:, 0, 0, 0], X[:, 1, 0, 1] = 1, 1 / ratios
    tokens = X, Z, np.zeros((6, 2), dtype=int)
    records, coarse = [*svms(norm, tokens)], svms(norm, tokens, rank_tolerance=1e-2)
    assert [record.rank for record in records] == [2, 2, -1, -1, -1, 1]
    assert all(record.rank == 1 and verify(record).proved for record in coarse)
    if norm == "nuclear":
        near = tuple(x.numpy() for x in spheres(10, 5, 20, range(89, 90)))
        solution = solve_svm(*near, norm=norm)
        assert (solution.rank.tolist(), solution.rank_bound.tolist()) == ([-1], [4])
        assert all(verify(record).proved for record in stored_svms(solution, *near))
    for record in records:
        for rank in (-1, 1, 2, 3, 4):
            left_open = rank < 0 and norm == "nuclear"  # its bound may leave it so
            proved = verify(replace(record, rank=rank)).proved
            assert proved == (rank == record.rank or left_open)


@given(st.lists(st.integers(-(2**80), 2**80), min_size=1), st.integers(-2000, 900))
def test_floats_are_the_nearest_of_integers_and_exact(values, exponent):
    """Subnormal numbers are rounded once."""
    near = Exact(np.array(values, dtype=object), exponent).floats()
    assert near.tolist() == [float(Fraction(value) * Fraction(2) ** exponent) for value in values]
    assert (Exact.of(near).floats() == near).all()
    assert Exact.of(near).squared_norm == sum(Fraction(x) ** 2 for x in near.tolist())
    with pytest.raises(RejectedError, match="too large"):
        Exact(np.array([1 << 1030], dtype=object), 1020).floats()
