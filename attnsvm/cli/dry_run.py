"""`dry_run=true`: list the runs and estimate their time from measured costs; nothing is run."""

import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

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
    names, pending = names_on_record(folder, configs), []
    for name, overrides in cells.items():
        state = run_state(folder / names[name]).state
        log.info("%-11s %s  %s", state, names[name], " ".join(overrides))
        pending += [configs[name]] if state not in KEPT else []
    log.info("%d runs, %d of them pending", len(cells), len(pending))
    needed: dict[str, float] = {}  # seconds of each part
    missing: Counter[str] = Counter()
    for config in pending:
        try:
            for part, spent in seconds(config).items():
                needed[part] = needed.get(part, 0) + spent
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


def seconds(config: RunConfig) -> dict[str, float]:
    """Return the estimated seconds of each part of a run, probes apart.

    The cost of a part is a power law in its size, through the two sizes that were measured around
    it, or through the last two beyond them. UnmeasuredError names what is not in the table.
    """
    from scipy.interpolate import interp1d

    needed = {}
    for part, (times, size) in parts(config).items():
        if part not in costs():
            raise UnmeasuredError(part)
        law = interp1d(*np.log(costs()[part]).T, fill_value="extrapolate")
        needed[part] = config.trials * times * float(np.exp(law(np.log(size))))
    return needed


def parts(config: RunConfig) -> dict[str, tuple[int, int]]:
    """Return the parts of a run by their name in the table: how often, and of which size.

    What the costs do not tell is a part of its own, which the table lacks. The size is the number
    of floats of an instance's tokens. For the published method it is n (T - 1) d^4, the work of
    A^T A for a dense matrix A with a row of d^2 numbers for each constraint.
    """
    names, data, optimizer = option_names(config), config.data, vars(config.optimizer)
    n, T, d = (int(getattr(data, key, 0)) for key in "nTd")
    size = n * (T or int(getattr(data, "K", 0))) * d
    if names["model"] not in MODELS:
        return {f"model={names['model']}": (1, size)}
    if config.selection.until_accepted or not size:  # only the data file gives it
        return {"selection.until_accepted=True" if size else f"data={names['data']}": (1, size)}
    counts = {f"svm {_kind(norm)}": (1, size) for norm in config.svm.norms}
    if config.svm.published:
        work = max(size - n * d, d) * d**3
        counts |= {f"{PUBLISHED} {norm}": (1, work) for norm in config.svm.norms}
    if config.selection.tokens == "optimal":
        return counts
    words = [names["parameterization"], names["optimizer"], _kind(optimizer.get("norm", ""))]
    training = MODELS[names["model"]] + " ".join(words).strip()
    return {training: (optimizer.get("steps", 1), size), **counts}


def _kind(norm: str) -> str:
    """Return a norm with a name, or the family of one with another exponent."""
    return norm if norm in ("", *NAMED) or "+" in norm else f"{norm.rstrip('.0123456789')}<p>"


@cache
def costs() -> dict[str, list[tuple[float, float]]]:
    """Return the measured (size of an instance, seconds) of every part, in growing size.

    A part is a step of training, or the SVM in a norm. `python -m benchmarks.costs` measures them.
    """
    costs: dict[str, list[tuple[float, float]]] = {}
    for row in rows(Path(__file__).with_name("costs.csv")):
        costs.setdefault(row["part"], []).append((float(row["size"]), float(row["seconds"])))
    return costs
