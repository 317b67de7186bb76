"""The solvers on tensors of another device: nothing crosses over, and the answers are the CPU's."""

from functools import partial

import pytest
import torch

from attnsvm.svm import solve_gen_svm, solve_rank_constrained, solve_svm
from tests.kkt import normal
from tests.quick import quick_rows
from tests.svm.instances import gaussian, spheres
from tests.svm.pretended import GPU, PretendedGpu


def feasible_and_infeasible():
    X, Z, selected = gaussian(3, 4, 6, 6, seed=1)
    X[1, 0, 1] = X[1, 0, 0]
    X[2, 1, 1] = 2 * X[2, 1, 0] - X[2, 1, 2]
    mask = torch.ones(X.shape[:3], dtype=torch.bool)
    mask[3, :, 2:] = mask[4, :, 1:] = False
    return (X, Z, selected), {"mask": mask}


def several_tokens():
    """Of two instances some equalities depend on each other."""
    X, Z, _ = gaussian(3, 5, 8, 4, seed=2)
    X[1, 0, 1] = X[1, 0, 2]
    logs, attended = normal(*X.shape[:3]), torch.zeros(X.shape[:3], dtype=torch.bool)
    attended[..., :3] = True
    logs[1, 0, 1], logs[2] = logs[1, 0, 2], 0.0
    return (X, Z, attended, logs), {}


def large():
    return spheres(16, 70, 12, range(1)), {}


OTHERS = [(feasible_and_infeasible, norm) for norm in ("nuclear", "l1", "l3")]
OTHERS += [(several_tokens, "frobenius"), (large, "frobenius"), (large, "nuclear")]
CASES = [
    (feasible_and_infeasible, "frobenius"),
    (several_tokens, "nuclear"),
    *quick_rows((feasible_and_infeasible, "spectral"), *OTHERS),
]


def compared(solve, arrays, masks):
    """Return the solution of the other device, and that of the CPU, of the same status."""
    known = solve(*arrays, **masks)
    with PretendedGpu():
        to_gpu = partial(torch.Tensor.to, device=GPU)
        moved = solve(*map(to_gpu, arrays), **{name: to_gpu(x) for name, x in masks.items()})
        pair = (moved, known) if isinstance(known, tuple) else ([moved], [known])
        for solution, answer in zip(*pair, strict=True):
            assert solution.W.device.type == solution.certificate.ray.device.type == GPU.type
            assert solution.status == answer.status
            yield solution.objective.cpu(), answer


@pytest.mark.parametrize(("drawn", "norm"), CASES)
def test_the_answers_are_those_of_the_cpu(drawn, norm):
    arrays, masks = drawn()
    function = solve_svm if len(arrays) == 3 else solve_gen_svm
    for objective, known in compared(partial(function, norm=norm), arrays, masks):
        assert "solved" in known.status
        torch.testing.assert_close(objective, known.objective, rtol=1e-9, atol=0)


def test_rank_constrained():
    function = partial(solve_rank_constrained, m=1)
    for objective, known in compared(function, spheres(4, 4, 4, range(2)), {}):
        torch.testing.assert_close(objective, known.objective, rtol=1e-6, atol=0)
