"""A stored SVM is proved from its tokens, W and multipliers, and every forged one is refused."""

import re
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
import torch

from attnsvm.svm import solve_gen_svm, solve_svm
from attnsvm.verify import constraints, exact, svm, verify
from attnsvm.verify.exact import Exact, RejectedError
from benchmarks.nasty.benchmark_utils import load
from tests.svm.instances import gaussian, spheres, stored_svms

SHAPES = ((5, 5, 2), (3, 4, 4), (5, 5, 5), (6, 8, 10))
CASES = {"frobenius": SHAPES, "nuclear": SHAPES}
CASES |= dict.fromkeys(
    ("max", "l1", "l1.75", "l3", "spectral", "schatten3", "spectral+max"), ((3, 4, 5),)
)


def proved_records():
    """Solved and infeasible records of every norm."""
    for norm, shapes in CASES.items():
        for shape in shapes:
            X, Z, selected = (x.numpy() for x in spheres(*shape, range(2)))
            yield from stored_svms(solve_svm(X, Z, selected, norm=norm), X, Z, selected)
    known = [item for item in load() if item.family == "opposing"][12]  # M(a) = 0 exactly
    opposing = known.X[None], known.Z[None], np.zeros((1, len(known.Z)), dtype=int)
    yield from stored_svms(solve_svm(*opposing), *opposing)
    gamma = np.random.default_rng(1).normal(size=(2, 5))
    X, Z, selected = (x.numpy() for x in spheres(5, 5, 5, range(2)))
    for norm in ("frobenius", "nuclear", "l1.75"):
        for of_rows in (
            {"margins": np.abs(np.tile(gamma, 4)) * (np.tile(gamma, 4) > -0.5)},
            *({"offsets": gamma, "ratio": np.full(2, r)} for r in (0.4, 2.0, np.inf)),
        ):
            solution = solve_svm(X, Z, selected, norm=norm, **of_rows)
            yield from stored_svms(solution, X, Z, selected, **of_rows)


def mutations(record, random):
    """Yield every kind of forgery of a record."""
    X, W = record.X.copy(), record.W.copy()
    i = random.integers(len(X))
    other = (record.selected[i] + 1 + random.integers(X.shape[1] - 1)) % X.shape[1]
    X[i, [record.selected[i], other]] = X[i, [other, record.selected[i]]]
    if record.status == "infeasible":
        ray = record.ray.copy()
        ray[ray.argmax()] *= -1
        yield replace(record, ray=ray)
        ray = record.ray.copy()
        ray[ray.argmax()] *= 1 - 1e-6
        yield replace(record, ray=ray)
        yield replace(record, status="solved")
        yield replace(record, status="unconstrained", W=np.zeros_like(W), objective=0.0)
        return
    if record.margins is not None:
        yield replace(record, margins=record.margins * (1 + 1e-9))
        yield replace(record, margins=-record.margins)
    if record.offsets is not None:
        yield replace(record, ratio=-record.ratio)
        yield replace(record, ratio=0.0)
        yield replace(record, offsets=-record.offsets)
        yield replace(record, offsets=record.offsets[:-1])
    yield replace(record, X=X)
    selected = record.selected.copy()
    selected[i] = other
    yield replace(record, selected=selected)
    yield replace(record, W=W * (1 - 1e-6))
    W[np.unravel_index(np.abs(W).argmax(), W.shape)] *= -1
    yield replace(record, W=W)
    yield replace(record, W=-record.W)
    yield replace(record, W=record.W + 1e-3 * np.eye(len(W)))
    yield replace(record, objective=record.objective * (1 + 1e-9 * random.choice([-1, 1])))
    yield replace(record, norm="nuclear" if record.norm == "frobenius" else "frobenius")
    yield replace(record, norm="l0")
    a = record.multipliers.copy()
    a[a.argmax()] *= -1
    yield replace(record, multipliers=a)
    yield replace(record, multipliers=np.roll(record.multipliers, 1))
    yield replace(record, lower_bound=record.lower_bound * (1 + 1e-9), duality_gap=0.0)
    yield replace(record, duality_gap=record.duality_gap + 1e-12)
    yield replace(record, min_margin=record.min_margin + 1e-6)
    if record.rank > 0:
        yield replace(record, rank=record.rank - 1)
    yield replace(record, status="infeasible")
    yield replace(record, status="unconstrained")
    yield replace(record, status="certain")
    yield replace(record, W=record.W[:-1])
    W = record.W.copy()
    W[0, 0] = np.nan
    yield replace(record, W=W)


def test_records_are_proved_and_mutated_ones_rejected():
    random = np.random.default_rng(0)
    pool = list(proved_records())
    assert {r.status for r in pool} == {"solved", "infeasible"}
    for record in pool:
        assert verify(record).proved, verify(record).reason
    # A low-rank Frobenius W of one sample could have both norms alike: none here does.
    for mutated in (m for record in pool for m in mutations(record, random)):
        proof = verify(mutated)
        assert not proof.proved
        assert proof.reason


def test_unconstrained_and_masked():
    X, Z, selected = (x.numpy() for x in gaussian(3, 4, 5, 2, seed=1))
    mask = np.ones((2, 3, 4), dtype=bool)
    mask[0, :, 1:] = False
    mask[1, :, 3] = False
    for norm in ("frobenius", "nuclear"):
        solution = solve_svm(X, Z, selected, norm=norm, mask=mask)
        free, solved = stored_svms(solution, X, Z, selected, mask)
        assert free.status == "unconstrained"
        assert verify(free).proved
        assert not verify(replace(free, mask=solved.mask)).proved
        assert verify(solved).proved
        assert not verify(replace(solved, mask=np.ones_like(solved.mask))).proved


def test_gen_svm():
    X, Z, _ = gaussian(3, 5, 6, 3, seed=2)
    attended = torch.zeros(3, 3, 5, dtype=torch.bool)
    attended[:, :, 1] = True
    attended[:, 0, 3] = True
    logs = torch.randn(3, 3, 5, generator=torch.Generator().manual_seed(3)).double()
    arrays = [x.numpy() for x in (X, Z, attended, logs)]
    for norm in ("frobenius", "nuclear"):
        for solution, log_softmax in zip(
            solve_gen_svm(*arrays, norm=norm), (arrays[3], None), strict=True
        ):
            plain = stored_svms(solution, X.numpy(), Z.numpy(), np.ones((3, 3), dtype=int))
            for b, record in enumerate(plain):
                logs_b = None if log_softmax is None else log_softmax[b]
                record = replace(record, attended=arrays[2][b], log_softmax=logs_b)
                assert verify(record).proved, verify(record).reason
                assert not verify(replace(record, W=record.W * (1 - 1e-6))).proved
                assert not verify(replace(record, multipliers=-record.multipliers)).proved
                assert not verify(replace(record, attended=~record.attended)).proved


def test_multipliers_that_cancel_prove_no_larger_bound():
    """Equal samples have equal rows: a pair of them adds nothing to M(a), however large."""
    X, Z, _ = gaussian(3, 5, 6, 1, seed=2)
    X[:, 1], Z[:, 1] = X[:, 0], Z[:, 0]
    attended = torch.zeros(1, 3, 5, dtype=torch.bool)
    attended[:, :, [1, 3]] = True
    arrays = [x.numpy() for x in (X, Z, attended, torch.zeros(1, 3, 5).double())]
    margin = solve_gen_svm(*arrays)[1]
    (record,) = stored_svms(margin, *arrays[:2], np.ones((1, 3), dtype=int))
    record = replace(record, attended=arrays[2][0])
    pair = np.zeros_like(record.multipliers)
    pair[[2, 6]] = 2.0**30, -(2.0**30)  # the rows of token 3 in both samples
    for factor, proved in ((1.0, True), (1 + 1e-5, False)):
        lower = record.lower_bound * factor
        forged = replace(
            record,
            multipliers=record.multipliers * factor + pair,
            lower_bound=lower,
            duality_gap=record.objective / lower - 1,
        )
        assert verify(forged).proved == proved, verify(forged).reason


def test_many_dimensions_are_no_obstacle():
    """The error bound of a singular value decomposition grows like d^2, its error does not."""
    X, Z, selected = (x.numpy() for x in spheres(2, 3, 300, range(1)))
    for norm in ("frobenius", "nuclear"):
        (record,) = stored_svms(solve_svm(X, Z, selected, norm=norm), X, Z, selected)
        assert verify(record).proved, verify(record).reason
        assert not verify(replace(record, objective=record.objective * (1 + 1e-9))).proved
        assert not verify(replace(record, lower_bound=record.lower_bound * (1 - 1e-9))).proved


def test_neither_torch_nor_anything_but_names_of_norms_is_imported():
    own = {f"attnsvm.verify.{name}" for name in ("exact", "constraints", "svm")}
    for module in (exact, constraints, svm):
        text = Path(module.__file__).read_text()
        found = set(re.findall(r"^\s*(?:from|import) ([\w.]+)", text, re.MULTILINE))
        other = {name for name in found if name.split(".")[0] in ("attnsvm", "scipy", "torch")}
        assert other <= own | {"attnsvm.config.norm"}


@pytest.mark.parametrize(
    ("norm", "value"),
    [
        ("max", 4.0),
        ("l1", 10.0),
        ("l3", 100.0 ** (1 / 3)),
        ("spectral", 5.0),
        ("l1+max", 4.0),
        ("spectral+l3", 72.0 ** (1 / 3)),
    ],
)
def test_bounds_of_norms_are_those_of_a_known_matrix(norm, value):
    A = np.array([[3.0, 4], [0, 0]] if norm == "spectral" else [[1.0, -2], [3, 4]])
    bound, error = exact.upper_bound(exact.Exact.of(A), norm)
    assert value <= bound * (1 + 1e-15)
    assert float(bound) == pytest.approx(value, rel=max(error, 1e-14))
    assert error < 1e-12


@pytest.mark.parametrize("rank_tolerance", [1e-9, 1e-3, 0.5])
def test_the_rank_is_proved_at_the_threshold_that_was_asked_for(rank_tolerance):
    X, Z, selected = spheres(5, 5, 8, range(6))
    solution = solve_svm(
        X.numpy(), Z.numpy(), selected.numpy(), norm="nuclear", rank_tolerance=rank_tolerance
    )
    assert len(set(solution.rank.tolist())) > 1 or rank_tolerance == 0.5
    stored = list(
        stored_svms(solution, X.numpy(), Z.numpy(), selected.numpy(), rank_tolerance=rank_tolerance)
    )
    for stored_svm in stored:
        assert verify(stored_svm).proved, verify(stored_svm).reason
        other = replace(stored_svm, rank=stored_svm.rank + 1)
        assert "rank is" in verify(other).reason


@pytest.mark.processors
@pytest.mark.parametrize("norm", ["frobenius", "nuclear"])
def test_a_rank_near_its_threshold_is_undecided_and_proved_to_be(norm):
    """W = diag(1, ratio); and a sample with sigma_4(M(a)) = 1 - 1.7e-5: rank 3, or 4."""
    ratios = 10.0 ** -np.array([3, 4.7, 5.2, 6, 6.9, 12])
    X, Z = np.zeros((6, 2, 2, 2)), np.tile(np.eye(2), (6, 1, 1))
    X[:, 0, 0, 0], X[:, 1, 0, 1] = 1, 1 / ratios
    given = X, Z, np.zeros((6, 2), dtype=int)
    solution = solve_svm(*given, norm=norm)
    assert solution.rank.tolist() == [2, 2, -1, -1, -1, 1]
    stored = [*stored_svms(solution, *given)]
    if norm == "nuclear":
        near = tuple(x.numpy() for x in spheres(10, 5, 20, range(89, 90)))
        solution = solve_svm(*near, norm=norm)
        assert (solution.rank.tolist(), solution.rank_bound.tolist()) == ([-1], [4])
        assert all(verify(stored_svm).proved for stored_svm in stored_svms(solution, *near))
    for stored_svm in stored:
        for rank in (-1, 1, 2, 3, 4):
            other = replace(stored_svm, rank=rank)
            left_open = rank < 0 and norm == "nuclear"  # its bound may leave it so
            assert verify(other).proved == (rank == stored_svm.rank or left_open)


def test_floats_are_exact_and_the_nearest_of_integers():
    random = np.random.default_rng(0)
    x = np.concatenate(
        [random.normal(size=20) * 2.0 ** random.integers(-60, 60, 20), [0.0, 5e-324]]
    )
    assert (Exact.of(x).floats() == x).all()
    assert Exact.of(x).squared_norm == sum(Fraction(v) ** 2 for v in x.tolist())
    # ties of 54 bits, and subnormal numbers, which are rounded once
    values = [0, 1, -7, (1 << 53) + 1, (1 << 53) + 3, -(3**60), (((1 << 53) - 1) << 10) - 1]
    for exponent in (-2000, -1128, -1085, -1074, -53, 0, 60):
        must = [float(Fraction(value) * Fraction(2) ** exponent) for value in values]
        assert Exact(np.array(values, dtype=object), exponent).floats().tolist() == must
    with pytest.raises(RejectedError, match="too large"):
        Exact(np.array([1 << 1030], dtype=object), 1020).floats()
