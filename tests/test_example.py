"""The examples: the page of torch and cvxpy has our numbers; the package does what it says."""

import os
import re
import runpy
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

import attnsvm
from tests.command import environment, ran

EXAMPLES = Path(__file__).parents[1] / "docs/examples"
EXAMPLE = EXAMPLES / "cubic"


@pytest.fixture
def place(tmp_path):
    """A folder with the package, as pip installs it."""
    source, target = shutil.copytree(EXAMPLE, tmp_path / "source"), tmp_path / "place"
    options = ["--no-deps", "--no-build-isolation", "--no-index", "--quiet", "--target"]
    pip = [sys.executable, "-m", "pip", "install", *options, target, source]
    subprocess.run(pip, check=True, env=environment(), capture_output=True)
    return target


@pytest.mark.full
def test_it_is_listed_checked_run_and_drawn(place, tmp_path):
    shown = ran("--help", path=place, cwd=tmp_path)
    for name in ("cubic", "clusters", "alignment", "cubic_heads.yaml"):
        assert re.search(rf"(\||,)\s+{name}|/{name}", shown.stdout), shown.stdout + shown.stderr
    assert "cannot be used" not in shown.stdout
    listed = ran("--columns", path=place, cwd=tmp_path).stdout
    assert re.search(r"alignment_symmetry\s+<W, W\^T>", listed)
    small = ["trials=3", "data.n=2", "data.T=3", "optimizer.steps=100", "head.power=1,3"]
    ran("sweep=cubic_heads", *small, "data.d=4,5", path=place, cwd=tmp_path)
    folder = tmp_path / "multirun/cubic_heads"
    table = pd.read_csv(folder / "tables/cubic_heads.csv")
    assert len(table) == 4
    assert (folder / "figures/cubic_heads.png").stat().st_size > 10_000
    proved = ran(str(folder), path=place, cwd=tmp_path, command="attnsvm-verify")
    assert "the code of a plug-in is not run" in proved.stdout
    refused = ran("head=cubic", "head.power=2", path=place, cwd=tmp_path, code=2)
    assert "head.power=2: must be odd" in refused.stderr


@pytest.mark.full
def test_its_own_tests_pass(tmp_path):
    env = environment({**os.environ, "PYTHONPATH": str(EXAMPLE / "src")})
    options = ["-q", "-p", "no:cacheprovider", f"--rootdir={tmp_path}"]
    command = [sys.executable, "-m", "pytest", *options, EXAMPLE / "tests"]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    assert "3 passed" in done.stdout


def test_the_minimal_example_has_our_instance_weights_tokens_and_svm():
    path = EXAMPLES / "minimal.py"
    assert len(path.read_text().splitlines()) <= 60
    assert "attnsvm" not in path.read_text()
    its = runpy.run_path(str(path), run_name="minimal")
    X, Z, scores = its["instance"](n=6, T=8, d=10, seed=3)
    batch = attnsvm.sample("sphere", n=6, T=8, d=10, trials=1, seed=3)
    assert torch.equal(X, batch.X[0])
    assert torch.equal(Z, batch.Z[0])
    W = its["descend"](X, Z, scores, steps=200)
    trained = attnsvm.train(batch, parameterization="w", steps=200, init="zero")
    np.testing.assert_allclose(W, trained.W[0], rtol=1e-10, atol=1e-10)
    selected = attnsvm.select_tokens(batch, trained).selected
    assert (X @ W @ Z[:, :, None])[:, :, 0].argmax(dim=1).tolist() == selected[0].tolist()
    solution = attnsvm.solve_svm(batch.X, batch.Z, selected, norm="frobenius")
    np.testing.assert_allclose(its["svm"](X, Z, selected[0]), solution.W[0], atol=1e-5)
