"""`attnsvm.sample`: a batch of instances by the names of its options."""

from __future__ import annotations

import dataclasses
from typing import Any

from attnsvm.config import GROUPS, ConfigError
from attnsvm.config.fields import SEEDS
from attnsvm.config.instantiate import named
from attnsvm.data.base import Data
from attnsvm.head import Head
from attnsvm.model import Model
from attnsvm.problem import ProblemBatch


def sample(
    data: str | Data = "sphere",
    *,
    head: str | Head = "linear",
    model: str | Model = "cross_attention",
    trials: int = 100,
    seed: int = 0,
    **options: Any,
) -> ProblemBatch:
    """Return a batch of problem instances.

    Parameters
    ----------
    data : str or Data
        sphere, orthonormal, paths_far, paths_near, digits or file; or an object of your own.
    head : str or Head
        linear, relu, quadratic or mlp; or an object.
    model : str or Model
        cross_attention, self_attention or sequence; or an object.
    trials : int
        Number of instances B; with data=file, the largest number.
    seed : int
        Seed of the first instance; instance i has seed `seed + i`.
    **options
        Fields of the options that are given by name: n, T, d; path; lam; query; causal.

    Returns
    -------
    ProblemBatch
        Float64 on the CPU.

    Raises
    ------
    ConfigError
        If a name or field does not exist, or a value is not allowed.

    Examples
    --------
    >>> sample("sphere", n=6, T=8, d=10, trials=100).X.shape
    torch.Size([100, 6, 8, 10])
    """
    given = {"data": data, "head": head, "model": model}
    made = {group: _made(group, one, options) for group, one in given.items()}
    if options:
        names = [f"{group}={one}" for group, one in given.items() if isinstance(one, str)]
        raise ConfigError(
            f"{next(iter(options))}: must be a field of {' or '.join(names) or 'an option by name'}"
        )
    if trials < 1:
        raise ConfigError(f"trials={trials}: must be >= 1")
    if not SEEDS.holds(seed):
        raise ConfigError(f"seed={seed}: must be {SEEDS}")
    batch: ProblemBatch = made["data"].sample(made["head"], made["model"], trials, seed)
    return batch


def _made(group: str, given: Any, options: dict[str, Any]) -> Any:
    """Return the object, or the option of that name with its fields taken from `options`."""
    if not isinstance(given, str):
        return given
    config = GROUPS[group].get(given)
    fields = {f.name for f in dataclasses.fields(config)} if config else set()
    return named(group, given, **{name: options.pop(name) for name in fields & set(options)})
