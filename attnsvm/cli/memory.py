"""Sizes that cannot be run: refused before any work, from the config alone.

All estimates are lower bounds: what a run holds at the same time at least, for one instance. Runs
of many instances are computed in parts, so `trials` costs little memory.
"""

from collections.abc import Mapping
from operator import attrgetter
from typing import Any, NamedTuple

from attnsvm.config import ConfigError, RunConfig
from attnsvm.config.groups import one_layer_problems
from attnsvm.record import byte_size, usable_memory

FLOAT = 8
"""Bytes of a number."""

ARRAYS = 4
"""Arrays of the size of the tokens, or of W, that exist at once: drawn, cast, and computed."""

SNAPSHOT = 200
"""Bytes of a snapshot besides its arrays: its place in the grid, and its rows of the history."""


class Machine(NamedTuple):
    """What a run is given: bytes of memory, and whose they are."""

    memory: int
    owner: str


def this_machine() -> Machine:
    """Return what this process may use."""
    return Machine(usable_memory(), "this machine")


def job_machine(launcher: Mapping[Any, Any]) -> Machine | None:
    """Return what a job of `launcher` is given; None if that is not known."""
    if not str(launcher.get("_target_", "")).endswith(".Slurm"):
        return this_machine()
    try:
        memory = int(float(str(launcher.get("mem_gb"))) * 2**30)
    except ValueError:
        return None
    others = launcher.get("additional_parameters") or {}
    return None if "mem" in others else Machine(memory, "a job (hydra.launcher.mem_gb)")


def refuse_without_memory(config: RunConfig, machine: Machine | None) -> None:
    """Raise ConfigError if an instance needs more memory than there is (None: not known)."""
    needs = memory_needed(config) if machine else {}
    if machine and (needed := sum(needs.values())) > machine.memory:
        fields = max(needs, key=lambda fields: needs[fields])
        sizes = ", ".join(f"{name}={attrgetter(name)(config)}" for name in fields)
        least = f"an instance needs at least {byte_size(needed)} of memory"
        has = f"{machine.owner} has {byte_size(machine.memory)}"
        raise ConfigError(f"{sizes}: {least}, and {has}; must be smaller")


def memory_needed(config: RunConfig) -> dict[tuple[str, ...], int]:
    """Return the bytes of memory that an instance needs at least, by the fields that set them."""
    n, T, d = (int(getattr(config.data, name, 1)) for name in "nTd")  # 1: the source knows them
    d = getattr(config.data, "dimension", d)
    n = n * T if hasattr(config.model, "causal") else n  # every token is a query
    width = getattr(config.head, "width", 0)
    needs = {
        ("data.n", "data.T", "data.d"): FLOAT * ARRAYS * (n * T * d + d * d),
        ("trials",): FLOAT * config.trials,
        ("head.width", "data.d"): FLOAT * width * (d + n * T),
    }
    if config.selection.tokens != "optimal":
        held = SNAPSHOT + FLOAT * (d * d + n * T)
        grid = hasattr(config.optimizer, "record")
        fields = ("optimizer.steps", "optimizer.record_every", "data.d") if grid else ("data.d",)
        needs[fields] = snapshots(config) * held * one_layer_problems(vars(config.model))
    return needs


def snapshots(config: RunConfig) -> int:
    """Return the number of snapshots of a training, without a list of them."""
    optimizer: Any = config.optimizer
    if hasattr(optimizer, "radii"):
        return len(optimizer.radii) + 1
    if not hasattr(optimizer, "record"):
        return 1
    if optimizer.record == "geometric":
        return 3 * len(str(optimizer.steps)) + 2
    return -(-int(optimizer.steps) // int(optimizer.record_every)) + 1
