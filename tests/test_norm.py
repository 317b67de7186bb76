"""Norms against their definition by duality, and steepest directions against random ones."""

import math
import re
import sys

import cvxpy as cp
import numpy as np
import pytest
import torch

import attnsvm
from attnsvm.config import ConfigError
from attnsvm.norm import Entrywise, Schatten, norm_of
from attnsvm.svm import solve_svm
from tests.kkt import assert_near, normal
from tests.kkt import norm as by_definition
from tests.svm.instances import spheres

NAMES = ["frobenius", "nuclear", "spectral", "max", "l1", "l1.75", "l3", "schatten1.5", "schatten4"]
NAMES += ["spectral+max", "l1.75+frobenius"]


@pytest.mark.parametrize("name", NAMES)
def test_values_are_those_of_the_definition(name):
    W = normal(3, 5, 5)
    norm = norm_of(name)
    assert norm.name == name
    expected = by_definition(W, name)
    np.testing.assert_allclose(norm.value(W), expected, rtol=1e-13)
    for scale in (1e-200, 1e200):
        np.testing.assert_allclose(norm.value(scale * W) / scale, expected, rtol=1e-12)
    assert norm.value(0 * W).tolist() == [0.0] * 3


@pytest.mark.parametrize("name", NAMES)
def test_the_steepest_direction_attains_the_dual_norm(name):
    """<M, V> <= norm(V) dual(M) for all V, with equality at the steepest direction.

    The spread bounds the norm, and is attained but for A+B, of which it is only a bound. Half of
    the M have rank 2.
    """
    M, V, arguments = normal(40, 4, 4), normal(40, 4, 4, seed=1), norm_of(name)
    M[20:] = M[20:, :, :2] @ M[20:, :2]
    corner = torch.zeros(1, 4, 4).double()
    corner[..., 0, 0] = 1.0
    V = torch.cat([V, torch.ones(1, 4, 4), torch.eye(4)[None], corner])
    for norm in (arguments, arguments.dual):
        best = norm.steepest(M)
        inner = (M * best).sum((-2, -1))
        assert_near(norm.value(best), torch.ones(40).double(), rtol=1e-12)
        assert_near(inner, norm.dual.value(M), rtol=1e-12)
        pairings = torch.einsum("bij,cij->bc", M, V)
        bound = norm.dual.value(M)[:, None] * norm.value(V)
        assert (pairings <= bound * (1 + 1e-12)).all()
        assert not norm.steepest(0 * M).any()
        largest = (norm.value(V) / V.norm(dim=(1, 2))).amax() / norm.spread(4)
        assert largest <= 1 + 1e-12
        assert "+" in name or largest >= 1 - 1e-12


NONE = "l0.5 l2 schatten1 linf l l1e3 l101 L1 spectral+foo max+ +max a+b+c max+max+max"
WRONG = [2, 2.0, None, True, float("nan"), b"l1", ["l1"], ("l1",), {"l1": 1}, Entrywise]


@pytest.mark.parametrize("name", ["", *NONE.split(), *WRONG], ids=repr)
def test_what_is_no_norm_is_refused(name):
    shown = name if isinstance(name, str) else repr(name)
    for function, *arguments in ((norm_of,), (attnsvm.solve_least_norm, np.eye(2)[None], 1.0)):
        with pytest.raises(ConfigError, match=rf"norm={re.escape(shown)}: .*must be frobenius"):
            function(*arguments, name)


@pytest.mark.parametrize("p", [0.5, 0, -1, float("nan"), "3", None])
@pytest.mark.parametrize("family", [Entrywise, Schatten])
def test_an_exponent_below_one_is_refused(family, p):
    with pytest.raises(ConfigError, match=r"p=.*: must be a number >= 1"):
        family(p)


@pytest.mark.parametrize("p", [1.2345678, np.nextafter(1, 2), 1.1, 7 / 3, np.nextafter(2, 1), 100])
@pytest.mark.parametrize("family", [Entrywise, Schatten])
def test_a_name_has_every_digit_of_p(family, p):
    norm = family(p)
    assert norm_of(norm.name).p == norm.p == p
    assert norm_of(f"{norm.name}+max").weights.p == p
    other = family(np.nextafter(p, 3 if p < 3 else 4))
    assert other.name != norm.name


def test_a_norm_derived_from_one_of_ours_has_its_dual():
    own = type("Cubes", (Entrywise,), {"__init__": lambda self: Entrywise.__init__(self, 3.0)})
    assert own().dual.p == 1.5


def test_a_norm_of_ones_own(monkeypatch):
    """The largest entry of D W, D a diagonal of weights: the max norm of other tokens."""

    class Weighted(Entrywise):
        def __init__(self, weights, p):
            super().__init__(p)
            self.weights, self.name = weights, f"weighted l{p}"

        def value(self, W):
            return super().value(self.weights[:, None] * W)

        @property
        def dual(self):
            return Weighted(1 / self.weights, 1.0 if self.p == math.inf else math.inf)

        def expression(self, W):
            return cp.max(cp.abs(cp.diag(self.weights.numpy()) @ W))

    weights = torch.tensor([1.0, 2.0, 0.5, 1.0, 4.0]).double()
    X, Z, selected = spheres(3, 4, 5, range(2))
    own = Weighted(weights, math.inf)
    solution = solve_svm(X, Z, selected, norm=own)
    same = solve_svm(X / weights, Z, selected, norm="max")  # x^T W z = (x / w)^T (w W) z
    assert solution.norm == "weighted linf"
    assert solution.status == ("solved",) * 2
    monkeypatch.setattr(sys.modules["attnsvm.svm.solve"], "LARGE", 1)
    for of in (solution, solve_svm(X, Z, selected, norm=own)):
        assert_near(of.objective, same.objective, rtol=2e-9)
    # W of about 2^-1085 is 0 in float64, although its norm is not small: undecided
    huge, tiny = Weighted(1e150 + 0 * weights, math.inf), (2.0**542 * X, 2.0**543 * Z)
    huge.expression = Entrywise(math.inf).expression  # of the same minimisers
    statuses = [solve_svm(*of, selected, norm=huge).status for of in ((X, Z), tiny)]
    assert statuses == [("solved",) * 2, ("undecided",) * 2]
