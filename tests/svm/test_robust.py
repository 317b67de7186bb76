"""Extreme sizes, broken instances and odd arguments."""

import sys
from itertools import product

import numpy as np
import pytest
import torch

from attnsvm.norm import norm_of
from attnsvm.svm import multi_token, single_token, solve, solve_gen_svm, solve_svm
from attnsvm.svm.certificate import certify, check_ray
from attnsvm.svm.solution import Candidate
from attnsvm.svm.solve import method_of
from tests.kkt import assert_near
from tests.quick import quick_rows
from tests.svm.instances import both_norms, gaussian

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
    X[0, 0], X[0, 0, 0] = 1e-200, 0.0  # rows of 1e-320 beside others of size one
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


def test_the_bracket_is_independent_of_the_scale_of_its_candidate():
    problem = single_token(*gaussian(3, 4, 4, 3, seed=1))
    solution = solve(problem, "frobenius", 4)
    W, a = solution.W, solution.certificate.multipliers
    for unit in (2.0**-1000, 2.0**-535, 2.0**-525, 2.0**500, 2.0**1000):
        candidate = Candidate(unit * W, unit * a, torch.nan * a)
        proof = certify(problem, candidate, "frobenius", 1e-9, 1e-6).certificate
        assert_near(proof.upper, solution.objective, rtol=1e-14)
        assert_near(proof.lower, solution.lower_bound, rtol=1e-14)


ERRORS = [np.linalg.LinAlgError, torch.linalg.LinAlgError, FloatingPointError, RuntimeWarning]
OTHERS = ["spectral", "max", "l1", "l1.75", "l3", "schatten1.5", "schatten3"]
BREAKS = product(("frobenius", "nuclear"), (None, ValueError, *ERRORS))


@pytest.mark.processors
@pytest.mark.parametrize(
    ("name", "error"), [*BREAKS, *quick_rows(*product(OTHERS, [None]), count=2)]
)
def test_an_instance_that_breaks_leaves_the_bits_of_the_others(name, error, monkeypatch):
    """Of sizes that fill whole cache lines: LAPACK's last bits depend on a matrix's alignment.

    Of other norms than the Frobenius and the nuclear one, all but the last digits.
    """
    X, Z, selected = gaussian(4, 5, 8, 6, seed=3)
    X[2, 0, 1] = X[2, 0, 0]
    X[4] *= 1e300
    Z[4] *= 1e300
    good, method = torch.tensor([0, 1, 3, 5]), method_of(norm_of(name), 16, 8)
    without = solve_svm(X[good], Z[good], selected[good], norm=name)

    def breaks(problem):
        if error is not None and problem.zero.any():
            raise error
        return method(problem)

    monkeypatch.setattr(sys.modules["attnsvm.svm.solve"], "method_of", lambda *of: breaks)
    solution = solve_svm(X, Z, selected, norm=name)
    assert [solution.status[b] for b in good] == ["solved"] * 4
    assert solution.status[2] == ("infeasible" if error is None else "undecided")
    assert solution.status[4] == "undecided"
    for field in NUMBERS:
        value, known = getattr(solution, field)[good], getattr(without, field)
        assert_near(value, known, atol=1e-12 * (name in OTHERS))


X, Z, SELECTED = (t.numpy() for t in gaussian(3, 4, 5, 2, seed=5))
GAMMA, MARGINS, NAN = np.zeros((2, 3)), np.ones((2, 9)), np.nan
FIRST, LOGS = np.arange(4) + np.zeros((2, 3, 1)) == 0, np.zeros((2, 3, 4))
WRONG = {
    "X": (X > 0, [[1.0], [1.0, 2.0]], None, 1.0, X[0, 0], X[:0], X * NAN),
    "Z": (Z * np.inf, Z[:, :1]),
    "selected": (SELECTED > 0, SELECTED * 1.0, SELECTED - 1, SELECTED + 4, None),
    "norm": ("l0",),
    "mask": (np.ones((2, 3, 4)),),
    "gap": (0.0, -1e-9, 2e-2, np.inf, NAN),
    "rank_tolerance": (0.0, -1e-6, 1.0, 2.0, NAN),
    "margins": (MARGINS[:, 1:], *(b * MARGINS for b in (-1.0, 1e101, 1e-101, np.inf))),
    "offsets": (GAMMA[:, :2], GAMMA + NAN, None),
    "ratio": ([1.0, 2.0, 3.0], -1.0, NAN, None),
    "attended": (FIRST.astype(int), FIRST & False),
    "log_softmax": (LOGS + 0j, LOGS - np.inf),
}


@pytest.mark.parametrize("field", WRONG)
def test_wrong_arguments_are_named(field):
    arguments, function = {"X": X, "Z": Z, "selected": SELECTED}, solve_svm
    if field in ("offsets", "ratio"):
        arguments |= {"offsets": GAMMA, "ratio": 1.0}
    if field in ("attended", "log_softmax"):
        function = solve_gen_svm
        arguments = {"X": X, "Z": Z, "attended": FIRST, "log_softmax": LOGS}
    for value in WRONG[field]:
        with pytest.raises(ValueError, match=f"^{field}\\b"):
            function(**arguments | {field: value})


def test_an_entry_that_is_wrong_and_two_kinds_of_right_hand_sides_are_named():
    bad = np.where(X == X[0, 1, 2, 3], np.inf, X)
    with pytest.raises(ValueError, match=r"^X: inf at index \[0, 1, 2, 3\]"):
        solve_svm(bad, Z, SELECTED)
    with pytest.raises(ValueError, match=r"^Z: shape \(2, 3, 5\); must be \(3, 5\)"):
        solve_svm(X[0], Z, SELECTED[0])  # shapes and indices of one instance have no batch axis
    with pytest.raises(ValueError, match=r"^margins\b"):
        solve_svm(X, Z, SELECTED, margins=MARGINS, offsets=GAMMA, ratio=1.0)
    with pytest.raises(ValueError, match=r"^Z: torch.float32; must be torch.float64"):
        single_token(*map(torch.from_numpy, (X, Z.astype(np.float32), SELECTED)))
