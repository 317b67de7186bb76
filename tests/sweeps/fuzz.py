"""Random sweeps one step beside the named ones, from a seed: run, drawn and proved again."""

import random
import re
from pathlib import Path

from omegaconf import OmegaConf

from attnsvm.cli.help import experiments
from tests.command import attnsvm
from tests.pretrained.tiny import tiny

LISTED = OmegaConf.load(Path(__file__).with_name("fuzz.yaml"))


def parsed(words):
    return dict(word.split("=", 1) for word in words.split())


GRIDS = {}
ONE_VALUE = {}
for name, words in LISTED.sweeps.items():
    grid, _, narrowed = words.partition("/ ")
    GRIDS[name.strip("-")], ONE_VALUE[name.strip("-")] = parsed(grid), parsed(narrowed)

AS_LONG = (
    "correlation_vs_d",
    "mirror_descent",
    "pretrained_heads",
    "rank_vs_d",
    "regularization_path",
)
"""Sweeps that do not train, whose grid has the steps, or that would reject all after a few."""


def miniature(name, trials, steps, every):
    """Return the overrides of a sweep with so many instances and steps of training."""
    overrides = {"trials": str(trials)}
    if name not in AS_LONG:
        overrides |= {"optimizer.steps": str(steps), "optimizer.record_every": str(every)}
    if name == "pretrained_heads":
        overrides["data.transformer"] = str(tiny("bert"))
    return overrides | GRIDS[name]


def combination(number):
    """Return the arguments of the sweep `number`; about one in ten is not valid."""
    rng = random.Random(number)
    name = rng.choice([*experiments(), "", ""])
    overrides = miniature(name, 3, 400, 100)
    if rng.random() < 0.4:
        overrides |= ONE_VALUE[name]
    for change in rng.sample(list(LISTED.new_axes), rng.choice([0, 1, 1, 2])):
        overrides |= parsed(change)
    if rng.random() < 0.25:
        overrides |= parsed(rng.choice(list(LISTED.statuses)))
    begin = [f"sweep={name}"] if name else ["-m"]
    return [*begin, *(f"{key}={value}" for key, value in overrides.items())]


OURS = re.compile(r"attnsvm: .*|  .*|.* (so far|in all)")
"""The lines that attnsvm writes to stderr: an error, the lines below it, and progress."""


def strange(done):
    return [f"stderr: {line}" for line in done.stderr.splitlines() if not OURS.fullmatch(line)]


def faults(arguments, folder):
    """Return what is wrong with the sweep of these arguments; None if it is refused with a reason.

    It must end without a line on stderr that is not ours, with a report in which every figure is
    drawn, and with records that prove themselves.
    """
    done = attnsvm(*arguments, f"hydra.sweep.dir={folder}", cwd=folder.parent)
    code, output, wrong = done.returncode, done.stdout + done.stderr, strange(done)
    if code == 2 and not wrong and re.search("^attnsvm: ", done.stderr, re.MULTILINE):
        return None
    wrong += [] if code in (0, 1) else [f"exit code {code}"]
    wrong += [f"says {word!r}" for word in ("Traceback", "Warning", "not drawn") if word in output]
    if code == 1 and "attnsvm: " not in output:
        wrong.append("exit code 1 without a reason")
    if not (folder / "report.html").exists():
        return [*wrong, "no report", output[-1500:]]
    if not (any(folder.glob("figures/*.png")) and any(folder.glob("tables/*.csv"))):
        wrong.append("no figure or no table")
    proof = attnsvm(str(folder), cwd=folder.parent, command="attnsvm-verify")
    if proof.returncode != 0 or strange(proof):
        wrong.append(f"not proved: {(proof.stdout + proof.stderr)[-1500:]}")
    return [*wrong, output[-2500:]] if wrong else []
