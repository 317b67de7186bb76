"""`attnsvm.sample`: a batch of instances by the names of its options."""

from __future__ import annotations

import dataclasses
from typing import Any

from attnsvm.config import GROUPS, ConfigError
from attnsvm.config.fields import SEEDS
from attnsvm.config.instantiate import named
from attnsvm.data.base import Data
from attnsvm.problem import ProblemBatch


def sample(
    data: str = "sphere",
    *,
    head: str = "linear",
    model: str = "cross_attention",
    trials: int = 100,
    seed: int = 0,
    **options: Any,
) -> ProblemBatch:
    """Return a batch of problem instances.

    Parameters
    ----------
    data : str
        sphere, orthonormal, paths_far, paths_near or file.
    head : str
        linear, relu or quadratic.
    model : str
        cross_attention, self_attention or sequence.
    trials : int
        Number of instances B; with data=file, the largest number.
    seed : int
        Seed of the first instance; instance i has seed `seed + i`.
    **options
        Fields of the three options named: n, T, d; path; lam; query; causal.

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
    groups = {"data": data, "head": head, "model": model}
    parts = {group: _options_of(group, name, options) for group, name in groups.items()}
    if options:
        raise ConfigError(
            f"{next(iter(options))}: must be a field of data={data}, head={head} or model={model}"
        )
    if trials < 1:
        raise ConfigError(f"trials={trials}: must be >= 1")
    if not SEEDS.holds(seed):
        raise ConfigError(f"seed={seed}: must be {SEEDS}")
    source: Data = named("data", data, **parts["data"])
    return source.sample(
        named("head", head, **parts["head"]), named("model", model, **parts["model"]), trials, seed
    )


def _options_of(group: str, name: str, options: dict[str, Any]) -> dict[str, Any]:
    """Take from `options` the fields of option `name` of `group`."""
    config = GROUPS[group].get(name)
    fields = {f.name for f in dataclasses.fields(config)} if config else set()
    return {field: options.pop(field) for field in fields & set(options)}
