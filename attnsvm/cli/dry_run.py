"""`dry_run=true`: list the runs and estimate their time from measured costs; nothing is run."""

import logging
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from attnsvm.config import RunConfig
from attnsvm.config.identity import option_names
from attnsvm.config.norm import NAMED
from attnsvm.config.words import rows
from attnsvm.record import KEPT, duration, names_on_record, run_state

log = logging.getLogger(__name__)

MODELS = {"cross_attention": "", "self_attention": "", "linear": "linear "}
"""Models whose costs are measured -> the begin of the names of their parts in the table."""

PUBLISHED = "published"
"""The begin of the names of the parts that the published method takes."""


def log_plan(
    folder: Path, cells: Mapping[str, Sequence[str]], configs: Mapping[str, RunConfig]
) -> None:
    """Log every run in `folder` with its state, and the time that the pending ones need.

    `cells` and `configs` are the overrides and the config of each run, by the name of its folder.
    """
    names = names_on_record(folder, configs)
    states = {name: run_state(folder / names[name]).state for name in cells}
    for name, overrides in cells.items():
        log.info("%-11s %s  %s", states[name], names[name], " ".join(overrides))
    pending = [configs[name] for name, state in states.items() if state not in KEPT]
    log.info("%d runs, %d of them pending", len(cells), len(pending))
    needed: defaultdict[str, float] = defaultdict(float)  # seconds of each part
    missing: Counter[str] = Counter()
    for config in pending:
        try:
            for part, spent in seconds(config).items():
                needed[part] += spent
        except UnmeasuredError as error:
            missing[str(error)] += 1
    if needed:
        of = f" for {len(pending) - missing.total()} of them" if missing else ""
        time = duration(sum(needed.values()))
        log.info("about %s in one process%s, once kernels are compiled", time, of)
    if slow := sum(s for part, s in needed.items() if part.startswith(PUBLISHED)):
        words = "%s of it for the published method: svm.published=false is without"
        log.info(words, duration(slow))
    for part, runs in missing.most_common():
        log.info("no estimate for %d runs: the cost of %s was not measured", runs, part)
    if probes := sorted({name for config in pending for name in config.probe}):
        log.info("besides: probe=[%s], whose cost was not measured", ",".join(probes))


class UnmeasuredError(LookupError):
    """The cost of a part of a run is not in the table."""


def floats(config: RunConfig) -> int:
    """Return the number of floats of an instance's tokens; 0 if only the data file gives it."""
    n, T, d = (int(getattr(config.data, key, 0)) for key in "nTd")
    return n * (T or int(getattr(config.data, "K", 0))) * d


def seconds(config: RunConfig) -> dict[str, float]:
    """Return the estimated seconds of each part of a run, probes apart.

    The cost of a part is a power law in its size, through the two sizes that were measured around
    it, or through the last two beyond them. UnmeasuredError names what is not in the table.
    """
    names, seconds = option_names(config), {}
    if names["model"] not in MODELS:
        raise UnmeasuredError(f"model={names['model']}")
    if config.selection.until_accepted:
        raise UnmeasuredError("selection.until_accepted=True")
    if not floats(config):
        raise UnmeasuredError(f"data={names['data']}")
    for part, times in parts(config).items():
        if part not in costs():
            raise UnmeasuredError(part)
        sizes, costs_of_sizes = np.log(costs()[part]).T
        at = np.log(size(config, part))
        k = min(max(int(np.searchsorted(sizes, at)), 1), len(sizes) - 1)
        line = np.polyfit(sizes[k - 1 : k + 1], costs_of_sizes[k - 1 : k + 1], 1)
        seconds[part] = config.trials * times * float(np.exp(np.polyval(line, at)))
    return seconds


def size(config: RunConfig, part: str) -> int:
    """Return the size of an instance on which the cost of a part hangs.

    It is the number of floats of its tokens. For the published method it is n (T - 1) d^4, the work
    of A^T A for a dense matrix A with a row of d^2 numbers for each constraint.
    """
    numbers = floats(config)
    if not part.startswith(PUBLISHED):
        return numbers
    data: Any = config.data
    n, d = int(data.n), int(data.d)
    return max(numbers - n * d, d) * d**3


def parts(config: RunConfig) -> dict[str, int]:
    """Return the parts of a run, as the table names them, and how often an instance has each."""
    names, optimizer = option_names(config), vars(config.optimizer)
    counts: dict[str, int] = {}
    if config.selection.tokens != "optimal":
        words = [names["parameterization"], names["optimizer"], _kind(optimizer.get("norm", ""))]
        counts[MODELS[names["model"]] + " ".join(words).strip()] = optimizer.get("steps", 1)
    counts |= {f"svm {_kind(norm)}": 1 for norm in config.svm.norms}
    if config.svm.published:
        counts |= {f"{PUBLISHED} {norm}": 1 for norm in config.svm.norms}
    return counts


def _kind(norm: str) -> str:
    """Return a norm with a name, or the family of one with another exponent."""
    return norm if norm in ("", *NAMED) or "+" in norm else f"{norm.rstrip('.0123456789')}<p>"


@cache
def costs() -> dict[str, list[tuple[float, float]]]:
    """Return the measured (`size` of an instance, seconds) of every part, in growing size.

    A part is a step of training, or the SVM in a norm. `python -m benchmarks.costs` measures them.
    """
    costs: dict[str, list[tuple[float, float]]] = {}
    for row in rows(Path(__file__).with_name("costs.csv")):
        costs.setdefault(row["part"], []).append((float(row["size"]), float(row["seconds"])))
    return costs
