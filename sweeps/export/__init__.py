"""`attnsvm export RUN`: a record that a reader, a reviewer or a logbook takes without attnsvm."""

import argparse
import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from attnsvm.cli.columns import columns_text
from attnsvm.config import ConfigError
from attnsvm.display.pace import each
from attnsvm.record.archive import pack
from attnsvm.record.columns import key_columns

from ..aggregate import load
from ..claims import all_claims
from ..loaded import LoadedSweep
from ..report import write_report
from ..statistics import counts
from ..verdicts import verdict
from ..verdicts.page import FOLDER
from . import check

COLUMNS = ["run", "seed", "layer", "attention_head", "svm", "status", "file"]


def export(words: Sequence[str]) -> str:
    """Write the folder of `attnsvm export WORDS`, and return what to type in it.

    ConfigError or FileNotFoundError: something is in the way, or there is no record.
    """
    parser = argparse.ArgumentParser("attnsvm export", description=__doc__)
    parser.add_argument("run", help="folder of a run or of a sweep, or the name of a claim")
    parser.add_argument("--to", type=Path, metavar="FOLDER", help="default: export/NAME")
    of_n = "of at most N instances the SVMs become files for check.py, default: %(default)s"
    parser.add_argument("--instances", type=int, default=100, metavar="N", help=of_n)
    options = parser.parse_args(words)
    if options.instances < 1:
        raise ConfigError(f"--instances={options.instances}: must be a whole number >= 1")
    target = options.to or Path("export", Path(options.run).resolve().name)
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise ConfigError(f"--to={target}: must be a new or an empty folder")
    known = all_claims()
    named = [claim for claim in known if claim.name == options.run]
    folders = [FOLDER / of.name for claim in named for of in claim.runs] or [Path(options.run)]
    claims = named or [
        claim for claim in known if {FOLDER / of.name for of in claim.runs} == {*folders}
    ]
    sweep = load(*folders)
    if sweep.trials.empty:
        why = " ".join([sweep.not_shown, *sweep.next])
        raise ConfigError(f"{options.run}: must have a finished run. {why}")
    for name in ("tables", "instances"):
        (target / name).mkdir(parents=True)
    shutil.copy(check.__file__, target)
    (target / "columns.txt").write_text(columns_text())
    svms = pd.DataFrame(_svms(sweep, target, options.instances), columns=COLUMNS)
    tables = {"trials": sweep.trials, "history": sweep.history, "runs": sweep.runs, "svms": svms}
    for name, table in tables.items():
        table.to_csv(target / "tables" / f"{name}.csv", index=False)
    page = write_report(
        replace(sweep, directory=target),
        archives=[pack(folder.resolve(), target).name for folder in folders],
        instances=len(svms[COLUMNS[:4]].drop_duplicates()),
        kinds=counts(svms.assign(file=svms["file"] > ""), ["svm", "status", "file"]),
        verdicts=[(claim, verdict(claim, FOLDER)) for claim in claims],
    ).html
    return f"{page}; python {target / 'check.py'} proves {(svms['file'] > '').sum()} SVMs"


def _svms(sweep: LoadedSweep, target: Path, most: int) -> Iterator[dict[str, Any]]:
    """Yield a row for each SVM of at most `most` instances; write a file if `check.py` proves it.

    The instances are evenly spaced, over the runs and in each of them.
    """
    runs = sweep.finished["run"].tolist()
    shares = np.diff(np.arange(len(runs) + 1) * most // max(len(runs), 1))
    for run, share in zip(each("proving run", runs), shares, strict=True):
        arrays = sweep.solutions(run)
        seeds = arrays["seed"] = arrays.pop("seeds", np.empty(0))
        for k in np.linspace(0, len(seeds) - 1, min(len(seeds), share)).astype(int):
            at = {name: array[k] for name, array in arrays.items()}
            for svm in [name.removesuffix("_ray") for name in at if name.endswith("_ray")]:
                row = {"run": run} | {name: int(at[name]) for name in key_columns(at)}
                row |= {"svm": svm, "status": str(at[f"{svm}_status"])}
                file = f"instances/{'_'.join(map(str, row.values())).replace('/', '_')}.json"
                row["file"] = ""
                with suppress(Exception):  # a forged record proves nothing
                    text = json.dumps(row | _content(at, svm))
                    if check.proved(text):
                        (target / file).write_text(text)
                        row["file"] = file
                yield row


def _content(at: Mapping[str, Any], svm: str) -> dict[str, Any]:
    """Return what `check.py` reads of an SVM, nothing if it has no proof of such a one.

    It has none with equalities or offsets, of other norms, and without an optimum. The bounds are
    1e-9 outside of the recorded ones, which hold up to rounding.
    """
    kind = {"solved": "multipliers", "infeasible": "ray"}.get(str(at[f"{svm}_status"]))
    if svm not in check.NORMS or "attended" in at or f"{svm}_offsets" in at or kind is None:
        return {}
    (n, T, d), W = at["X"].shape, at[f"{svm}_W"]
    i, t = np.nonzero(at["mask"] & (np.arange(T) != at["selected"][:, None]))
    s = at["selected"][i]
    a = at[f"{svm}_{kind}"][i * (T - 1) + t - (t > s)]
    rows = [*zip(*(x.tolist() for x in (i * T + s, i * T + t, i, a)), strict=True)]
    content = {"X": at["X"].reshape(n * T, d), "Z": at["Z"]}
    if kind == "multipliers":
        content |= {"W": W, "lower": at[f"{svm}_lower_bound"] * (1 - 1e-9)}
        content["upper"] = at[f"{svm}_objective"] * (1 + 1e-9)
        M = ((at["X"][i, s] - at["X"][i, t]) * a[:, None]).T @ at["Z"][i]
        (U, c, Vt), (_, s, Rt) = map(np.linalg.svd, (M, W) if svm == "spectral" else (W, M))
        K, Q, L = U * np.sqrt(c), Vt.T * np.sqrt(c), Rt.T * np.sqrt((s[0] - s) * (s[0] + s))
        content |= {} if svm == "frobenius" else {"K": K, "Q": Q, "L": L}
    return {"norm": svm, "rows": rows} | {name: x.tolist() for name, x in content.items()}
