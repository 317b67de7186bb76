"""A misspelt name is told with the right one: on the command line, in Python, by mypy."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from pathlib import Path
from typing import get_type_hints

import pytest

import attnsvm
from attnsvm.config import GROUPS, ConfigError
from attnsvm.config.options import OptimizerOptions, SampleOptions
from tests.command import attnsvm as command

ROOT = Path(__file__).parents[2]


# --- in Python ------------------------------------------------------------------------------------

BATCH = attnsvm.sample("sphere", n=2, T=3, d=4, trials=2)
PATH = attnsvm.train(BATCH, steps=2)
SELECTED = attnsvm.select_tokens(BATCH, PATH).selected


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (lambda: attnsvm.train(BATCH, stpes=10), "did you mean steps?"),
        (lambda: attnsvm.train(BATCH, optimizer="adam", beat1=0.5), "did you mean beta1?"),
        (lambda: attnsvm.train(BATCH, optimizer="normalised_gd"), "did you mean normalized_gd?"),
        (lambda: attnsvm.train(BATCH, compield=False), "did you mean compiled?"),
        (lambda: attnsvm.sample("sphere", trails=3), "did you mean trials?"),
        (lambda: attnsvm.sample("spehre"), "did you mean sphere?"),
        (lambda: attnsvm.sample(haed="relu"), "did you mean head?"),
    ],
)
def test_a_misspelt_field_is_a_config_error_with_the_right_name(call, told):
    with pytest.raises(ConfigError) as error:
        call()
    assert told in str(error.value)


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (lambda: attnsvm.select_tokens(BATCH, PATH, saturaton=0.9), "did you mean saturation?"),
        (lambda: attnsvm.solve_svm(BATCH.X, BATCH.Z, SELECTED, nrom="nuclear"), "mean norm?"),
        (lambda: attnsvm.solve_gen_svm(BATCH.X, BATCH.Z, attend=SELECTED), "mean attended?"),
        (lambda: attnsvm.solve_rank_constrained(BATCH.X, BATCH.Z, SELECTED, gpa=1), "mean gap?"),
    ],
)
def test_a_misspelt_argument_is_a_type_error_with_the_right_name(call, told):
    with pytest.raises(TypeError) as error:
        call()
    assert told in str(error.value)
    assert "; must be " not in told


# --- the types ------------------------------------------------------------------------------------


def fields_of(*groups: str) -> dict[str, object]:
    """Return the type of every field of the options of attnsvm itself."""
    found: dict[str, set[str]] = {}
    for group in groups:
        for schema in GROUPS[group].own.values():
            for f in dataclasses.fields(schema):
                found.setdefault(f.name, set()).add(str(f.type))
    found.pop("_target_")
    assert all(len(types) == 1 for types in found.values())
    return {name: types.pop() for name, types in found.items()}


@pytest.mark.parametrize(
    ("types", "groups", "arguments"),
    [
        (OptimizerOptions, ("optimizer",), {"init"}),
        (SampleOptions, ("data", "head", "model"), set()),
    ],
)
def test_the_types_are_those_of_the_schema(types, groups, arguments):
    typed = {
        name: "list[float]" if "Sequence" in str(kind) else getattr(kind, "__name__", str(kind))
        for name, kind in get_type_hints(types).items()
    }
    schema = fields_of(*groups)
    assert typed == {name: kind for name, kind in schema.items() if name not in arguments}


def mypy(code: str, tmp_path: Path) -> str:
    # A name of its own: mypy takes another file of that size and second for the same.
    mine = tmp_path / f"mine_{len(list(tmp_path.iterdir()))}.py"
    mine.write_text(code)
    checked = ["--cache-dir", str(ROOT / ".mypy_cache/names"), str(mine)]
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--follow-imports=silent", *checked],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout


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
    assert "Success" in mypy(CALLS.format(**right), tmp_path)
    wrong = {"n": "nn", "steps": "stpes", "saturation": "saturaton", "norm": "nrom"}
    told = mypy(CALLS.format(**wrong), tmp_path)
    assert 'Unexpected keyword argument "nn" for "sample"' in told
    assert 'Unexpected keyword argument "stpes" for "train"' in told
    assert 'Unexpected keyword argument "saturaton"' in told
    assert 'No overload variant of "solve_svm"' in told
    types = CALLS.format(**right).replace("T=3", 'T="three"')
    assert 'Argument "T" to "sample" has incompatible type "str"' in mypy(types, tmp_path)


# --- on the command line --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("word", "told"),
    [
        ("optimizer.stpes=3", "optimizer.stpes: unknown field; did you mean steps? must be init |"),
        ("+head.trian=true", "head.trian: unknown field; did you mean train? must be train"),
        ("head.lam=1", "head.lam: unknown field; head=quadratic has it; must be train"),
        ("optimizer.radii=[1]", "optimizer=regularization_path has it; must be init | "),
        ("probe=[rnk]", "probe=rnk: did you mean rank? must be rank | entropy | "),
        ("extensions=[my_own]", "can be imported here; PYTHONPATH=FOLDER in front of the command"),
        ("trails=3", "trails: unknown field; did you mean trials?"),
        ("data=spehre", "did you mean sphere?\nAvailable options in 'data':\n"),
        ("hydra/launcher=jolib", "did you mean joblib?\nAvailable options in 'hydra/launcher':\n"),
    ],
)
def test_a_misspelt_word_is_told_with_the_right_one(word, told, tmp_path):
    done = command(word, cwd=tmp_path)
    assert done.returncode == 2
    assert told in done.stderr
