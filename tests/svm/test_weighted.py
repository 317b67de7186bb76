"""The weighted SVM with offsets and a ratio; its KKT conditions are among those of all problems."""

import math

import pytest
import torch

from attnsvm import margin_gap
from attnsvm.svm import solve_svm
from tests.kkt import assert_infeasible, norm, normal
from tests.quick import quick
from tests.svm.instances import gaussian, spheres

NORMS = ["frobenius", *quick("nuclear", "spectral", "max", "l1", "l1.75", "l3", "schatten3")]
every_norm = pytest.mark.parametrize("name", NORMS)


@every_norm
def test_infeasible_twin(name):
    """A token equals the selected one: no W exists, unless its sample is clipped."""
    X, Z, selected = gaussian(3, 4, 6, 2, seed=1)
    X[0, 0, 1], X[1, 2, 1] = X[0, 0, 0], X[1, 2, 0]
    gamma = torch.tensor([0.0, 1.0, 2.0]).double().expand(2, 3)
    for r in (0.0, 0.01, 1e6, math.inf):
        ratio = torch.tensor([r, 0.0]).double()
        solution = solve_svm(X, Z, selected, norm=name, offsets=gamma, ratio=ratio)
        assert_infeasible(solution.problem.at_norm(torch.inf), solution)
        far = solve_svm(X[1], Z[1], selected[1], norm=name, offsets=gamma[1], ratio=r)
        expected = {0.0: "infeasible", 0.01: "undecided"}.get(r, "solved")
        assert far.status == expected


@every_norm
def test_invariances(name):
    """Offsets plus a constant; the ratios 0 and inf; an instance out of its batch."""
    X, Z, selected = spheres(4, 4, 6, range(3))
    gamma, r = normal(3, 4, seed=2), torch.tensor([0.2, 1.0, 30.0]).double()

    def solved(b=slice(None), **changed):
        options = {"offsets": gamma[b], "ratio": r[b]} | changed
        return solve_svm(X[b], Z[b], selected[b], name, **options)

    solution, none = solved(), dict.fromkeys(("offsets", "ratio"))
    assert solution.status == ("solved",) * 3
    torch.testing.assert_close(norm(solution.W, name), solution.objective, rtol=1e-12, atol=0)
    assert margin_gap(7 * solution.W, solution).abs().max() <= 1e-9
    plain = solved(**none).W
    least = (gamma == gamma.amin(1, keepdim=True)).double().repeat_interleave(3, 1)
    assert torch.equal(solved(ratio=0).W, plain)
    assert torch.equal(solved(ratio=math.inf).W, solved(margins=least, **none).W)
    for other in (plain, normal(3, 6, 6), solution.W + 1e-3 * normal(3, 6, 6, seed=1)):
        assert (margin_gap(other, solution) > 1e-6).all()
    shifted = solved(offsets=gamma + 3)
    torch.testing.assert_close(shifted.objective, solution.objective, rtol=1e-9, atol=0)
    torch.testing.assert_close(solved(2).W, solution.W[2], rtol=0, atol=1e-11)
