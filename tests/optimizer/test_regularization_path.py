import math

import pytest
import torch

from attnsvm.data import sample
from attnsvm.linalg import one_minus_correlation
from attnsvm.selection import select_tokens
from attnsvm.svm import SvmStatus, solve_svm
from attnsvm.theory import runner_up_local
from attnsvm.training import train
from attnsvm.training.trajectory import TrainingStatus
from tests.training.test_training import objective, risk_of

RADII = [3.0, 30.0, 300.0, 1e4]


@pytest.fixture(scope="module")
def batch():
    return sample("sphere", n=3, T=4, d=5, trials=8)


@pytest.mark.full
def test_factors_tend_to_the_nuclear_svm_of_the_selected_tokens(batch):
    """And W to the Frobenius one: the local path below."""
    path = train(batch, "kq", "regularization_path", radii=RADII)
    selection = select_tokens(batch, path)
    svm = solve_svm(batch.X, batch.Z, selection.selected, norm="nuclear")
    median = one_minus_correlation(path.snapshots[:, 1:], svm.W[:, None]).nanmedian(0).values
    assert (median[1:] < median[:-1]).all()
    assert median[-1] < 1e-5
    assert path.steps.tolist() == [0.0, *RADII]


def off_the_normal(batch, W):
    """Return the distance of the directions of -dL/dW, by autograd, and W."""
    W = W.clone().requires_grad_()
    (G,) = torch.autograd.grad(objective(risk_of(batch), 0.0, W).sum(), W)
    units = (V / V.norm(dim=(1, 2), keepdim=True) for V in (G, W.detach()))
    return sum(units).norm(dim=(1, 2))


def test_a_minimiser_on_the_sphere_has_its_gradient_along_the_normal(batch):
    path = train(batch, "kq", "regularization_path", m=2, radii=[3.0])
    size = (path.K.square().sum((1, 2)) + path.Q.square().sum((1, 2))) / 2
    torch.testing.assert_close(size, torch.full_like(size, 3.0))
    path = train(batch, "w", "regularization_path", radii=[3.0])
    torch.testing.assert_close(path.W.norm(dim=(1, 2)), torch.full_like(size, 3.0))
    assert (off_the_normal(batch, path.W) < 1e-6).all()
    assert (path.direction_error < 1e-6).all()


@pytest.mark.full
def test_a_path_that_stopped_short_of_a_minimiser_is_stalled():
    batch = sample("sphere", n=6, T=8, d=10, trials=5, seed=30)  # seed 32 leaves its tokens
    path = train(batch, "w", "regularization_path", radii=[30.0, 100.0])
    stalled = [status is TrainingStatus.STALLED for status in path.status()]
    assert stalled == [False, False, True, False, False]
    assert stalled == (off_the_normal(batch, path.W) > 1e-2).tolist()


@pytest.mark.full
@pytest.mark.parametrize("cone", [1.0, 10.0, 60.0])
def test_a_local_path_stays_in_its_cone_and_goes_to_the_axis_if_its_tokens_are_local(cone):
    """About tokens that are optimal but in the first sample.

    At small radii the risk is least towards the optimal tokens, at the border of the cone.
    """
    batch = sample("sphere", n=3, T=3, d=4, trials=40)
    tokens = batch.scores().argsort(-1)
    chosen = torch.cat([tokens[:, :1, -2], tokens[:, 1:, -1]], 1)
    solution = solve_svm(batch.X, batch.Z, chosen)
    solved = solution.having(SvmStatus.solved)
    batch, chosen, W_mm = batch.take(solved), chosen[solved], solution.W[solved]
    local = torch.tensor([verdict is True for verdict in runner_up_local(batch)])
    assert 3 < local.sum() < len(local) - 3
    options = {"init": W_mm, "radii": [3.0, 300.0, 3e4]}
    path = train(batch, "w", "regularization_path", cone=cone, **options)
    stalled = [status is TrainingStatus.STALLED for status in path.status()]
    assert torch.equal(torch.tensor(stalled), ~local)
    assert torch.equal(select_tokens(batch, path).selected[local], chosen[local])
    apart = one_minus_correlation(path.snapshots, W_mm[:, None])
    bound = 1 - math.cos(math.radians(cone))
    assert (apart <= bound * (1 + 1e-9)).all()
    assert (apart[:, 1] > 0.9 * bound).any()
    assert (apart[local, -1] < min(1e-7, bound / 1000)).all()
    whole = train(batch, "w", "regularization_path", init=W_mm, radii=[1.0, 3.0])
    assert (one_minus_correlation(whole.W, W_mm) > 1 - math.cos(math.radians(10))).any()
