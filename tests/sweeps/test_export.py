"""An export is read and proved without attnsvm, and its checker believes no number."""

import json
import re
import subprocess
import sys
from fractions import Fraction
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from attnsvm.config import ConfigError
from attnsvm.sweeps import export as exports
from attnsvm.sweeps.claims import Runs
from attnsvm.sweeps.export import check, export
from attnsvm.verify.command import main as attnsvm_verify
from tests.sweeps.test_claims import tiny_claim
from tests.sweeps.test_report import Reader, stands_alone

RECORDS = Path(__file__).parents[2] / "docs/records"
RUNS = RECORDS / "rank_vs_d"


def exported(word, target):
    """Export what `word` names to a folder, where two claims are on the runs of `RUNS`."""
    claims = [tiny_claim(name=name, runs=(Runs(RUNS.name, ()),)) for name in ("one", "another")]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(exports, "all_claims", lambda: claims)
        patch.setattr(exports, "FOLDER", RECORDS)
        export([word, "--to", str(target)])
    return target


@pytest.fixture(scope="module")
def folder(tmp_path_factory):  # three solved and three infeasible instances, in two norms
    return exported(str(RUNS), tmp_path_factory.mktemp("export") / "it")


def checked(folder, *files):
    command = [sys.executable, "-I", "-S", str(folder / "check.py"), *map(str, files)]
    return subprocess.run(command, env={}, capture_output=True, text=True, check=False)


def test_the_checker_is_short_and_needs_only_python_and_the_page_stands_alone(folder):
    assert len((folder / "check.py").read_text().splitlines()) <= 80
    done = checked(folder)
    assert (done.returncode, done.stdout) == (0, "12 of 12 SVMs proved\n")
    page = stands_alone(folder / "report.html")
    links = {to for name, to in page.attributes if name in ("src", "href") and to[:5] != "data:"}
    assert {"check.py", "columns.txt", "rank_vs_d.zip", "tables/svms.csv"} <= links
    assert all((folder / link).is_file() for link in links)
    assert "attnsvm-verify rank_vs_d.zip" in page.text


@pytest.mark.parametrize("seed", range(5))
def test_bounds_of_norms_hold_whatever_the_factors(seed):
    A, *factors = np.random.default_rng(seed).normal(size=(4, 4, 4))
    parts = zip("AKQL", (A, *(matrix / 10.0**seed for matrix in factors)), strict=True)
    svm = {name: [[Fraction(x) for x in row] for row in matrix] for name, matrix in parts}
    for norm, order in (("nuclear", "nuc"), ("spectral", 2), ("frobenius", "fro")):
        assert check.NORMS[norm][0](svm["A"], svm) >= np.linalg.norm(A, order) * (1 - 1e-14)


CHANGES = {  # of a nuclear SVM whose row 0 has token t, query i, and the largest multiplier
    **{place: lambda x: x + 1e-3 for place in ("W 0 0", "K 0 0", "L 0 0", "X {t} 0", "Z {i} 0")},
    **{place: lambda rows: rows[:-1] for place in ("W 0", "Q 0")},
    "rows": lambda rows: rows[1:],
    "rows 0 3": lambda a: -a,
    "rows 0 2": lambda i: i + 1,
    "rows 0 1": lambda _: 10**6,
    "lower": lambda x: x * (1 + 3e-9),
    "upper": lambda x: x * (1 - 3e-9),
    "norm": lambda _: "frobenius",
    "status": lambda _: "infeasible",
}


def edited(svm, place, change):
    svm = inside = json.loads(json.dumps(svm))
    _, t, i, _ = svm["rows"][0]
    *keys, last = [int(w) if w.isdigit() else w for w in place.format(t=t, i=i).split()]
    for key in keys:
        inside = inside[key]
    inside[last] = change(inside[last])
    return json.dumps(svm)


def test_no_forged_number_is_believed_and_each_file_is_named(folder, tmp_path):
    kinds = ("nuclear_solved", "frobenius_infeasible")
    files = [next(folder.glob(f"instances/*_{kind}.json")) for kind in kinds]
    solved, infeasible = (json.loads(file.read_text()) for file in files)
    for svm in (solved, infeasible):
        svm["rows"].sort(key=lambda row: -row[3])
    texts = [json.dumps(solved), json.dumps(infeasible), "", "{}"]
    texts += [edited(solved, place, change) for place, change in CHANGES.items()]
    texts += [edited(solved, place, lambda _: float("nan")) for place in [*CHANGES][:-1]]
    texts += [edited(infeasible, at, lambda x: -x) for at in ("rows 0 3", "X {t} 0", "Z {i} 0")]
    texts += [edited(infeasible, "rows", lambda rows: [[*row[:3], 0.0] for row in rows])]
    files = [tmp_path / f"{k}.json" for k in range(len(texts))]
    for file, text in zip(files, texts, strict=True):
        file.write_text(text)
    done = checked(folder, *files)
    assert (done.returncode, done.stdout) == (1, f"2 of {len(files)} SVMs proved\n")
    assert [str(file) in done.stderr for file in files] == [False] * 2 + [True] * (len(files) - 2)


@pytest.mark.full
def test_a_sample_and_what_is_not_proved_are_said(tmp_path):
    folder = tmp_path / "it"
    export([str(RECORDS / "optimizer_geometry"), "--to", str(folder), "--instances", "2"])
    svms = pd.read_csv(folder / "tables/svms.csv")
    known = svms["svm"].isin([*check.NORMS])
    assert (svms["run"].nunique(), set(known)) == (2, {True, False})
    assert (svms["file"].notna() == known).all()
    assert checked(folder).stdout == f"{known.sum()} of {known.sum()} SVMs proved\n"
    assert "the SVMs of 2 instances" in Reader((folder / "report.html").read_text()).text


def test_a_claim_is_exported_with_its_verdict_and_runs_with_those_of_all_claims(folder, tmp_path):
    for place, count in ((exported("one", tmp_path / "it"), 1), (folder, 2)):
        page = Reader((place / "report.html").read_text()).text
        assert len(re.findall("fails on 3 of 6", page)) == count
    assert attnsvm_verify([str(folder / "rank_vs_d.zip")]) == 0


def test_what_cannot_be_exported_is_refused(tmp_path):
    (tmp_path / "file").touch()
    refused = {
        "nothing": "nothing: no such folder; must have run.json, sweep.json",
        f"{tmp_path}": f"{tmp_path}: holds no sweep and no record",
        f"{RUNS} --to {tmp_path}": f"--to={tmp_path}: must be a new or an empty folder",
        f"{RUNS} --instances 0": "--instances=0: must be a whole number >= 1",
    }
    for words, message in refused.items():
        with pytest.raises((ConfigError, FileNotFoundError), match=re.escape(message)):
            export(words.split())
