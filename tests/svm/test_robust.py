"""Extreme sizes, broken instances and odd arguments."""

import sys

import numpy as np
import pytest
import torch

from attnsvm.norm import norm_of
from attnsvm.svm import multi_token, single_token, solve, solve_gen_svm, solve_svm
from attnsvm.svm.certificate import certify, check_ray
from attnsvm.svm.solution import Candidate
from attnsvm.svm.solve import method_of
from tests.svm.instances import gaussian

both_norms = pytest.mark.parametrize("name", ["frobenius", "nuclear"])
NUMBERS = ("W", "objective", "lower_bound", "duality_gap", "sigma", "kappa", "min_margin")


@both_norms
@pytest.mark.parametrize(
    ("x", "z"), [(1e-200, 1e-200), (1e-155, 1e-155), (1e160, 1e160), (1e160, 1e150), (1e308, 1.0)]
)
def test_what_float64_cannot_hold_is_undecided(name, x, z):
    # W is of size 1 / (x z); of the last ones the token differences overflow.
    X, Z, selected = gaussian(3, 4, 4, 3, seed=1)
    X, Z = X / X.abs().max(), Z / Z.abs().max()
    X[:, 0, :2, 0] = torch.tensor([-1.0, 1.0])
    solution = solve_svm(X * x, Z * z, selected, norm=name)
    assert solution.status == ("undecided",) * 3
    assert solution.W.isnan().all()
    assert (solution.lower_bound == 0).all()
    assert solution.objective.isinf().all()
    assert (solution.rank == -1).all()


def test_underflow_is_no_ray():
    X, Z, selected = gaussian(2, 3, 3, 1, seed=2)
    problem = single_token(X * 1e-200, Z * 1e-200, selected)
    _, ratio = check_ray(problem, torch.ones_like(problem.h))
    assert (ratio < 1e12).all()
    X[0, 0] = X[0, 0, 0]  # rows that are exactly zero
    problem = single_token(X, Z, selected)
    ray = problem.zero.to(problem.h)
    assert check_ray(problem, ray)[1].isinf().all()
    X[0, 0, 0], X[0, 0, 1:] = 0.0, 1e-200  # not zero, but 1e-320 beside others of size one
    for name in ("frobenius", "nuclear"):
        assert solve_svm(X, 1e-120 * Z, selected, norm=name).status == ("undecided",)


def test_a_zero_row_hides_no_other():
    # Beside a multiplier of one on a zero row, the squares of M(a) would underflow.
    X = torch.zeros((1, 1, 3, 30)).double()
    X[:, :, 2] = -0.4
    attended = torch.tensor([[[True, True, False]]])
    problem = multi_token(X, torch.full((1, 1, 30), 0.4).double(), attended)
    for tiny in (1e-100, 5e-162, 1e-162, 1e-170, 5e-324):
        ray = torch.tensor([[1.0, tiny]], dtype=torch.float64)
        assert check_ray(problem, ray)[1].item() <= 1.0 + 1e-12


@both_norms
@pytest.mark.parametrize("exponent", [-1000, -535, -525, 500, 1000])
def test_the_bracket_is_independent_of_the_scale_of_its_candidate(name, exponent):
    problem = single_token(*gaussian(3, 4, 4, 3, seed=1))
    solution = solve(problem, name, 4)
    unit = 2.0**exponent
    nothing = torch.full_like(problem.h, torch.nan)
    candidate = Candidate(solution.W * unit, solution.certificate.multipliers * unit, nothing)
    proof = certify(problem, candidate, name, 1e-9, 1e-6).certificate
    torch.testing.assert_close(proof.upper, solution.objective, rtol=1e-14, atol=0)
    torch.testing.assert_close(proof.lower, solution.lower_bound, rtol=1e-14, atol=0)


@pytest.mark.processors
@both_norms
def test_one_bad_instance_leaves_the_others_alone(name):
    # Sizes that fill whole cache lines: LAPACK's last bits depend on the alignment of a matrix.
    X, Z, selected = gaussian(4, 5, 8, 6, seed=3)
    X[2, 0] *= 1e-160
    Z[2, 0] *= 1e-160
    X[4] *= 1e300
    Z[4] *= 1e300
    good = torch.tensor([0, 1, 3, 5])
    without = solve_svm(X[good], Z[good], selected[good], norm=name)
    solution = solve_svm(X, Z, selected, norm=name)
    assert without.status == ("solved",) * 4
    assert [solution.status[b] for b in (2, 4)] == ["undecided"] * 2
    for b, alone in zip(good.tolist(), range(4), strict=True):
        for field in NUMBERS:
            assert torch.equal(getattr(solution, field)[b], getattr(without, field)[alone]), field


@pytest.mark.processors
@both_norms
@pytest.mark.parametrize(
    "error",
    [
        np.linalg.LinAlgError("SVD did not converge"),
        torch.linalg.LinAlgError("eigh failed"),
        ValueError("array must not contain infs or NaNs"),
        FloatingPointError("overflow"),
        RuntimeWarning("overflow encountered in multiply"),
    ],
)
def test_a_solver_that_breaks_leaves_one_instance_undecided(name, error, monkeypatch):
    X, Z, selected = gaussian(4, 5, 8, 5, seed=4)
    base = solve_svm(X, Z, selected, norm=name)
    method, bad = method_of(norm_of(name), 16, 8), single_token(X, Z, selected).D[3]

    def breaks(problem):
        unit = bad.norm(dim=1) / problem.D.norm(dim=2)
        if torch.isclose(problem.D * unit[..., None], bad).all(dim=(1, 2)).any():
            raise error
        return method(problem)

    monkeypatch.setattr(sys.modules["attnsvm.svm.solve"], "method_of", lambda *of: breaks)
    solution = solve(single_token(X, Z, selected), name, 5)
    assert solution.status == tuple("undecided" if b == 3 else "solved" for b in range(5))
    for b in (0, 1, 2, 4):
        for field in NUMBERS:
            assert torch.equal(getattr(solution, field)[b], getattr(base, field)[b]), field


def test_wrong_arguments_are_named():
    X, Z, selected = (t.numpy() for t in gaussian(3, 4, 5, 2, seed=5))
    gamma, margins, nan = np.zeros((2, 3)), np.ones((2, 9)), np.nan
    wrong = {
        "X": (X > 0, [[1.0], [1.0, 2.0]], None, 1.0, X[0, 0], X[:0], X * nan),
        "Z": (Z * np.inf, Z[:, :1]),
        "selected": (selected > 0, selected * 1.0, selected - 1, selected + 4, None),
        "norm": ("l0",),
        "mask": (np.ones((2, 3, 4)),),
        "gap": (0.0, -1e-9, 2e-2, np.inf, nan),
        "rank_tolerance": (0.0, -1e-6, 1.0, 2.0, nan),
        "margins": (margins[:, 1:], *(b * margins for b in (-1.0, 1e101, 1e-101, np.inf))),
    }
    cases = [(field, {field: value}) for field, values in wrong.items() for value in values]
    cases += [("ratio", {"offsets": gamma, "ratio": r}) for r in ([1.0, 2.0, 3.0], -1.0, nan)]
    cases += [
        (r"X: inf at index \[0, 1, 2, 3\]", {"X": np.where(X == X[0, 1, 2, 3], np.inf, X)}),
        ("offsets: shape", {"offsets": gamma[:, :2], "ratio": 1.0}),
        ("offsets: nan", {"offsets": gamma + nan, "ratio": 1.0}),
        ("offsets: must be given", {"ratio": 1.0}),
        ("ratio: must be given", {"offsets": gamma}),
        ("margins: must not", {"margins": margins, "offsets": gamma, "ratio": 1.0}),
    ]
    for message, changed in cases:
        with pytest.raises(ValueError, match=f"^{message}"):
            solve_svm(**{"X": X, "Z": Z, "selected": selected} | changed)
    first, logs = np.arange(4) + np.zeros((2, 3, 1)) == 0, np.zeros((2, 3, 4))
    for message, attended, log_softmax in (
        ("attended: ", first.astype(int), logs),
        ("attended: ", first & False, logs),
        ("log_softmax: ", first, logs + 0j),
        ("log_softmax", first, logs - np.inf),
    ):
        with pytest.raises(ValueError, match=f"^{message}"):
            solve_gen_svm(X, Z, attended, log_softmax)
    tensors = torch.from_numpy(X), torch.from_numpy(Z).float(), torch.from_numpy(selected)
    with pytest.raises(ValueError, match=r"^Z: torch.float32; must be torch.float64"):
        single_token(*tensors)
