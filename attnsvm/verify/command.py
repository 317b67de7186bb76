"""`attnsvm-verify RECORD`: prove its SVMs in exact arithmetic, and run its runs again.

Every SVM is proved from what is stored. Every run is run again from its config and seed, and every
column, curve and array is compared. The exit code is 0 if nothing differs, 1 if something does or a
run has no complete record, and 2 if there is no record. Skipped cells of a sweep count for nothing.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import nullcontext, suppress
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING

from attnsvm import record
from attnsvm.display.pace import each, speaking
from attnsvm.record.archive import unpacked
from attnsvm.record.plan import or_latest

if TYPE_CHECKING:
    from attnsvm.verify.run import RunProof

INSTANCES_EACH = 100
"""Least number of instances for which another process is worth its start, of some seconds."""


@speaking()
def main(argv: list[str] | None = None) -> int:
    """Run `attnsvm-verify`; 0 if nothing differs, 1 if something does, 2 without a record."""
    arguments = _parser().parse_args(argv)
    place = or_latest(arguments.record)
    try:
        with unpacked(place) if os.path.isfile(place) else nullcontext(place) as folder:
            return _verified(folder, arguments.instances)
    except (record.CorruptRecordError, FileNotFoundError) as error:
        print(f"attnsvm-verify: {record.one_line(error)}", file=sys.stderr)  # noqa: T201
        return 2


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="attnsvm-verify", description=__doc__)
    parser.add_argument(
        "record",
        type=Path,
        nargs="?",
        help="folder of a sweep or of a run, or a zip archive of it; by default multirun/latest",
    )
    many = parser.add_mutually_exclusive_group()
    many.add_argument(
        "--instances",
        "--retrain",
        type=_count,
        metavar="K",
        help="run K instances of every run again; by default all, of a run of more than a minute "
        "as many as take a minute",
    )
    many.add_argument(
        "--all",
        action="store_const",
        dest="instances",
        const=sys.maxsize,
        help="run all instances again",
    )
    return parser


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text}: must be a whole number >= 1")
    return int(text)


def _verified(directory: Path, instances: int | None) -> int:
    """Verify the runs in a folder, and print what is found; return the exit code."""
    from attnsvm.verify.run import RunProof  # after `speaking` has set the environment

    states, total, left = record.states(directory), RunProof(0), Counter[str]()
    single = (directory / record.RUN_FILE).exists()
    finished = [name for name, state in states.items() if state.finished]
    folders = [(directory if single else directory / name).resolve() for name in finished]
    sizes = sum(states[name].run["drawn"] for name in finished)
    proofs = _proofs(folders, instances, sizes)
    for name, state in each("run", [*states.items()]):
        proof = next(proofs) if state.finished else f"{state.state}: {state.reason}"
        _print(f"{name}: {proof}")
        if isinstance(proof, str):
            left[state.state] += 1
            continue
        if state.reason:
            _print(f"  {state.state}: {state.reason}; what differs may be due to that")
        for seed, reason in proof.differences:
            _print(f"  differs: {'' if seed is None else f'seed {seed}: '}{reason}")
        total += proof
    skipped, failed = left.pop("skipped", 0), bool(left or total.differences)
    if not failed:
        from attnsvm.sweeps.aggregate import read_sweep
        from attnsvm.sweeps.conclusion import result

        for line in result(read_sweep(directory)):
            _print(line)
    _print(f"in all: {total}{f', {skipped} skipped' if skipped else ''}")
    return int(failed)


def _proofs(folders: Sequence[Path], instances: int | None, size: int) -> Iterator[RunProof | str]:
    """Yield the proof of each run, or what is corrupt: of many runs in a process for each core."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1
    done, prove_run = 0, partial(_proof, instances=instances)
    if (workers := min(cores, len(folders), size // INSTANCES_EACH)) > 1:
        os.environ.setdefault("OMP_NUM_THREADS", "1")  # of these processes, which share the cores
        pool = ProcessPoolExecutor(
            workers,
            get_context("spawn"),  # not forked: torch has threads
            initializer=signal.signal,
            initargs=(signal.SIGINT, signal.SIG_IGN),  # Ctrl-C is for this process
        )
        with suppress(BrokenProcessPool), pool:  # of one without memory: the rest is proved here
            for proof in pool.map(prove_run, folders):
                yield proof
                done += 1
    yield from map(prove_run, folders[done:])


def _proof(folder: Path, instances: int | None) -> RunProof | str:
    """Return the proof of a run, or what is corrupt."""
    from attnsvm.verify.run import prove

    try:
        return prove(folder, instances)
    except Exception as error:  # whatever one record holds, the others are proved
        what = error.state if isinstance(error, record.CorruptRecordError) else "corrupt"
        return f"{what}: {type(error).__name__}: {error}"


def _print(line: str) -> None:
    print(record.one_line(line))  # noqa: T201
