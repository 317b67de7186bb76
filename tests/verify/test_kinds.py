"""A genuine record of each kind of run is proved, and reproduced on every instance.

`tests/sweeps/test_records.py` proves those of kinds that the records in docs have.
"""

import os
from collections import Counter

import numpy as np
import pytest

from attnsvm import experiment
from attnsvm.config.identity import result_fields
from attnsvm.config.probe import described_quantities
from attnsvm.record.columns import DECLARED, QUANTITIES, RUN_COLUMNS, TRIAL_COLUMNS, further_columns
from attnsvm.verify.run import RunProof, prove
from tests.command import ran
from tests.config.test_config import composed
from tests.processors import SETTINGS
from tests.quick import quick
from tests.verify.kinds import KINDS, recorded, written


def check_values(config, record):
    """Every column and quantity is declared, and its values are those that it may have."""
    further = further_columns(result_fields(config), described_quantities(config.probe))
    columns = [*TRIAL_COLUMNS, *further]
    assert list(record.trials) == [column.name for column in columns]
    of_norms = (*DECLARED["multi"], *DECLARED["norm"])
    columns += [column.of(norm) for norm in config.svm.norms for column in of_norms]
    allowed = {column.name: column.allowed for column in (*columns, *QUANTITIES)}
    curves = record.history.groupby("quantity")["value"]
    for name, cells in (*record.trials.items(), *curves):
        values = {*cells.dropna().tolist()} - {"", np.inf, -np.inf}
        assert allowed[name] is None or all(map(allowed[name].holds, values)), name
    assert set(record.timings) <= {column.name.removesuffix("_s") for column in RUN_COLUMNS}


@pytest.mark.parametrize("name", quick(*KINDS, count=7))
def test_every_kind_of_run_passes(name, tmp_path):
    config, record = recorded(name)
    check_values(config, record)
    svms = [array for key, array in record.solutions.items() if key.endswith("_status")]
    proved = Counter(str(status) for array in svms for status in array)
    instances = record.trials["seed"].nunique()
    proof = prove(written(tmp_path, config, record), instances)
    assert proof == RunProof(instances, proved, reproduced=instances)


ANOTHER = {"MKL_CBWR": "COMPATIBLE"} | SETTINGS["numba for any processor"]
OTHER_DRAWS = {"ATEN_CPU_CAPABILITY": "default"}


@pytest.mark.full
@pytest.mark.parametrize(
    ("names", "environment"),
    [
        (
            ("kq", "rmsprop", "quadratic_zigzag", "trained_head", "steepest", "network", "adam"),
            ANOTHER,
        ),
        (("top", "aligned_relu", "digits", "optimal"), OTHER_DRAWS),
    ],
)
def test_records_of_another_processor_are_not_refused(names, environment, tmp_path):
    """Draws have other last bits without vector instructions; the images of digits are no draws."""
    for name in names:
        written(tmp_path, *recorded(name, "trials=2"))
    env = os.environ | environment
    done = ran(str(tmp_path), "--all", cwd=tmp_path, command="attnsvm-verify", env=env)
    assert done.stdout.endswith(" 0 differ\n")


@pytest.mark.parametrize(
    ("model", "place"),
    [
        ("sequence", ""),
        ("cross_attention", "run"),
        pytest.param("cross_attention", "sweep", marks=pytest.mark.full),
    ],
)
def test_a_data_file_is_read_again_if_it_is_here_and_the_same(model, place, tmp_path):
    """With a mask and labels."""
    normal, mask = np.random.default_rng(0).normal, np.ones((3, 3, 4), bool)
    mask[1, :, 3] = mask[2, 0, 1:] = False
    X, Z, v = normal(size=(3, 3, 4, 3)), normal(size=(3, 3, 3)), normal(size=(3, 3))
    np.savez(tmp_path / "tokens.npz", X=X, Z=Z, Y=np.sign(v), mask=mask, v=v)
    words = f"data=file data.path={tmp_path / 'tokens.npz'} model={model} optimizer.steps=200"
    config = composed(words, "seed=5")
    folder = written(tmp_path / "sweep", config, experiment.run(config))
    folder_of_file = {"": tmp_path, "run": folder, "sweep": folder.parent}[place]
    path = (tmp_path / "tokens.npz").rename(folder_of_file / "tokens.npz")
    proof = prove(folder)
    assert (proof.reproduced, proof.differences) == (3, [])
    path.write_bytes(b"other content")
    ((_, reason),) = prove(folder).differences
    assert "signature: is not that of the config and the files" in reason
    path.unlink()  # nothing tells what it held
    proof = prove(folder)
    assert (proof.reproduced, proof.differences) == (0, [])
    assert "tokens.npz is not here" in proof.left_out
