"""The records behind `docs/experiments.md`: proved again, and saying what is claimed of them."""

import dataclasses
import json
import re
from fractions import Fraction
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from attnsvm.record.archive import unpacked
from attnsvm.record.folder import read_record
from attnsvm.sweeps.aggregate import load
from attnsvm.sweeps.claims import Runs, all_claims
from attnsvm.sweeps.verdicts import verdict
from attnsvm.verify import command

DOCS = Path(__file__).parents[2] / "docs"
RECORDS = DOCS / "records"
SHOWN = (
    "rank_vs_d", "correlation_vs_d", "gradient_floor", "ridge_vs_path", "token_count_vs_lambda",
    "pretrained_heads", "depth",
)  # fmt: skip
"""Those whose command is in the text."""

ALL = sorted(path.stem for path in (DOCS.parent / "conf" / "sweep").glob("*.yaml"))
"""Every experiment."""

QUICK = ("rank_vs_d", "correlation_vs_d", "depth", "heads")

SIZE_LIMIT_BYTES = 350_000
"""Of one experiment's records; each table carries the meanings of its columns."""


def trials_of(name: str) -> pd.DataFrame:
    return load(RECORDS / name).trials


def test_there_is_a_small_record_for_every_experiment():
    assert {path.name for path in RECORDS.iterdir()} == {*ALL, "hunt", "joint_exceptions"}
    for name in ALL:
        files = [path for path in (RECORDS / name).rglob("*") if path.is_file()]
        assert sum(path.stat().st_size for path in files) <= SIZE_LIMIT_BYTES


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=() if name in QUICK else pytest.mark.full)
        for name in (*ALL, "joint_exceptions")
    ],
)
def test_every_record_is_proved_again(name, capsys):
    assert command.main([str(RECORDS / name)]) == 0
    out = capsys.readouterr().out
    assert " proved, 0 refused" in out
    table = out[out.index(" instances: ") :].partition("proved: ")[0]
    assert max(map(len, table.splitlines())) <= 100
    if name == "rank_vs_d":  # certified beside published: nothing counts as rank one, noise as 15
        assert re.search(r"\n4 +0/3 +- +- +1, 1, 1 +1, 1, 1\n", table)
        assert re.search(r"\n20 +3/3 +15, 15, 15 +4, 5, 5 +15, 15, 15 +15, 15, 15\n", table)


@pytest.mark.parametrize("name", SHOWN)
def test_the_documentation_gives_the_command_that_made_the_record(name):
    command = json.loads((RECORDS / name / "sweep.json").read_text())["command"]
    asked = [word for word in command if not word.startswith("hydra.sweep.dir=")]
    text = (DOCS / "experiments.md").read_text().replace("\\\n", " ").replace("'", "")
    text = " ".join(text.split())
    assert f"attnsvm {' '.join(asked)} " in text
    assert f"attnsvm-verify docs/records/{name}" in text


def test_what_the_documentation_says_of_ranks_is_on_record():
    trials = trials_of("rank_vs_d")
    large, small = trials[trials["d"] == 20], trials[trials["d"] == 4]
    assert (large["status"] == "ok").all()
    assert (large["published_nuclear_rank"] == 15).all()
    assert list(large.sort_values("seed")["nuclear_rank"]) == [4, 5, 5]
    assert (large["nuclear_rank"] <= large["nuclear_rank_bound"]).all()
    assert (small["status"] == "infeasible").all()
    assert (small["published_nuclear_rank"] == 1).all()


def test_what_it_says_of_the_published_arithmetic_is_on_record():
    """The direct gradient stalls where the exact one goes on; without ridge it does not agree."""
    trials = trials_of("gradient_floor").set_index(["gradient", "seed"])
    direct, exact = trials.loc["direct"], trials.loc["log_domain"]
    assert (direct["training"] == "stalled").all()
    assert (exact["training"] == "saturated").all()
    assert (direct["W_norm"] < 150).all()
    assert (exact["W_norm"] > 900).all()
    ratio = direct["one_minus_corr_frobenius"] / exact["one_minus_corr_frobenius"]
    assert ratio.min() > 50
    trials = trials_of("ridge_vs_path")
    cells = trials.groupby(["gradient", trials["ridge"] > 0])["one_minus_corr_nuclear"]
    worst = cells.agg(["min", "median", "max"])
    assert worst.loc[("direct", True), "max"] < 0.003
    assert worst.loc[("direct", False), "min"] > 0.08
    assert worst.loc[("log_domain", True), "max"] < 0.003
    assert worst.loc[("log_domain", False), "median"] > 0.009


def test_what_it_says_of_published_rejections_is_on_record():
    """Instances are rejected that the published figure does not count; its rule leaves nothing."""
    trials = trials_of("correlation_vs_d")
    for _, drawn in trials.groupby("gradient"):
        assert (drawn["status"] == "ok").sum() == 4
        assert (drawn["status"] == "rejected").sum() >= 5
        assert list(drawn["seed"]) == list(range(1, len(drawn) + 1))  # none left out
    exact = trials[(trials["gradient"] == "log_domain") & (trials["status"] == "ok")]
    flat = exact["flat"].astype(bool)
    assert exact.loc[flat, "one_minus_corr_svmeq"].min() > 0.07
    assert exact.loc[~flat, "one_minus_corr_svmeq"].max() < 2e-4
    trials = trials_of("token_count_vs_lambda")
    assert (trials["status"] == "ok").all()
    assert trials["max_masked_softmax"].between(1e-6, 1e-3, inclusive="neither").all()
    assert (trials["attended_tokens"] > 3).all()


FOUND = RECORDS / "hunt" / "b1_alone.zip"


def test_the_counterexample_is_small_and_proved_anywhere(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert command.main([str(FOUND), "--retrain", "1"]) == 0
    out = capsys.readouterr().out
    assert "2 solved proved, 0 refused, 1 trained again" in out
    assert "the data file" not in out
    assert re.search("It refutes b1_alone .*(\n.*)+ met .*; B.1\n.* convergence = local", out)
    assert FOUND.stat().st_size < 16_000
    claim = next(one for one in all_claims() if one.name == "b1_alone")
    with unpacked(FOUND) as folder:
        found = verdict(dataclasses.replace(claim, runs=(Runs("b1_alone", ()),)), folder.parent)
    assert (found.drawn, found.fails) == (1, 1)
    assert all(count["yes"] == 1 for count in found.hypotheses.values())


def test_the_counterexample_in_whole_numbers():
    """B.1 holds at the optimal tokens, and other ones are locally optimal: exact arithmetic."""
    with unpacked(FOUND) as folder, np.load(folder / "instance.npz") as arrays:
        one = {name: arrays[name][0] for name in arrays.files}
    for array in one.values():
        assert (array == np.round(array)).all()
    X, Z, Y, v = (np.vectorize(Fraction)(one[name].astype(int)) for name in ("X", "Z", "Y", "v"))
    gamma = Y[:, None] * (X @ v)
    optimal = gamma.argmax(1)
    assert (np.sort(gamma, 1)[:, 0] < gamma.max(1)).all()
    D = np.array([x[best] - x[1 - best] for x, best in zip(X, optimal, strict=True)])
    G = (D @ D.T) * (Z @ Z.T)
    det = G[0, 0] * G[1, 1] - G[0, 1] * G[1, 0]
    multipliers = np.array([G[1, 1] - G[0, 1], G[0, 0] - G[1, 0]]) / det
    assert det > 0
    assert (multipliers > 0).all()  # so all margins are 1 at the optimum: B.1
    with unpacked(FOUND) as folder:
        found = read_record(next(folder.glob("*/run.json")).parent)[0]
    selected = found.solutions["selected"][0]
    assert list(selected == optimal) == [True, False]
    E = np.array([x[at] - x[1 - at] for x, at in zip(X, selected, strict=True)])
    W = np.outer(E[0], Z[0]) / ((E[0] @ E[0]) * (Z[0] @ Z[0]))  # one active row: the least norm
    margins = [e @ W @ z for e, z in zip(E, Z, strict=True)]
    assert margins[0] == 1
    assert margins[1] > 1  # the better token of sample 1 is no neighbour: locally optimal
    np.testing.assert_allclose(found.solutions["frobenius_W"][0], W.astype(float), atol=1e-15)
    (row,) = found.trials.to_dict("records")
    assert row["convergence"] == "local"
    assert row["one_minus_corr_frobenius"] < 1e-11


def test_committed_records_hold_no_logs_and_no_paths_of_a_machine():
    files = [path for path in RECORDS.rglob("*") if path.is_file()]
    known = {"sweep.json", "run.json", "trials.parquet", "history.parquet", "solutions.npz"}
    assert {path.name for path in files} == {*known, FOUND.name}
    with unpacked(FOUND) as folder:
        plain = [path for path in (*files, *folder.rglob("*")) if path.suffix == ".json"]
        assert len(plain) > len(ALL)
        for path in plain:
            assert not re.search(r'"/|file:|/(work|tmp|home|root)/', path.read_text()), path
