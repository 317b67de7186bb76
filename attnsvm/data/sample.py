"""`attnsvm.sample`: a batch of instances by the names of its options."""

from typing import TYPE_CHECKING, Any, Unpack

from attnsvm.config import ConfigError
from attnsvm.config.fields import SEEDS, SIZE, builtin
from attnsvm.config.instantiate import fields_of, named_from
from attnsvm.config.names import must_be_one_of
from attnsvm.data.base import Data
from attnsvm.data.problem import ProblemBatch
from attnsvm.head import Head
from attnsvm.linalg import own_settings
from attnsvm.model import Model

if TYPE_CHECKING:
    from attnsvm.config.options import SampleOptions

NAMED = "data", "head", "model", "trials", "seed"
"""Arguments besides the fields of options."""


@own_settings()
def sample(
    data: str | Data = "sphere",
    *,
    head: str | Head = "linear",
    model: str | Model = "cross_attention",
    trials: int = 100,
    seed: int = 0,
    **options: Unpack["SampleOptions"],
) -> ProblemBatch:
    """Return a batch of problem instances.

    Parameters
    ----------
    data, head, model : str or object
        An option of the group of that name, see `attnsvm --help`; or an object.
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
    choices = {"data": data, "head": head, "model": model}
    fields: dict[str, Any] = dict(options)
    objects = {group: named_from(group, choice, fields) for group, choice in choices.items()}
    for name in fields:
        known = set[str]().union(*(fields_of(*choice) for choice in choices.items()))
        raise ConfigError(f"{name}: {must_be_one_of(name, [*sorted(known), *NAMED])}")
    trials, seed = builtin(trials), builtin(seed)
    for name, value, allowed in (("trials", trials, SIZE), ("seed", seed, SEEDS)):
        if not allowed.holds(value):
            raise ConfigError(f"{name}={value}: must be {allowed}")
    return objects["data"].sample(objects["head"], objects["model"], trials, seed)
