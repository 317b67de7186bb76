"""The folder of a sweep, the link to the last one, and the exit code of a command."""

import os
from pathlib import Path

import pytest

from attnsvm.config.identity import plan_digest
from tests.command import LATEST, SMALL, ran, with_callback
from tests.config.test_config import composed

QUICK = ("optimizer.steps=5", *SMALL[:4])


def swept(*arguments):
    done = ran("-m", *QUICK, *arguments)
    return done.stdout + done.stderr


@pytest.mark.full
def test_each_plan_has_a_folder_of_its_own_and_finds_it_again(tmp_path):
    swept("seed=1,2")
    first = os.readlink(LATEST)
    swept("seed=1,2", "svm.norms=[frobenius]")
    second = os.readlink(LATEST)
    assert first != second
    assert f"2 runs: 2 done in multirun/{first}" in swept("seed=2,1", "device=cpu")
    assert os.readlink(LATEST) == first
    dry = swept("seed=1,2", "svm.norms=[frobenius]", "dry_run=true")
    assert "2 runs, 0 of them pending" in dry
    assert os.readlink(LATEST) == first  # a dry run is no sweep
    assert set(os.listdir(tmp_path / "multirun")) == {first, second, "latest"}
    swept("seed=1,2", "hydra.sweep.dir=elsewhere/mine")
    assert os.readlink(LATEST) == "../elsewhere/mine"


def test_the_digest_of_a_plan_is_that_of_its_cells(tmp_path):
    first, other = composed(*QUICK, "seed=1"), composed(*QUICK, "seed=2")
    file = composed("data=file", f"data.path={tmp_path}/there.npz")
    assert plan_digest([first, other]) == plan_digest([other, first, first])
    assert plan_digest([first]) == plan_digest([composed(*QUICK, "seed=1", "dry_run=true")])
    assert len({plan_digest(cells) for cells in ([first], [other], [first, other], [file])}) == 4
    before = plan_digest([file])
    (tmp_path / "there.npz").write_bytes(b"something")  # a file that appears does not move a sweep
    assert plan_digest([file]) == before


@pytest.mark.full
def test_the_exit_code_is_that_of_the_runs_of_this_command():
    """Though another command removes its records meanwhile."""
    folder = "os.path.dirname(config.hydra.runtime.output_dir)"
    mine = with_callback("import os, shutil", f"if config.seed == 2: shutil.rmtree({folder})")
    done = ran("-m", *QUICK, "seed=1,2", mine, path=Path(), code=1)
    assert "2 runs: 2 missing" in done.stderr
    assert "Traceback" not in done.stderr
