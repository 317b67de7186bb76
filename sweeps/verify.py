"""`attnsvm-verify DIR`: prove every stored SVM again, from its tokens, weights and multipliers."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from attnsvm.record import RunRecord, read
from attnsvm.verify import Proof, Record, verify
from sweeps.aggregate import load

NORMS = ("frobenius", "nuclear")
TABLED = {
    "status": "status",
    "objective": "objective",
    "lower_bound": "lower_bound",
    "gap": "duality_gap",
    "min_margin": "min_margin",
}
"""Column of `trials.parquet`, without its norm -> field of `solutions.npz`."""


def stored_svms(record: RunRecord, gap: float) -> Iterator[tuple[str, int, Record]]:
    """Yield (name of the SVM, seed, record to prove) for everything in `solutions.npz`."""
    arrays = record.solutions
    multi = "attended" in arrays
    for norm in NORMS:
        if f"{norm}_W" in arrays:
            yield from _instances(arrays, norm, norm, gap, attended=multi, finite=False)
        if f"{norm}_fin_W" in arrays:
            yield from _instances(arrays, f"{norm}_fin", norm, gap, attended=True, finite=True)
    if "one_token_W" in arrays:
        yield from _instances(arrays, "one_token", "frobenius", gap, attended=False, finite=False)


def _instances(
    arrays: Mapping[str, Any], name: str, norm: str, gap: float, attended: bool, finite: bool
) -> Iterator[tuple[str, int, Record]]:
    selected = arrays["attended"].argmax(-1) if attended else arrays["selected"]
    for k, seed in enumerate(arrays["seeds"]):
        yield (
            name,
            int(seed),
            Record(
                X=arrays["X"][k],
                Z=arrays["Z"][k],
                mask=arrays["mask"][k],
                selected=selected[k],
                norm=norm,
                status=str(arrays[f"{name}_status"][k]),
                W=arrays[f"{name}_W"][k],
                multipliers=arrays[f"{name}_multipliers"][k],
                ray=arrays[f"{name}_ray"][k],
                objective=float(arrays[f"{name}_objective"][k]),
                lower_bound=float(arrays[f"{name}_lower_bound"][k]),
                duality_gap=float(arrays[f"{name}_duality_gap"][k]),
                min_margin=float(arrays[f"{name}_min_margin"][k]),
                rank=int(arrays[f"{name}_rank"][k]),
                gap=gap,
                attended=arrays["attended"][k] if attended else None,
                log_softmax=arrays["log_softmax"][k] if finite else None,
            ),
        )


def tabled_otherwise(record: RunRecord) -> list[tuple[str, int, Proof]]:
    """Return a refusal for every number in the table that is not the proved one."""
    refusals = []
    if "seeds" not in record.solutions:
        return []
    rows = record.trials.set_index("seed").loc[record.solutions["seeds"]]
    for norm in NORMS:
        for column, field in TABLED.items():
            stored = record.solutions.get(f"{norm}_{field}")
            if stored is None:
                continue
            tabled = rows[f"{norm}_{column}"].to_numpy()
            same = tabled == stored
            if stored.dtype.kind == "f":
                same |= np.isnan(tabled) & np.isnan(stored)
            refusals += [
                (norm, int(seed), Proof(False, f"table says {column} = {value}"))
                for seed, value in zip(rows.index[~same], tabled[~same], strict=True)
            ]
    return refusals


def proofs(folder: Path) -> pd.DataFrame:
    """Return svm, seed, status, proved, reason of everything stored in a run's folder."""
    record, run = read(folder)
    gap = run["config"]["svm"]["gap"]
    found = [
        (name, seed, stored.status, *vars(verify(stored)).values())
        for name, seed, stored in stored_svms(record, gap)
    ]
    found += [(name, seed, "", p.proved, p.reason) for name, seed, p in tabled_otherwise(record)]
    return pd.DataFrame(found, columns=["svm", "seed", "status", "proved", "reason"])


def main(argv: list[str] | None = None) -> int:
    """Run `attnsvm-verify`; 0 if everything stored is proved, 1 if not, 2 without a record."""
    parser = argparse.ArgumentParser(prog="attnsvm-verify", description=__doc__)
    parser.add_argument("directory", type=Path, help="folder of a sweep or of a run")
    directory = parser.parse_args(argv).directory
    try:
        frames = load(directory)
    except FileNotFoundError as error:
        print(f"attnsvm-verify: {error}", file=sys.stderr)  # noqa: T201
        return 2
    refused = 0
    for _, run in frames.runs.iterrows():
        if run["state"] != "done":
            print(f"{run['run']}: {run['state']}: {run['reason']}")  # noqa: T201
            refused += 1
            continue
        folder = directory if (directory / "run.json").exists() else directory / run["run"]
        refused += _tell(str(run["run"]), proofs(folder))
    return int(refused > 0)


def _tell(name: str, table: pd.DataFrame) -> int:
    """Print what is proved of a run and return how many of its SVMs are not."""
    proved = table[table["proved"].astype(bool)]["status"].value_counts()
    words = [f"{count} {status} proved" for status, count in proved.items()]
    refused = table[~table["proved"].astype(bool)]
    print(f"{name}: {', '.join(words) or 'nothing stored'}, {len(refused)} refused")  # noqa: T201
    for _, row in refused.iterrows():
        print(f"  {row['svm']} seed {row['seed']} {row['status']}: {row['reason']}")  # noqa: T201
    return len(refused)
