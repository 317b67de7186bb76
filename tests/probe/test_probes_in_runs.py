"""Probes in runs: columns, history, metadata, refusals, and records that say otherwise."""

import re

import numpy as np
import pyarrow.parquet as pq
import pytest

from attnsvm import experiment
from attnsvm.config import ConfigError
from attnsvm.config.identity import signature
from attnsvm.record.stored import StoredRun
from tests.config.test_config import composed
from tests.quick import refusals
from tests.verify.forging import refusal
from tests.verify.kinds import BASE, written

ALL = "probe=[rank,entropy,margin_gap,distance,balance]"


@pytest.fixture
def M(tmp_path):
    np.save(tmp_path / "M.npy", np.eye(3))
    return f"probe.distance.path={tmp_path / 'M.npy'}"


@pytest.fixture
def folder(tmp_path, M):
    config = composed(BASE, ALL, M, "parameterization=kq")
    return written(tmp_path, config, experiment.run(config))


COLUMNS = [
    "balance_gap",
    "distance_direction",
    "entropy_max",
    "entropy_mean",
    "margin_gap_frobenius",
    "margin_gap_nuclear",
    "rank_effective",
    "rank_stable",
]


def test_the_numbers_are_columns_of_trials_and_quantities_of_the_history(folder):
    run = StoredRun(folder)
    stored = run.record()
    assert list(stored.trials)[-len(COLUMNS) :] == COLUMNS == sorted(run.content["probes"])
    curves = stored.history.pivot_table("value", "seed", ["quantity", "step"])
    for name in COLUMNS:
        assert list(curves[name]) == [0, 100, 200]
        last = curves[name][200].loc[stored.trials["seed"]]
        assert last.tolist() == stored.trials[name].tolist()
    for norm in ("frobenius", "nuclear"):
        assert (stored.trials[f"margin_gap_{norm}"] == stored.trials[f"{norm}_margin_gap"]).all()
    meta = pq.read_schema(folder / "trials.parquet").field("entropy_max").metadata
    assert meta[b"unit"] == b"nat"
    assert b"entropy" in meta[b"meaning"]
    assert refusal(folder) == ""


def test_probes_and_the_content_of_files_are_part_of_the_identity(tmp_path, M):
    np.savez(tmp_path / "W.npz", W0=np.eye(3))
    start = f"optimizer.init=file optimizer.init_path={tmp_path / 'W.npz'}"
    ranks = "probe=[rank]", "probe=[rank] probe.rank.threshold=0.1"
    cases = f"probe=[distance] {M}", start, *ranks, ""
    first = {signature(composed(BASE, case)) for case in cases}
    np.save(tmp_path / "M.npy", np.eye(3) + 1)
    np.savez(tmp_path / "W.npz", W0=np.eye(3) + 1)
    changed = {signature(composed(BASE, case)) for case in cases[:2]}
    assert len(first | changed) == 7


@pytest.mark.parametrize(("typed", "message"), refusals("probe"))
def test_what_cannot_be_measured_is_refused_before_the_run(typed, message):
    with pytest.raises(ConfigError, match=re.escape(message)):
        experiment.run(composed(BASE, typed))
