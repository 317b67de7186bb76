"""`attnsvm-verify --retrain K`: instances of a record computed again by the public training code.

It proves what no arithmetic on the record can: that the stored weights are what training gives.
"""

import dataclasses
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, cast

import numpy as np

from attnsvm import experiment
from attnsvm.config import RunConfig
from attnsvm.config.identity import option_names
from attnsvm.config.instantiate import instantiate
from attnsvm.config.optimizer import NormalizedGDConfig
from attnsvm.norm import norm_of
from attnsvm.record.columns import key_columns
from attnsvm.record.folder import read_record
from attnsvm.record.run import recorded_config
from attnsvm.record.schema import RunRecord
from attnsvm.verify.comparison import Comparison, sheet
from attnsvm.verify.exact import Array
from attnsvm.verify.stored import Refusal
from attnsvm.verify.trusted import with_files_beside

TO_ROUNDING = 1e-10
"""Relative difference of weights after steps that do not overshoot, on another machine."""

NUMBERS = 1e-9
"""Relative difference of what follows from equal weights: solvers of SVMs round differently."""

STEPS_APART = 20
"""Number of last steps by which weights may differ where steps overshoot: up to 15 were seen."""

KEYS = ("seeds", "layer", "attention_head")
"""Arrays that tell rows apart."""

PATH = 1e-2
"""Relative difference of the last point of a regularisation path."""


def retrained(folder: Path, count: int) -> tuple[int, int, list[Refusal]]:
    """Compute `count` random instances of the run in `folder` again.

    Equal weights must have an equal row and history; on another machine the weights may differ as
    far as docs/library.md says. Return how many rows were compared, how many of these came out
    again, with weights equal in every bit, and what differs. Not compared are rows whose draw
    differs here in its last bits, those of a plug-in, whose code is not run, and untrained ones.
    """
    record, run = read_record(folder)
    config = dataclasses.replace(recorded_config(with_files_beside(run, folder)), device="auto")
    if config.extensions or config.selection.tokens == "optimal":
        return 0, 0, []
    names = key_columns(record.trials)
    seeds = np.random.default_rng().permutation(record.trials["seed"].unique())[:count]
    refusals, compared, repeated = list[Refusal](), 0, 0
    once = dataclasses.replace(config.selection, until_accepted=False)
    for seed in sorted(seeds.tolist()):
        asked: dict[str, Any] = {"seed": seed, "trials": 1}
        if hasattr(config.data, "path"):  # the instances of a file are numbered from the first
            asked = {"trials": seed - config.seed + 1}
        again = experiment.run(dataclasses.replace(config, selection=once, **asked))
        stated, found = (one.of_seeds([seed]) for one in (record, again))
        if not _is_same_draw(stated, found):
            continue
        weights = _weights(stated, found)
        equal = all(np.array_equal(*pair, equal_nan=True) for pair in weights.values())
        wrong = list(_other_numbers(stated, found, names) if equal else _apart(config, weights))
        compared += len(stated.trials)
        repeated += len(stated.trials) * (equal and not wrong)
        refusals += [("retrained", seed, why) for why in wrong]
    return compared, repeated, refusals


def _is_same_draw(stated: RunRecord, found: RunRecord) -> bool:
    """Return whether tokens and queries are equal to the last bit, as far as stored.

    The first row of a network has those of its first layer: others depend on what was trained.
    """
    if not (stated.solutions and found.solutions):
        return True
    return all(np.array_equal(stated.solutions[n][0], found.solutions[n][0]) for n in ("X", "Z"))


def _weights(stated: RunRecord, found: RunRecord) -> dict[str, tuple[Array, Array]]:
    """Return what was trained as stated and as found, by name; norms of W if W is not stored.

    Each array is compared on its own: among others much larger it could be anything.
    """
    rows = [one.solutions.get("seeds", ()) for one in (stated, found)]
    if not (len(rows[0]) == len(rows[1]) > 0):
        norms = [one.trials["W_norm"].to_numpy() for one in (stated, found)]
        return {"W_norm": (norms[0], norms[1])}
    networks = [name for name in stated.solutions if name.startswith("network_")]
    of_both = stated.solutions, found.solutions
    return {name: (of_both[0][name], of_both[1][name]) for name in networks or ["trained_W"]}


def _other_numbers(stated: RunRecord, found: RunRecord, names: list[str]) -> Iterator[str]:
    """Yield which numbers of rows and history are not those that training gives."""
    sheets = [
        sheet(one.trials, one.history, {n: a for n, a in one.solutions.items() if n in KEYS}, names)
        for one in (stated, found)
    ]
    comparison = Comparison(sheets[1:], relative=NUMBERS, absolute=NUMBERS * 1e-3)
    if wrong := comparison.form_refusal(sheets[0]):
        yield wrong
    else:
        yield from (why for _, _, _, why in comparison.differences(sheets[0]) if why)


def _apart(config: RunConfig, weights: Mapping[str, tuple[Array, Array]]) -> Iterator[str]:
    """Yield which weights differ by more than they may on another machine."""
    for name, (stated, found) in weights.items():
        apart, size = np.linalg.norm(stated - found), float(np.linalg.norm(stated))
        allowed = _allowed(config, name, size, stated.shape)
        if not apart <= allowed * size:
            yield f"{name} differs by {apart / size:.2g}, allowed is {allowed:.2g}"


def _allowed(config: RunConfig, name: str, size: float, shape: tuple[int, ...]) -> float:
    """Return the largest relative difference of weights, matrices whose norm is `size`."""
    optimizer: Any = config.optimizer
    if not hasattr(optimizer, "steps"):
        return PATH
    beside = name not in ("trained_W", "network_W", "W_norm")  # values, MLPs, head of a network
    rule = option_names(config)["parameterization"]
    steady = rule in optimizer.STEADY and optimizer.growth == 0 and optimizer.gradient != "direct"
    # steps of constant length zigzag about finite minima: of cycles, and of what is trained beside
    others = getattr(config.head, "train", False), getattr(config.model, "trained", "attention")
    minima = config.selection.tokens == "scc" or others != (False, "attention")
    zigzags = isinstance(optimizer, NormalizedGDConfig) and minima
    if steady and not zigzags and not beside:
        return TO_ROUNDING
    stepper = instantiate(optimizer, "optimizer")
    last = max(stepper.step_size(0), stepper.step_size(optimizer.steps))
    d = shape[-1] if len(shape) > 1 else 1
    last *= norm_of(stepper.implicit_bias or "max").dual.spread(d)  # their Frobenius norm
    last *= math.sqrt(math.prod(shape[:-2]))  # each matrix makes its own steps
    if beside:
        last *= cast(Any, config.model).rate
    relative = last / size if beside or rule == "w" else 2 * last / math.sqrt(size)  # of both
    return float(STEPS_APART * relative)
