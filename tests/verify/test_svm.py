import ast
import dataclasses
from dataclasses import replace
from itertools import cycle, islice
from pathlib import Path

import numpy as np
import pytest
import torch

from attnsvm.svm import solve_gen_svm, solve_svm
from attnsvm.verify import StoredSvm, constraints, exact, norms, stored_svms, svm, verify
from tests.svm.instances import gaussian, spheres


def proved_records():
    """Solved and infeasible records of both norms."""
    for norm in ("frobenius", "nuclear"):
        for shape in ((5, 5, 2), (3, 4, 4), (5, 5, 5), (6, 8, 10)):
            X, Z, selected = (x.numpy() for x in spheres(*shape, range(6)))
            yield from stored_svms(solve_svm(X, Z, selected, norm=norm), X, Z, selected)


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
    yield replace(record, X=X)
    selected = record.selected.copy()
    selected[i] = other
    yield replace(record, selected=selected)
    yield replace(record, W=W * (1 - 1e-6))
    W[np.unravel_index(np.abs(W).argmax(), W.shape)] *= -1
    yield replace(record, W=W)
    yield replace(record, W=-record.W)
    yield replace(record, objective=record.objective * (1 + 1e-6 * random.choice([-1, 1])))
    yield replace(record, norm="nuclear" if record.norm == "frobenius" else "frobenius")
    a = record.multipliers.copy()
    a[a.argmax()] *= -1
    yield replace(record, multipliers=a)
    yield replace(record, multipliers=np.roll(record.multipliers, 1))
    yield replace(record, lower_bound=record.lower_bound * (1 + 1e-6), duality_gap=0.0)
    yield replace(record, duality_gap=record.duality_gap + 1e-12)
    yield replace(record, min_margin=record.min_margin + 1e-6)
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
    forged = (m for record in cycle(pool) for m in mutations(record, random))
    # A low-rank Frobenius W of one sample could have both norms alike: none here does.
    for mutated in islice(forged, 1000):
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


def test_many_dimensions_are_no_obstacle():
    """The error bound of a singular value decomposition grows like d^2, its error does not."""
    X, Z, selected = (x.numpy() for x in spheres(2, 3, 300, range(1)))
    for norm in ("frobenius", "nuclear"):
        (record,) = stored_svms(solve_svm(X, Z, selected, norm=norm), X, Z, selected)
        assert verify(record).proved, verify(record).reason
        assert not verify(replace(record, objective=record.objective * (1 + 1e-9))).proved
        assert not verify(replace(record, lower_bound=record.lower_bound * (1 - 1e-9))).proved


def test_scale_is_no_obstacle():
    X, Z, selected = (x.numpy() for x in gaussian(2, 3, 3, 1, seed=4))
    for power in (-300, 300):
        scaled = X * 2.0**power
        for norm in ("frobenius", "nuclear"):
            (record,) = stored_svms(solve_svm(scaled, Z, selected, norm=norm), scaled, Z, selected)
            assert isinstance(record, StoredSvm)
            assert record.status == "solved"
            assert verify(record).proved, verify(record).reason


@pytest.mark.parametrize("module", [exact, constraints, norms, svm])
def test_only_numpy_and_the_exact_arithmetic_are_imported(module):
    tree = ast.parse(Path(module.__file__).read_text())
    names = {n.module or "" for n in ast.walk(tree) if isinstance(n, ast.ImportFrom)} | {
        alias.name for n in ast.walk(tree) if isinstance(n, ast.Import) for alias in n.names
    }
    names -= {f"attnsvm.verify.{name}" for name in ("exact", "constraints", "norms")}
    names -= {"attnsvm.config.norm"}  # the names of norms
    assert not any(name.startswith(("attnsvm", "scipy", "torch", "cvxpy")) for name in names)


@pytest.mark.parametrize("norm", ["max", "l1", "l1.75", "l3", "spectral", "schatten3"])
def test_every_norm_is_proved_and_forged_ones_are_refused(norm):
    X, Z, selected = (x.numpy() for x in spheres(3, 4, 5, range(4)))
    solution = solve_svm(X, Z, selected, norm=norm)
    for one in stored_svms(solution, X, Z, selected):
        assert one.status == "solved"
        assert verify(one).proved, verify(one).reason
        for name, value in (
            ("objective", one.objective * (1 - 1e-9)),
            ("lower_bound", one.lower_bound * (1 + 1e-9)),
            ("W", 0.999 * one.W),
            ("W", one.W + 1e-3 * np.eye(5)),
            ("multipliers", 1.001 * one.multipliers),
            ("multipliers", np.roll(one.multipliers, 1)),
            ("min_margin", 1.001 * one.min_margin),
            ("norm", "frobenius"),
            ("norm", "l0"),
        ):
            assert not verify(dataclasses.replace(one, **{name: value})).proved, name


@pytest.mark.parametrize(
    ("norm", "value"), [("max", 4.0), ("l1", 10.0), ("l3", 100.0 ** (1 / 3)), ("spectral", 5.0)]
)
def test_bounds_of_norms_are_those_of_a_known_matrix(norm, value):
    A = np.array([[3.0, 4], [0, 0]] if norm == "spectral" else [[1.0, -2], [3, 4]])
    bound, error = norms.upper_bound(exact.Exact.of(A), norm)
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
    stored = list(stored_svms(solution, X.numpy(), Z.numpy(), selected.numpy(),
                              rank_tolerance=rank_tolerance))  # fmt: skip
    for one in stored:
        assert verify(one).proved, verify(one).reason
        other = dataclasses.replace(one, rank=one.rank + 1)
        assert "rank is" in verify(other).reason
