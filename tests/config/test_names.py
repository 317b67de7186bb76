"""A misspelt name is told with the right one in Python and by mypy; typed: tests/cli/test_app."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch

import attnsvm
from attnsvm.config import ConfigError

ROOT = Path(__file__).parents[2]
BATCH = attnsvm.sample("sphere", n=2, T=3, d=4, trials=2)
PATH = attnsvm.train(BATCH, steps=2)
SELECTED = attnsvm.select_tokens(BATCH, PATH).selected
DATA = (BATCH.X, BATCH.Z)


@pytest.mark.parametrize(
    ("call", "error", "meant"),
    [
        (lambda: attnsvm.train(BATCH, stpes=10), ConfigError, "steps"),
        (lambda: attnsvm.train(BATCH, optimizer="adam", beat1=0.5), ConfigError, "beta1"),
        (lambda: attnsvm.train(BATCH, optimizer=torch.optim.Adam), ConfigError, "adam"),
        (lambda: attnsvm.sample("sphere", trails=3), ConfigError, "trials"),
        (lambda: attnsvm.select_tokens(BATCH, PATH, saturaton=0.9), TypeError, "saturation"),
        (lambda: attnsvm.solve_svm(*DATA, SELECTED, nrom="nuclear"), TypeError, "norm"),
    ],
)
def test_a_misspelt_name_in_python_is_an_error_with_the_right_one(call, error, meant):
    with pytest.raises(error, match=f"did you mean {meant}\\?"):
        call()


CALLS = """
import attnsvm
batch = attnsvm.sample("sphere", {n}=2, T=3, d=4, trials=2)
path = attnsvm.train(batch, {steps}=2, radii=[1, 2])
chosen = attnsvm.select_tokens(batch, path, {saturation}=0.9)
solution = attnsvm.solve_svm(batch.X, batch.Z, chosen.selected, {norm}="nuclear")
solution.W.norm()
"""


@pytest.mark.full
def test_mypy_refuses_misspelt_names_only(tmp_path):
    right = {name: name for name in ("n", "steps", "saturation", "norm")}
    wrong = {"n": "nn", "steps": "stpes", "saturation": "saturaton", "norm": "nrom"}
    (tmp_path / "right.py").write_text(CALLS.format(**right))
    (tmp_path / "wrong.py").write_text(CALLS.format(**wrong).replace("T=3", 'T="three"'))
    command = [sys.executable, "-m", "mypy", *tmp_path.iterdir()]  # cache: of `make test`
    output = subprocess.run(command, cwd=ROOT, capture_output=True, text=True).stdout
    assert "in 1 file (checked 2 source files)" in output
    assert "right.py" not in output
    for name in wrong.values():
        assert f'Unexpected keyword argument "{name}"' in output
    assert 'Argument "T" to "sample" has incompatible type "str"' in output
