"""`attnsvm-verify DIR`: prove every stored SVM again, from its tokens, weights and multipliers."""

from __future__ import annotations

import argparse
import sys
import zipfile
import zlib
from pathlib import Path

import pandas as pd

from attnsvm.record import RUN_FILE, UNREADABLE, one_line, states
from attnsvm.verify.stored import opened, svms_in, tabled_otherwise
from attnsvm.verify.svm import verify


def proofs(folder: Path) -> pd.DataFrame:
    """Return svm, seed, status, proved, reason of every SVM stored in a run's folder."""
    with opened(folder) as (record, run):
        svm = run["config"]["svm"]
        found = [
            (name, seed, stored.status, *vars(verify(stored)).values())
            for name, seed, stored in svms_in(record, svm["gap"], svm["rank_tolerance"])
        ]
        found += [(name, seed, "", *vars(p).values()) for name, seed, p in tabled_otherwise(record)]
    return pd.DataFrame(found, columns=["svm", "seed", "status", "proved", "reason"])


def main(argv: list[str] | None = None) -> int:
    """Run `attnsvm-verify`; 0 if everything stored is proved, 1 if not, 2 without a record."""
    parser = argparse.ArgumentParser(prog="attnsvm-verify", description=__doc__)
    parser.add_argument("directory", type=Path, help="folder of a sweep or of a run")
    directory = parser.parse_args(argv).directory
    try:
        found = states(directory)
    except FileNotFoundError as error:
        print(f"attnsvm-verify: {one_line(error)}", file=sys.stderr)  # noqa: T201
        return 2
    refused = 0
    for name, run in found.items():
        if run.state != "done":
            _print(f"{name}: {run.state}: {run.reason}")
            refused += 1
            continue
        folder = directory if (directory / RUN_FILE).exists() else directory / name
        try:
            refused += _tell(name, proofs(folder))
        except (*UNREADABLE, zipfile.BadZipFile, zlib.error) as error:
            _print(f"{name}: corrupt: {type(error).__name__}: {error}")
            refused += 1
    return int(refused > 0)


def _print(line: str) -> None:
    print(one_line(line))  # noqa: T201


def _tell(name: str, table: pd.DataFrame) -> int:
    """Print what is proved of a run and return how many of its SVMs are not proved."""
    proved = table[table["proved"].astype(bool)]["status"].value_counts()
    words = [f"{count} {status} proved" for status, count in proved.items()]
    refused = table[~table["proved"].astype(bool)]
    _print(f"{name}: {', '.join(words) or 'nothing stored'}, {len(refused)} refused")
    for _, row in refused.iterrows():
        _print(f"  {row['svm']} seed {row['seed']} {row['status']}: {row['reason']}")
    return len(refused)
