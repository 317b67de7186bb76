"""Random sweeps one step beside the named ones, from a seed: run, drawn and proved again."""

import random
import re
from pathlib import Path

from omegaconf import OmegaConf

from attnsvm.cli.help import experiments
from tests.command import Finished, attnsvm
from tests.pretrained.tiny import tiny

LISTED = OmegaConf.load(Path(__file__).with_name("fuzz.yaml"))


def parsed(words: str) -> dict[str, str]:
    return dict(word.split("=", 1) for word in words.split())


GRIDS: dict[str, dict[str, str]] = {}
ONE_VALUE: dict[str, dict[str, str]] = {}
for name, words in LISTED.sweeps.items():
    grid, _, narrowed = words.partition("/ ")
    GRIDS[name.strip("-")], ONE_VALUE[name.strip("-")] = parsed(grid), parsed(narrowed)

AS_LONG = ("correlation_vs_d", "mirror_descent", "pretrained_heads", "rank_vs_d",
           "regularization_path")  # fmt: skip
"""Sweeps that do not train, whose grid has the steps, or that would reject all after a few."""


def miniature(name: str, trials: int, steps: int, every: int) -> dict[str, str]:
    """Return the overrides of a sweep with so many instances and steps of training."""
    given = {"trials": str(trials)}
    if name not in AS_LONG:
        given |= {"optimizer.steps": str(steps), "optimizer.record_every": str(every)}
    if name == "pretrained_heads":
        given["data.transformer"] = str(tiny("bert"))
    return given | GRIDS[name]


def combination(number: int) -> list[str]:
    """Return the arguments of the sweep `number`; about one in ten is not valid."""
    rng = random.Random(number)
    name = rng.choice([*experiments(), "", ""])
    given = miniature(name, 3, 400, 100)
    if rng.random() < 0.4:
        given |= ONE_VALUE[name]
    for change in rng.sample(list(LISTED.new_axes), rng.choice([0, 1, 1, 2])):
        given |= parsed(change)
    if rng.random() < 0.25:
        given |= parsed(rng.choice(list(LISTED.statuses)))
    begin = [f"sweep={name}"] if name else ["-m"]
    return [*begin, *(f"{key}={value}" for key, value in given.items())]


OURS = re.compile(r"attnsvm: .*|  .*|.* (so far|in all)")
"""The lines that attnsvm writes to stderr: an error, the lines below it, and progress."""


def strange(done: Finished) -> list[str]:
    return [f"stderr: {line}" for line in done.stderr.splitlines() if not OURS.fullmatch(line)]


def faults(arguments: list[str], folder: Path) -> list[str] | None:
    """Return what is wrong with the sweep of these arguments; None if it is refused with a reason.

    It must end without a line on stderr that is not ours, with a report in which every figure is
    drawn, and with records that prove themselves.
    """
    done = attnsvm(*arguments, f"hydra.sweep.dir={folder}", cwd=folder.parent)
    code, told, found = done.returncode, done.stdout + done.stderr, strange(done)
    if code == 2 and not found and re.search("^attnsvm: ", done.stderr, re.MULTILINE):
        return None
    found += [] if code in (0, 1) else [f"exit code {code}"]
    found += [f"says {word!r}" for word in ("Traceback", "Warning", "not drawn") if word in told]
    if code == 1 and "attnsvm: " not in told:
        found.append("exit code 1 without a reason")
    if not (folder / "report.html").exists():
        return [*found, "no report", told[-1500:]]
    if not (any(folder.glob("figures/*.png")) and any(folder.glob("tables/*.csv"))):
        found.append("no figure or no table")
    proof = attnsvm(str(folder), cwd=folder.parent, command="attnsvm-verify")
    if proof.returncode != 0 or strange(proof):
        found.append(f"not proved: {(proof.stdout + proof.stderr)[-1500:]}")
    return [*found, told[-2500:]] if found else []
