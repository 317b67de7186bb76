"""What another machine may change: last bits, emulated by other routines of torch and its BLAS."""

import os
import subprocess
import sys

import numpy as np
import pytest
import torch

from attnsvm.data import sample
from attnsvm.training import train
from tests.kkt import assert_near

pytestmark = pytest.mark.full

SHAPE = {"n": 6, "T": 8, "d": 10, "trials": 8}
RUNS = {
    "w-normalized_gd": ("w", "normalized_gd", {}, 0.0),
    "w-gd": ("w", "gd", {"lr": 1.0}, 0.0),
    "kq-gd": ("kq", "gd", {"lr": 1.0}, 0.0),
    "kq-normalized_gd": ("kq", "normalized_gd", {}, 0.1),
    "w-growing": ("w", "normalized_gd", {"growth": 0.05}, 1.6),
}
"""Parameterization, optimizer, its options, and the last step's size where steps overshoot."""

STEPS = 300

ELSEWHERE = f"""
import dataclasses, sys
import numpy as np, torch
from attnsvm import sample, train
drawn = sample(**{SHAPE})
arrays = {{name: torch.from_numpy(array) for name, array in np.load(sys.argv[1]).items()}}
v = {{"v": arrays["v"]}}
batch = dataclasses.replace(drawn, X=arrays["X"], Z=arrays["Z"], head_parameters=v)
results = {{"X": drawn.X, "Y": drawn.Y}}
for name, (rule, optimizer, options, _) in {RUNS}.items():
    path = train(batch, rule, optimizer, steps={STEPS}, compiled=False, **options)
    results |= {{name: path.W, name + " loss": path.loss, name + " s": path.log_softmax}}
np.savez(sys.argv[2], **results)
"""
"""A program that draws and trains as below, by the torch loop."""


@pytest.fixture(scope="module")
def batch():
    return sample(**SHAPE)


@pytest.fixture(scope="module")
def elsewhere(batch, tmp_path_factory):
    """Return what the program finds with the plainest routines of torch and of its BLAS."""
    arrays, results = (
        tmp_path_factory.mktemp("elsewhere") / name for name in ("in.npz", "out.npz")
    )
    np.savez(arrays, X=batch.X, Z=batch.Z, v=batch.head_parameters["v"])
    plain = {"ATEN_CPU_CAPABILITY": "default", "MKL_CBWR": "COMPATIBLE", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", ELSEWHERE, str(arrays), str(results)]
    subprocess.run(command, env=os.environ | plain, check=True)
    return {name: torch.from_numpy(array) for name, array in np.load(results).items()}


def test_draws_agree_to_single_precision(batch, elsewhere):
    """Normal numbers are drawn in float32 by routines that differ in the last bit."""
    assert_near(elsewhere["X"], batch.X, atol=1e-6)
    assert elsewhere["Y"].equal(batch.Y)


@pytest.mark.parametrize("name", RUNS)
def test_steps_agree_to_rounding_or_where_they_overshoot_to_a_few_steps(batch, elsewhere, name):
    """Zigzag across a valley amplifies the last bit to the width of a step, not beyond."""
    rule, optimizer, options, last_step = RUNS[name]
    path = train(batch, rule, optimizer, steps=STEPS, **options)
    variables = (path.W,) if path.K is None else (path.K, path.Q)
    smallest = min(V.norm(dim=(1, 2)).min().item() for V in variables)
    apart = ((path.W - elsewhere[name]).norm(dim=(1, 2)) / path.W.norm(dim=(1, 2))).max()
    assert apart <= max(1e-12, 10 * last_step / smallest)
    assert elsewhere[f"{name} s"].argmax(-1).equal(path.log_softmax.argmax(-1))
    if last_step:
        torch.testing.assert_close(elsewhere[f"{name} loss"][:, -1], path.loss[:, -1])
    else:
        assert_near(elsewhere[f"{name} loss"], path.loss, rtol=1e-12)
