"""`attnsvm-verify RECORD`: derive every number of a record again, from seed, config and weights."""

import argparse
import os
import signal
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import nullcontext, suppress
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from omegaconf import BooleanNode, FloatNode, OmegaConf
from omegaconf.errors import ValidationError

from attnsvm import record
from attnsvm.config import GROUPS
from attnsvm.display.pace import doing, each, speaking
from attnsvm.record.archive import unpacked
from attnsvm.record.plan import or_latest
from attnsvm.verify.run import RunProof, prove
from attnsvm.verify.trusted import TRAINING

INSTANCES_EACH = 100
"""Least number of instances for which another process is worth its start, of some seconds."""


@speaking()
def main(argv: list[str] | None = None) -> int:
    """Run `attnsvm-verify`; 0 if everything stored is proved, 1 if not, 2 without a record."""
    arguments = _parser().parse_args(argv)
    given = or_latest(arguments.record)
    try:
        with unpacked(given) if os.path.isfile(given) else nullcontext(given) as folder:
            return _verified(folder, arguments.retrain)
    except (record.CorruptRecordError, FileNotFoundError) as error:
        print(f"attnsvm-verify: {record.one_line(error)}", file=sys.stderr)  # noqa: T201
        return 2


def _verified(directory: Path, retrain: int) -> int:
    """Prove the runs in a folder, and print what is found; return the exit code."""
    found, plan = record.states(directory), record.Plan()
    refused, trusted, proved = 0, Counter[str](), []
    if not (single := (directory / record.RUN_FILE).exists()):
        with suppress(record.CorruptRecordError):  # it is printed as the state of the plan
            plan = record.read_plan(directory)
    proofs = _proofs([
        (directory if single else directory / name, run.run, plan.runs.get(name, []), retrain)
        for name, run in found.items() if run.finished
    ])  # fmt: skip
    for name, run in each("run", [*found.items()]):
        proof = next(proofs) if run.finished else f"{run.state}: {run.reason}"
        if isinstance(proof, str):
            _print(f"{name}: {proof}")
            refused += 1
            continue
        _print_proof(name, proof)
        if run.reason:
            _print(f"  {run.state}: {run.reason}; what differs may be due to that")
        refused += len(proof.refusals)
        trusted.update(proof.trusted)
        proved.append(proof)
    if not refused:
        from attnsvm.sweeps.aggregate import load
        from attnsvm.sweeps.conclusion import result

        for line in result(load(directory)):
            _print(line)
    for words in classes(proved):
        _print(words)
    if trusted:
        _print("trusted: " + "; ".join(f"{what} ({runs} runs)" for what, runs in trusted.items()))
    return int(refused > 0)


Task = tuple[Path, Mapping[str, Any], Sequence[str], int]
"""The folder of a run, its `run.json`, its overrides in the plan, and how many to train again."""


def _proofs(tasks: Sequence[Task]) -> Iterator[RunProof | str]:
    """Yield the proof of each run, or what is corrupt: of many runs in a process for each core."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1
    done, instances = 0, sum(run["drawn"] for _, run, *_ in tasks)
    if (workers := min(cores, len(tasks), instances // INSTANCES_EACH)) > 1:
        os.environ.setdefault("OMP_NUM_THREADS", "1")  # of these processes, which share the cores
        with ProcessPoolExecutor(
            workers,
            get_context("spawn"),  # not forked: torch has threads
            initializer=signal.signal,
            initargs=(signal.SIGINT, signal.SIG_IGN),  # Ctrl-C is for this process
        ) as pool:
            try:
                for proof in pool.map(_proof, tasks):
                    yield proof
                    done += 1
            except BrokenProcessPool:  # such as one that ran out of memory
                _print("a process ended: the rest is proved in one")
    yield from map(_proof, tasks[done:])


def _proof(task: Task) -> RunProof | str:
    """Return the proof of a run, or what is corrupt."""
    folder, run, overrides, retrain = task
    try:
        proof = prove(folder.resolve())
        proof.refusals += [("plan", None, why) for why in plan_refusals(run, overrides)]
        if retrain:
            from attnsvm.verify.retrain import retrained

            with doing("training again"):
                proof.retrained = retrained(folder, retrain)
            proof.refusals += proof.retrained.refusals
            if proof.retrained.repeated == proof.instances:
                proof.trusted = [what for what in proof.trusted if what != TRAINING]
    except Exception as error:  # whatever one record holds, the others are proved
        what = error.state if isinstance(error, record.CorruptRecordError) else "corrupt"
        return f"{what}: {type(error).__name__}: {error}"
    return proof


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="attnsvm-verify", description=__doc__)
    parser.add_argument(
        "record", type=Path, nargs="?",
        help="folder of a sweep or of a run, or a zip archive of it; by default multirun/latest",
    )  # fmt: skip
    parser.add_argument(
        "--retrain", type=int, default=0, metavar="K",
        help="also train K random instances of every run again, and compare",
    )  # fmt: skip
    return parser


def _print(line: str) -> None:
    print(record.one_line(line))  # noqa: T201


def _print_proof(name: str, proof: RunProof) -> None:
    """Print what is proved of a run, and below it what is refused."""
    words = [f"{count} {status} proved" for status, count in proof.proved.items()]
    words = [f"{proof.instances} instances", *words, f"{len(proof.refusals)} refused"]
    if (again := proof.retrained) is not None:
        parts = [f"{again.repeated} equal in every bit"] * bool(again.compared)
        parts += [again.reason] * bool(again.reason)
        parts += [f"{again.undecidable} not decidable across machines"] * bool(again.undecidable)
        words.append(f"{again.compared} trained again" + f" ({', '.join(parts)})" * bool(parts))
    if proof.close:
        words.append(f"{proof.close} agree with their draw up to rounding")
    _print(f"{name}: {', '.join(words)}")
    for what, seed, reason in proof.refusals:
        _print(f"  {what}{'' if seed is None else f' seed {seed}'}: {reason}")


def classes(proofs: Sequence[RunProof]) -> Iterator[str]:
    """Yield that columns and curves are proved, but those that are replayed or as recorded.

    A column of which all values follow from seeds, config and trained weights is proved.
    """
    stated, derived, instances, replayed = (Counter[tuple[str, str]]() for _ in range(4))
    for proof in proofs:
        stated += proof.stated
        derived += proof.derived
        instances += dict.fromkeys(proof.stated, proof.instances)
        repeated = proof.retrained.repeated if proof.retrained else 0
        replayed += dict.fromkeys(proof.stated, repeated)
    found: dict[str, dict[str, list[str]]] = {}
    for (part, name), count in stated.items():
        if open_ := count - derived[part, name]:
            again = f"replayed on {replayed[part, name]} of {instances[part, name]} instances"
            group = found.setdefault(again if replayed[part, name] else "as recorded", {})
            where = part if open_ == count else f"{part} in {open_} of {count} rows".lstrip()
            group.setdefault(where, []).append(name)
    if proofs and not any(proof.refusals for proof in proofs):
        yield f"proved: every column and curve{' but these' * bool(found)}"
    for how, parts in sorted(found.items(), reverse=True):
        words = (f"{where}{': ' * bool(where)}{', '.join(of)}" for where, of in parts.items())
        yield f"{how}: {'; '.join(words)}"


# --- the plan -------------------------------------------------------------------------------------


def plan_refusals(run: Mapping[str, Any], overrides: Sequence[str]) -> Iterator[str]:
    """Yield overrides of the plan `key=value` that the recorded config contradicts."""
    for override in overrides:
        key, _, text = str(override).lstrip("+").partition("=")
        if key in ("sweep", "question", "device"):
            found: Any = run.get(key)
        elif key in run["options"]:
            found = run["options"][key] if text in GROUPS[key].own else _ABSENT  # else one's own
        else:
            found = run["config"]
            for part in key.split("."):
                found = found.get(part, _ABSENT) if isinstance(found, Mapping) else _ABSENT
        if found is not _ABSENT and not _is(found, text):
            yield f"the plan says {override}, the config has {found}"


_ABSENT = object()


def _is(found: Any, text: str) -> bool:
    """Return whether the text of a command line means the value; True for lists and mappings.

    A number or truth value that only Hydra reads is not compared.
    """
    if isinstance(found, Mapping | list) or text[:1] in ("{", "[", "'", '"', "$"):
        return True
    if found is None:
        return text.lower() in ("null", "none", "")
    if isinstance(found, str):
        return found == text.replace("\\", "")
    node = BooleanNode if isinstance(found, bool) else FloatNode
    try:
        return bool(OmegaConf.create({"value": node(text)})["value"] == found)
    except ValidationError:
        return True
