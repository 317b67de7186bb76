"""On another device: solvers take nothing to the CPU, training does nothing else there."""

from functools import partial

import numpy as np
import pandas as pd
import pytest
import torch

from attnsvm.config import ConfigError
from attnsvm.experiment.stages import Stages
from attnsvm.svm import solve_gen_svm, solve_rank_constrained, solve_svm
from tests.config.test_config import composed
from tests.kkt import normal
from tests.pretended import GPU, PretendedGpu
from tests.quick import quick_rows
from tests.svm.instances import gaussian, spheres


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


OTHERS = [(feasible_and_infeasible, norm) for norm in ("l1", "l3")]
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


RUNS = (
    "sweep=correlation_vs_d trials=2 optimizer.steps=40 data.d=6",
    "parameterization=kq selection=multi keep_path=true optimizer.steps=60 trials=2",
    "sweep=next_token trials=2 optimizer.steps=20",
)


@pytest.mark.parametrize("typed", RUNS)
def test_a_run_that_trains_there_has_the_record_of_the_cpu(typed):
    config = composed(typed)
    here, there = Stages(config), Stages(config)
    there.device = torch.device(GPU)
    batch = here.draw(config.trials, config.seed)
    known = here.record_of(batch)
    with PretendedGpu():
        record = there.record_of(batch)
    assert record.trials["status"].tolist() == known.trials["status"].tolist()
    assert record.solutions.keys() == known.solutions.keys()
    for name, array in known.solutions.items():
        if array.dtype.kind == "f":
            np.testing.assert_allclose(record.solutions[name], array, rtol=1e-9, atol=1e-9)
        else:
            np.testing.assert_array_equal(record.solutions[name], array)
    pd.testing.assert_frame_equal(record.history, known.history, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(
    ("name", "has_gpu", "in_job", "device"),
    [
        ("auto", True, False, "cpu"),
        ("auto", True, True, "cuda"),
        ("cuda", True, False, "cuda"),
        ("cpu", True, True, "cpu"),
        ("auto", False, True, None),
        ("cuda", False, False, None),
    ],
)
def test_a_gpu_is_used_where_it_was_asked_for(name, has_gpu, in_job, device, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: has_gpu)
    monkeypatch.delenv("SLURM_STEP_GPUS", raising=False)
    if in_job:
        monkeypatch.setenv("SLURM_STEP_GPUS", "0")
    config = composed(f"device={name} data.n=2 data.T=2 data.d=2 trials=1")
    if device is None:
        with pytest.raises(ConfigError, match=f"device={name}: no CUDA device is available"):
            Stages(config)
    else:
        assert Stages(config).device.type == device
