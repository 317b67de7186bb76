"""The grid of a sweep: the product of what is written, each axis the values of one override."""

import itertools
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import cache
from typing import Any

from hydra.core.config_loader import ConfigLoader
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import ChoiceSweep, Glob, Override, RangeSweep, Sweep

from attnsvm.config import WITHOUT_EFFECT, ConfigError

LARGEST = 10**6
"""Most values of an axis, and most cells of a grid."""

parsed = cache(OverridesParser.create().parse_override)
"""Returns an override; a sweep has the same words in many cells."""


@dataclass(frozen=True)
class Axis:
    """An override of a sweep: the words of each of its values, and the fields that they set.

    The option of a group counts as a field of its own, besides the fields of that option.
    """

    text: str
    values: list[list[str]]
    fields: frozenset[str]
    is_swept: bool

    @classmethod
    def of(cls, override: Override, loader: ConfigLoader) -> "Axis":
        """Return the axis of an override; ConfigError if its values cannot be those of a grid."""
        text, key = str(override.input_line), override.get_key_element()
        is_swept = override.is_sweep_override()
        if is_swept and override.key_or_group in WITHOUT_EFFECT:
            raise ConfigError(f"{text}: must be one value, which changes no number of a run")
        values = _values(override, loader) if is_swept else [override.get_value_element_as_str()]
        words = [[text]] if override.is_delete() else [_words(key, value) for value in values]
        of_words = [parsed(word) for word in itertools.chain(*words)]
        fields = {field for o in of_words for field in _fields(o.key_or_group, o.value())}
        return cls(text, words, frozenset(fields), is_swept)


def per_cell(key: str, written: str, value: str) -> str:
    """Return what the file of a sweep has `written`, or its `value` for the sweep as a whole.

    A reference has a value in each cell, unless it stands for several: `${oc.env:SIZES}`.
    """
    several = [parsed(f"{key}={text}").is_sweep_override() for text in (written, value)]
    return value if several == [False, True] else written


def axes(params: Mapping[str, Any], arguments: Sequence[str], loader: ConfigLoader) -> list[Axis]:
    """Return the axes of a sweep: those of its file, `params`, then those of the command line.

    An axis of the file is left out if the command sets all of its fields, or the option of its
    group if the axis chooses one; if it sets some of them, the command has the last word on these.
    ConfigError if a field is swept and then set again in the same place.
    """
    for key in params:
        if key.lstrip("+~").startswith("hydra"):
            raise ConfigError(f"hydra.sweeper.params: {key}: must be a field of a run")
    file = _axes([f"{key}={value}" for key, value in params.items()], loader)
    command = _axes(arguments, loader)
    typed = frozenset[str]().union(*(axis.fields for axis in command))
    options = {field for field in typed if "." not in field}
    kept = [axis for axis in file if not (axis.fields <= typed or axis.fields & options)]
    return [*kept, *command]


def grid(of: Sequence[Axis]) -> list[list[str]]:
    """Return the overrides of every cell."""
    if (cells := math.prod(len(axis.values) for axis in of)) > LARGEST:
        raise ConfigError(
            f"{' '.join(axis.text for axis in of)}: {cells} runs; must be <= {LARGEST}"
        )
    return [list(itertools.chain(*words)) for words in itertools.product(*(a.values for a in of))]


def _axes(words: Iterable[str], loader: ConfigLoader) -> list[Axis]:
    """Return the axes of overrides; of two that give single values to a field the last one."""
    overrides = OverridesParser.create(config_loader=loader).parse_overrides(list(words))
    kept = list[Axis]()
    for axis in (Axis.of(override, loader) for override in overrides):
        for other in kept:
            if other.is_swept and (common := axis.fields & other.fields):
                must = f"sets {', '.join(sorted(common))}, as {other.text} does; must be set by one"
                raise ConfigError(f"{axis.text}: {must} of them")
        kept = [other for other in kept if not other.fields <= axis.fields]
        kept.append(axis)
    return kept


def _values(override: Override, loader: ConfigLoader) -> list[str]:
    """Return the values of a swept override as they are typed."""
    sweep: Any = override.value()
    text = str(override.input_line)
    if isinstance(sweep, RangeSweep):
        if re.search(r"\bsort\(", text):
            raise ConfigError(
                f"{text}: must be without sort, which Hydra applies to the ends of a range; "
                "a range that falls is range(8,0,-4)"
            )
        sweep = ChoiceSweep(list=[*_range(sweep, text)], shuffle=sweep.shuffle)
    if isinstance(sweep, Glob):
        options = loader.get_group_options(override.key_or_group)
        if not sweep.filter(options):
            must = f"must match one of {' | '.join(options)}" if options else "must be a group"
            raise ConfigError(f"{text}: {must}")
    elif not isinstance(sweep, ChoiceSweep) or any(isinstance(v, Sweep) for v in sweep.list):
        raise ConfigError(f"{text}: must be a list of values; hydra/sweeper=optuna searches")
    return [*replace(override, _value=sweep).sweep_string_iterator()]


def _range(sweep: RangeSweep, text: str) -> Sequence[Any]:
    """Return start + k step < stop, exact for the decimal numbers that were typed."""
    ends = sweep.start, sweep.stop, sweep.step
    start, stop, step = (Decimal(str(x)) for x in ends)
    is_finite = step and all(x.is_finite() for x in (start, stop, step))
    count = max(0, math.ceil((stop - start) / step)) if is_finite else 0
    if not 0 < count <= LARGEST:
        raise ConfigError(f"{text}: {count} values; must be finite, >= 1 and <= {LARGEST}")
    kind = int if all(isinstance(x, int) for x in ends) else float
    return [kind(start + k * step) for k in range(count)]


def _words(key: str, value: str) -> list[str]:
    """Return the overrides of a value; {option:NAME,FIELD:VALUE,...} is an option with fields."""
    option = re.fullmatch(r"\{option:([\w-]+)(?:,(.*))?\}", value)
    if option is None and re.search(r"[{,]option:", value):
        raise ConfigError(f"{key}={value}: must be {{option:NAME,FIELD:VALUE,...}}, the name first")
    fields = [f"{key}={{{option[2]}}}"] if option and option[2] else []
    return [f"{key}={option[1] if option else value}", *fields]


def _fields(key: str, value: Any) -> Iterator[str]:
    """Yield the fields that a value of `key` sets: those in it, if it is a dict."""
    if not isinstance(value, dict) or not value:
        yield key
        return
    for name, part in value.items():
        yield from _fields(f"{key}.{name}", part)
