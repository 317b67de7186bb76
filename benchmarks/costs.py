"""The costs by which `dry_run=true` estimates: written to `attnsvm/cli/costs.csv`.

A cost is the seconds of an instance for a step of training, or for its SVM in a norm, of a batch on
one process, of one thread, whose kernels are compiled.
"""

import csv
from collections.abc import Iterator
from pathlib import Path

import torch

from attnsvm import experiment
from attnsvm.cli import dry_run
from attnsvm.config import RunConfig
from attnsvm.config.compose import composed

SHAPES = ((3, 4, 4), (6, 8, 10), (8, 16, 32))
PUBLISHED = (*SHAPES[:2], (7, 9, 16), (15, 5, 20), (7, 9, 32), (7, 9, 64))
CLASSES = ((10, 3, 5), (50, 4, 10))
NORMS = ("frobenius", "nuclear", "spectral", "l1", "max", "l1.75", "schatten1.5")
OF_W = ("polyak", "safe_gd", "mirror_descent")
OPTIMIZERS = (
    *("normalized_gd", "gd", "momentum", "adam", "muon", "sign_gd"),
    *OF_W,
    *(f"steepest optimizer.norm={norm}" for norm in NORMS),
)
TRIALS, TRAINED, REPEATS, STEPS = 100, 24, 3, 2000  # of 200 the end would be the larger part


def main() -> None:
    """Measure and write all rows."""
    torch.set_num_threads(1)
    rows = []
    for words, stage in _runs():
        rows.append(_row(composed(words.split()), stage))
        print(*rows[-1], flush=True)
    with Path(dry_run.__file__).with_name("costs.csv").open("w", newline="") as stream:
        table = csv.writer(stream, lineterminator="\n")
        table.writerows([("part", "size", "seconds"), *sorted(rows)])


def _runs() -> Iterator[tuple[str, str]]:
    """Yield the words of runs of one part each, and the stage whose time is its cost."""
    for n, T, d in SHAPES:
        shape = f"data.n={n} data.T={T} data.d={d}"
        for norm in NORMS:
            yield f"{shape} trials={TRIALS} selection=optimal svm.norms=[{norm}]", "svm"
        for optimizer in OPTIMIZERS:
            for rule in ("w", "kq"):
                if rule == "w" or optimizer not in OF_W:
                    yield f"{shape} {_training(rule, optimizer)}", "train"
    for n, T, d in PUBLISHED:
        shape = f"data.n={n} data.T={T} data.d={d}"
        for norm in ("frobenius", "nuclear"):
            trials = 5 if d < 64 else 1  # half a minute each
            words = f"{shape} trials={trials} selection=optimal svm=published svm.norms=[{norm}]"
            yield words, "published"
    for n, K, d in CLASSES:
        shape = f"data=classes model=linear loss=cross_entropy data.n={n} data.K={K} data.d={d}"
        for optimizer in OPTIMIZERS:
            if optimizer not in ("polyak", "safe_gd"):
                yield f"{shape} {_training('w', optimizer)}", "train"


def _training(rule: str, optimizer: str) -> str:
    steps = f"optimizer.steps={STEPS} trials={TRAINED} svm.norms=[frobenius]"
    return f"parameterization={rule} optimizer={optimizer} {steps}"


def _row(config: RunConfig, stage: str) -> tuple[str, int, str]:
    """Return part, size of an instance and seconds of a run's stage, the best of REPEATS."""
    parts = dry_run.parts(config)
    part = next(name for name in reversed(parts) if stage != "train" or not name.startswith("svm"))
    seconds = min(experiment.run(config).timings[stage] for _ in range(REPEATS))
    times, size = parts[part]
    return part, size, f"{seconds / config.trials / times:.3g}"


if __name__ == "__main__":
    main()
