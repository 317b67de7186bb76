import json
from itertools import groupby
from pathlib import Path

import numpy as np
import pytest
import torch

from attnsvm.svm import (
    SvmStatus,
    finite_part,
    multi_token,
    single_token,
    solve,
    solve_gen_svm,
    solve_svm,
)
from attnsvm.svm.reference import Cvxpy, published_rank
from tests.kkt import assert_infeasible, assert_optimal, norm
from tests.svm.instances import gaussian, sphere, spheres

REFERENCE = json.loads((Path(__file__).parents[1] / "reference" / "svm.json").read_text())
SHAPES = groupby(REFERENCE, key=lambda r: (r["n"], r["T"], r["d"]))
NORMS = [("frobenius", "fro"), ("nuclear", "nuc")]
both_norms = pytest.mark.parametrize("name", ["frobenius", "nuclear"])


@pytest.mark.parametrize(("shape", "records"), [(s, list(r)) for s, r in SHAPES])
@pytest.mark.parametrize(("name", "key"), NORMS)
def test_reference_values(shape, records, name, key):
    X, Z, selected = (
        torch.stack(x) for x in zip(*(sphere(*shape, r["seed"]) for r in records), strict=True)
    )
    assert selected.tolist() == [r["selected"] for r in records]
    solution = solve_svm(X, Z, selected, norm=name)
    for b, record in enumerate(records):
        want = record[key]
        expected = "infeasible" if want["status"] == "infeasible" else "solved"
        assert solution.status[b] == expected
        if expected == "solved":
            assert solution.duality_gap[b] <= 1e-9
        if want["status"] == "optimal":
            assert solution.objective[b] == pytest.approx(want["obj"], rel=1e-7)
            assert solution.lower_bound[b] == pytest.approx(want["obj"], rel=1e-7)
            assert solution.rank[b] == want["rank"]
            assert solution.rank[b] <= solution.rank_bound[b]
            assert solution.support[b].sum() == want["nsupport"]
            sigma = torch.tensor(want["sigma"], dtype=torch.float64)
            assert torch.allclose(solution.sigma[b][: len(sigma)], sigma, rtol=0, atol=1e-3)


@both_norms
@pytest.mark.parametrize("shape", [(3, 4, 5), (5, 5, 3), (4, 6, 9), (2, 9, 2), (1, 5, 4)])
def test_kkt(name, shape):
    X, Z, selected = spheres(*shape, range(6))
    solution = solve_svm(X, Z, selected, norm=name)
    assert all(s in ("solved", "infeasible") for s in solution.status)
    assert_optimal(single_token(X, Z, selected), solution)


@both_norms
def test_infeasible_twin(name):
    X, Z, selected = gaussian(3, 4, 6, 5, seed=1)
    assert solve_svm(X, Z, selected, norm=name).status == (SvmStatus.solved,) * 5
    opposite = 2 * X[:, :, :1] - X[:, :, 1:2]  # the selected token becomes a midpoint
    X = torch.cat([X, opposite], dim=2)
    solution = solve_svm(X, Z, selected, norm=name)
    assert_infeasible(single_token(X, Z, selected), solution)


@both_norms
def test_one_constraint(name):
    X, Z, selected = gaussian(1, 2, 4, 3, seed=2)
    d, z = X[:, 0, 0] - X[:, 0, 1], Z[:, 0]
    W = d[:, :, None] * z[:, None, :] / (d.square().sum(1) * z.square().sum(1))[:, None, None]
    solution = solve_svm(X, Z, selected, norm=name)
    assert torch.allclose(solution.W, W, rtol=1e-9, atol=1e-12)
    assert solution.rank.tolist() == [1, 1, 1]


def test_orthogonal_rows():
    # Rows 2 e_t (x) e_i are orthogonal: W = sum_k g_k / ||g_k||^2, so W_it = 1/2.
    n, d = 3, 3
    X = torch.zeros(n, d + 1, d, dtype=torch.float64)
    X[:, 1:] = -2 * torch.eye(d)
    Z = torch.eye(n, dtype=torch.float64)
    selected = torch.zeros(n, dtype=torch.int64)
    frobenius = solve_svm(X, Z, selected)
    assert torch.allclose(frobenius.W, torch.full((d, n), 0.5, dtype=torch.float64), atol=1e-15)
    nuclear = solve_svm(X, Z, selected, norm="nuclear")
    assert nuclear.objective == pytest.approx(1.5, rel=1e-9)  # already rank one
    assert (nuclear.rank, nuclear.rank_bound) == (1, 1)


@both_norms
def test_no_constraint(name):
    X, Z, selected = gaussian(3, 1, 4, 2, seed=3)
    solution = solve_svm(X, Z, selected, norm=name)
    assert solution.status == (SvmStatus.unconstrained,) * 2
    assert (solution.W == 0).all()
    assert (solution.objective == 0).all()
    X, Z, selected = gaussian(3, 4, 4, 2, seed=3)
    mask = torch.zeros(2, 3, 4, dtype=torch.bool)
    mask[..., 0] = True
    masked = solve_svm(X, Z, selected, norm=name, mask=mask)
    assert masked.status == (SvmStatus.unconstrained,) * 2


@both_norms
def test_one_dimension(name):
    X = torch.tensor([[[[3.0], [1.0]], [[2.0], [4.0]]]]).double()
    Z = torch.tensor([[[1.0], [-0.5]]]).double()
    solution = solve_svm(X, Z, torch.zeros(1, 2, dtype=torch.int64), norm=name)
    assert solution.W.item() == pytest.approx(1.0)  # margins 2 w and w
    twin = solve_svm(X, Z.abs(), torch.zeros(1, 2, dtype=torch.int64), norm=name)
    assert twin.status == (SvmStatus.infeasible,)


@both_norms
def test_equal_tokens_are_infeasible(name):
    X, Z, selected = gaussian(2, 3, 4, 1, seed=4)
    X[:, 1, 2] = X[:, 1, 0]
    assert_infeasible(single_token(X, Z, selected), solve_svm(X, Z, selected, norm=name))


@both_norms
def test_duplicates_change_nothing(name):
    X, Z, selected = gaussian(3, 4, 5, 4, seed=5)
    once = solve_svm(X, Z, selected, norm=name)
    twice = solve_svm(torch.cat([X, X[:, :, 1:]], dim=2), Z, selected, norm=name)
    assert twice.status == once.status
    assert torch.allclose(twice.objective, once.objective, rtol=2e-9)


@both_norms
def test_ragged_mask_is_the_smaller_problem(name):
    X, Z, selected = gaussian(3, 6, 5, 3, seed=6)
    mask = torch.ones(3, 3, 6, dtype=torch.bool)
    mask[:, :, 4:] = False
    masked = solve_svm(X, Z, selected, norm=name, mask=mask)
    smaller = solve_svm(X[:, :, :4], Z, selected, norm=name)
    assert torch.allclose(masked.objective, smaller.objective, rtol=2e-9)
    assert (masked.support[:, :, :4] == smaller.support).all()
    assert not masked.support[:, :, 4:].any()


@both_norms
@pytest.mark.parametrize("exponent", [-20, 3, 20])
def test_power_of_two_scaling(name, exponent):
    X, Z, selected = gaussian(3, 5, 4, 3, seed=7)
    base = solve_svm(X, Z, selected, norm=name)
    scaled = solve_svm(X * 2.0**exponent, Z, selected, norm=name)
    assert torch.allclose(scaled.objective * 2.0**exponent, base.objective, rtol=1e-14)


@both_norms
def test_batch_is_singles_and_kinds_come_back(name):
    X, Z, selected = spheres(5, 5, 3, range(4))
    batch = solve_svm(X, Z, selected, norm=name)
    for b in range(4):
        single = solve_svm(X[b].numpy(), Z[b].numpy(), selected[b].numpy(), norm=name)
        assert isinstance(single.W, np.ndarray)
        assert single.W.shape == (3, 3)
        assert single.certificate.multipliers.shape == (20,)
        assert single.status == batch.status[b]
        if single.status == SvmStatus.solved:
            assert single.objective == pytest.approx(batch.objective[b].item(), rel=1e-9)


@both_norms
def test_gen_svm_against_oracle(name):
    generator = torch.Generator().manual_seed(8)
    X, Z, _ = gaussian(3, 5, 6, 4, seed=8)
    attended = torch.zeros(4, 3, 5, dtype=torch.bool)
    attended[:, :, 0] = True
    attended[:, 0, 3] = True
    attended[2:, 1, 1:3] = True
    log_softmax = torch.randn(4, 3, 5, generator=generator, dtype=torch.float64).log_softmax(-1)
    fin, mm = solve_gen_svm(X, Z, attended, log_softmax, norm=name)
    problems = finite_part(X, Z, attended, log_softmax), multi_token(X, Z, attended)
    for problem, solution in zip(problems, (fin, mm), strict=True):
        assert solution.status == (SvmStatus.solved,) * 4
        assert (solution.duality_gap <= 1e-9).all()
        assert_optimal(problem, solution)
        for b, oracle in enumerate(Cvxpy(name, "CLARABEL").solutions(problem)):
            assert oracle.status == SvmStatus.solved
            assert solution.objective[b] == pytest.approx(oracle.objective, rel=1e-6)
    logits = torch.einsum("bntd,bde,bne->bnt", X, fin.W, Z)
    wanted = torch.where(attended, log_softmax - logits, torch.nan)
    spread = wanted.nan_to_num(-torch.inf).amax(-1) - wanted.nan_to_num(torch.inf).amin(-1)
    assert spread.abs().max() <= 1e-12  # logits are log s up to a constant inside O_i


@both_norms
def test_gen_svm_infeasible_twin(name):
    X, Z, _ = gaussian(2, 4, 5, 2, seed=9)
    attended = torch.zeros(2, 2, 4, dtype=torch.bool)
    attended[:, :, :2] = True
    log_softmax = torch.zeros(2, 2, 4, dtype=torch.float64)
    X[:, 0, 2] = (X[:, 0, 0] + X[:, 0, 1]) / 2  # a masked token between two attended ones
    fin, mm = solve_gen_svm(X, Z, attended, log_softmax, norm=name)
    assert_infeasible(multi_token(X, Z, attended), mm)
    assert fin.status == (SvmStatus.unconstrained,) * 2  # equal logits: W = 0
    log_softmax[:, 0, 0] = 1.0
    X[:, 0, 1] = X[:, 0, 0]  # equal tokens, different softmax
    assert_infeasible(
        finite_part(X, Z, attended, log_softmax),
        solve_gen_svm(X, Z, attended, log_softmax, norm=name)[0],
    )


@both_norms
def test_dependent_equalities(name):
    X, Z, _ = gaussian(2, 5, 6, 2, seed=10)
    attended = torch.zeros(2, 2, 5, dtype=torch.bool)
    attended[:, :, :3] = True
    X[:, :, 2] = 2 * X[:, :, 1] - X[:, :, 0]  # consistent with log s = 0, -1, -2
    log_softmax = -torch.arange(5, dtype=torch.float64).expand(2, 2, 5)
    fin, mm = solve_gen_svm(X, Z, attended, log_softmax, norm=name)
    assert fin.status == mm.status == (SvmStatus.solved,) * 2
    assert_optimal(finite_part(X, Z, attended, log_softmax), fin)
    assert_optimal(multi_token(X, Z, attended), mm)


def test_norm_inequalities():
    X, Z, selected = spheres(6, 5, 7, range(5))
    fro, nuc = (solve_svm(X, Z, selected, norm=name) for name in ("frobenius", "nuclear"))
    assert (norm(fro.W, "frobenius") <= norm(nuc.W, "frobenius") * (1 + 1e-9)).all()
    assert (norm(nuc.W, "nuclear") <= norm(fro.W, "nuclear") * (1 + 1e-9)).all()


def test_published_rank():
    X, Z, selected = spheres(5, 5, 2, range(2))
    problem = single_token(X, Z, selected)
    solutions = Cvxpy("frobenius").solutions(problem)
    assert [published_rank(one.W) for one in solutions] == [2, 1]  # the second is infeasible
    assert Cvxpy("frobenius").solutions(problem)[1].status == SvmStatus.infeasible


def test_bad_input_is_named():
    X, Z, selected = gaussian(2, 3, 4, 1, seed=11)
    bad = X.clone()
    bad[0, 1, 2, 3] = torch.nan
    with pytest.raises(ValueError, match=r"X: NaN or Inf at index \(0, 1, 2, 3\)"):
        solve_svm(bad, Z, selected)
    with pytest.raises(ValueError, match="Z: NaN"):
        solve_svm(X, Z * torch.inf, selected)
    with pytest.raises(ValueError, match="Z: shape"):
        solve_svm(X, Z[:, :1], selected)
    with pytest.raises(ValueError, match="selected"):
        solve_svm(X, Z, selected + 3)
    with pytest.raises(ValueError, match="selected"):
        solve_svm(X, Z, selected.double())
    with pytest.raises(ValueError, match="mask"):
        solve_svm(X, Z, selected, mask=torch.ones(1, 2, 3))
    with pytest.raises(ValueError, match="norm=l0: must be frobenius"):
        solve_svm(X, Z, selected, norm="l0")
    attended = torch.zeros(1, 2, 3, dtype=torch.bool)
    with pytest.raises(ValueError, match="attended"):
        solve_gen_svm(X, Z, attended, torch.zeros(1, 2, 3))
    attended[:, :, 0] = True
    with pytest.raises(ValueError, match="log_softmax"):
        solve_gen_svm(X, Z, attended, torch.full((1, 2, 3), -torch.inf))
    assert solve(single_token(X, Z, selected), "frobenius", 3).status == (SvmStatus.solved,)


def test_rank_bound_bounds_the_numerical_rank():
    # Samples of sizes 1 ... 1e5: sigma_2(M(a)) is 1 - 1.5e-6 where sigma_2(W) is 1.5e-6 sigma_1(W).
    random = np.random.default_rng(2)
    Z, X = random.normal(size=(30, 2, 3)), random.normal(size=(30, 2, 3, 3))
    X *= (10.0 ** random.uniform(0, 5, size=(30, 2)))[..., None, None]
    selected = np.zeros((30, 2), dtype=int)
    for tolerance in (1e-6, 1e-4):
        solution = solve_svm(X, Z, selected, norm="nuclear", rank_tolerance=tolerance)
        known = (solution.rank >= 0) & (solution.rank_bound >= 0)
        assert known.sum() >= 15
        assert (solution.rank <= solution.rank_bound)[known].all()
    wide = solve_svm(X[:5], Z[:5], selected[:5], norm="nuclear", rank_tolerance=1e-14)
    assert (wide.rank_bound == -1).all()  # no gap is small enough for this threshold
