"""On another device: solvers take nothing to the CPU, training does nothing else there."""

from itertools import chain

import numpy as np
import pandas as pd
import pytest
import torch

from attnsvm.config import ConfigError
from attnsvm.experiment.stages import Stages
from attnsvm.svm import solve
from tests.config.test_config import composed
from tests.kkt import assert_near
from tests.pretended import GPU, PretendedGpu
from tests.quick import quick_rows
from tests.svm import test_problems as problems

CASES = quick_rows(
    (problems.of_spheres, (4, 4, 6), "frobenius"),
    (problems.several_tokens, (3, 5, 8, 3), "nuclear"),
    (problems.of_spheres, (4, 4, 4, 2), "rank"),
    *((problems.of_spheres, (4, 4, 6), norm) for norm in ("l1", "l3", "spectral")),
    (problems.several_tokens, (3, 5, 8, 3), "frobenius"),
    *((problems.of_spheres, (16, 70, 12, 1), norm) for norm in ("frobenius", "nuclear")),
    count=3,
)


@pytest.mark.parametrize(("function", "arguments", "norm"), CASES)
def test_the_answers_are_those_of_the_cpu(function, arguments, norm):
    """Of feasible and infeasible ones, and with rank 1."""
    norm, m = ("nuclear", 1) if norm == "rank" else (norm, None)
    for known in chain(*function(norm, *arguments)):
        T = known.support.shape[2]
        known = solve(known.problem, norm, T, m=m)
        with PretendedGpu():
            solution = solve(known.problem.to(GPU), norm, T, m=m)
            assert solution.W.device.type == solution.certificate.ray.device.type == GPU.type
            assert solution.status == known.status
            assert_near(solution.objective.cpu(), known.objective, rtol=1e-9)


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
