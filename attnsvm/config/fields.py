"""Declaration of a schema field: its default, its allowed values, its meaning.

A field of a schema is declared once, as `beta: Annotated[float, Range(0, 1), "decay rate"] = 0.9`:
checks, help, the files in `conf/` and the dictionary of columns follow from it.
"""

from __future__ import annotations

import dataclasses
import inspect
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar, dataclass_transform

from attnsvm.config.names import did_you_mean
from attnsvm.config.norm import NormName

MISSING: Any = "???"
"""A value that must be typed: `omegaconf.MISSING`, which solvers must not import."""


class ConfigError(ValueError):
    """A value that is not allowed; the message names field, value and what it must be."""


MOST = 10**12
"""Largest whole number of a size or a count: products with 8 bytes and more stay exact."""


@dataclass(frozen=True)
class Range:
    """The allowed numbers of a field: low <= value <= high; `open` excludes low, `below` high."""

    low: float = -math.inf
    high: float = math.inf
    open: bool = False
    below: bool = False
    whole: bool = False

    def holds(self, value: Any) -> bool:
        """Whether `value` is a finite number in the range."""
        kind: Any = int if self.whole else int | float
        if isinstance(value, bool) or not isinstance(value, kind):
            return False
        above = value > self.low if self.open else value >= self.low
        below = value < self.high if self.below else value <= self.high
        return above and below and math.isfinite(value)

    def __str__(self) -> str:
        sides = ((self.low, ">" if self.open else ">="), (self.high, "<" if self.below else "<="))
        limits = [
            f"{sign} {limit:{'d' if isinstance(limit, int) else 'g'}}"
            for limit, sign in sides
            if math.isfinite(limit)
        ]
        kind = "a whole number" if self.whole else "a finite number"
        return f"{kind} {' and '.join(limits)}".rstrip()


@dataclass(frozen=True)
class OneOf:
    """The allowed words, or numbers, of a field."""

    words: tuple[Any, ...]

    def holds(self, value: Any) -> bool:
        """Whether `value` is one of the words."""
        return value in self.words

    def meant(self, value: Any) -> str:
        """Return `did you mean WORD? ` for the most similar word; "" if none is."""
        return did_you_mean(str(value), [*map(str, self.words)])

    def __str__(self) -> str:
        return " | ".join(map(str, self.words))


@dataclass(frozen=True)
class ListOf:
    """A field that holds a list without repetition of `item`, not empty unless that is allowed."""

    item: Allowed
    empty: bool = False

    def holds(self, value: Any) -> bool:
        """Whether `value` is a list of allowed items without repetition."""
        return (
            isinstance(value, Sequence)
            and not isinstance(value, str)
            and (self.empty or len(value) > 0)
            and all(self.item.holds(v) for v in value)
            and len(set(value)) == len(value)
        )

    def __str__(self) -> str:
        return f"a list without repetition of {self.item}" + ("" if self.empty else ", not empty")


def allowed_values(text: str) -> Range | OneOf | None:
    """Return the range `low..high`, either of which may be absent, or one of `word|word`."""
    if ".." not in text:
        return OneOf(tuple(text.split("|"))) if text else None
    low, high = text.split("..")
    return Range(float(low or "-inf"), float(high or "inf"))


Allowed = Range | OneOf | ListOf | NormName
"""The allowed values of a field."""


def option(default: Any, allowed: Allowed | None, doc: str) -> Any:
    """Return a dataclass field with its default, its allowed values and its meaning."""
    metadata = {"allowed": allowed, "doc": doc}
    if isinstance(default, list):
        return dataclasses.field(default_factory=lambda: list(default), metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


@dataclass(frozen=True)
class OfType:
    """The values of a type without a range."""

    kind: type
    text: str

    def holds(self, value: Any) -> bool:
        """Whether `value` is of the type."""
        return isinstance(value, self.kind)

    def __str__(self) -> str:
        return self.text


KINDS = {"bool": OfType(bool, "true | false"), "str": OfType(str, "a word")}


def allowed_in(f: dataclasses.Field[Any]) -> Any:
    """Return the allowed values of a field besides None: of its declaration, and of its type."""
    allowed, kind = f.metadata.get("allowed"), str(getattr(f.type, "__name__", f.type))
    kind = kind.removesuffix(" | None")
    if kind in ("int", "float") and (allowed is None or isinstance(allowed, Range)):
        return dataclasses.replace(allowed or Range(), whole=kind == "int")
    return allowed or KINDS.get(kind, OfType(object, "a list"))


def must_be(f: dataclasses.Field[Any], value: Any = None) -> str:
    """Return what the value of a field must be; the bound MOST only if `value` is above it."""
    above, allowed = isinstance(value, int) and value > MOST, str(allowed_in(f))
    return allowed if above else allowed.replace(f" and <= {MOST}", "")


def refusal(f: dataclasses.Field[Any], value: Any, name: str) -> str:
    """Return the error message for a value that the field `name` cannot have."""
    allowed, wrong = f.metadata.get("allowed"), value
    if isinstance(allowed, ListOf):
        allowed, items = allowed.item, value if isinstance(value, list) else [value]
        wrong = next((item for item in items if not allowed.holds(item)), "")
    meant = allowed.meant(wrong) if isinstance(allowed, OneOf | NormName) else ""
    return f"{name}={shown(value)}: {meant}must be {must_be(f, value)}"


def shown(value: Any) -> str:
    """Return a value as a user types it."""
    return f"[{','.join(map(str, value))}]" if isinstance(value, list) else str(value)


def check_fields(node: Any, prefix: str = "") -> None:
    """Raise ConfigError for the first field of the dataclass `node` of wrong type or range."""
    for f in dataclasses.fields(node):
        value = getattr(node, f.name)
        if value is None and str(f.type).endswith(" | None"):
            continue
        if not allowed_in(f).holds(value):
            raise ConfigError(refusal(f, value, prefix + f.name))
        items = value if isinstance(value, list) else ()
        if not all(math.isfinite(item) for item in items if isinstance(item, float)):
            raise ConfigError(f"{prefix}{f.name}={value}: must be finite")  # no record can hold it


def builtin(value: Any) -> Any:
    """Return a number of NumPy or torch as Python's own, any other value as it is."""
    return value.item() if getattr(value, "ndim", None) == 0 else value


SIZE, INDEX, SEEDS = (
    Range(low, high, whole=True) for low, high in ((1, MOST), (0, MOST), (0, 2**31))
)
POSITIVE, NOT_NEGATIVE = Range(0, open=True), Range(0)

Broken = Iterator[tuple[str, str]]
"""Each field whose value does not go with the others, and what it must be."""


class Schema:
    """Base of the schemas: reads what `Annotated` says of a field, its range and its meaning.

    A field that a subclass gives another default keeps the range and the meaning that it had.
    """

    BEFORE: ClassVar[Mapping[str, Any]] = {}
    """Fields whose default is not what runs did before the field, or before its default changed.

    Field -> the value that behaves as before, for ever: records without the field have it.
    """

    def __init_subclass__(cls, **others: Any) -> None:
        super().__init_subclass__(**others)
        inherited = getattr(cls, "__dataclass_fields__", {})
        for name, kind in inspect.get_annotations(cls, eval_str=True).items():
            default = vars(cls).get(name, MISSING)
            metadata = inherited[name].metadata if name in inherited else {}
            if hasattr(kind, "__metadata__"):  # Annotated
                *allowed, doc = kind.__metadata__
                metadata, kind = (
                    {"allowed": allowed[0] if allowed else None, "doc": doc},
                    kind.__origin__,
                )
            if metadata and not isinstance(default, dataclasses.Field):
                setattr(cls, name, option(default, **metadata))
            cls.__annotations__[name] = kind


def default_of(f: dataclasses.Field[Any]) -> Any:
    """Return the default of a field."""
    return f.default if f.default_factory is dataclasses.MISSING else f.default_factory()


@cache
def values_before(schema: Any) -> Mapping[str, Any]:
    """Return the value of each field of a schema that records without it have, if any.

    None is the schema of an option of a plug-in, of which nothing is known.
    """
    fields = dataclasses.fields(schema) if schema else ()
    values = {f.name: schema.BEFORE.get(f.name, default_of(f)) for f in fields}
    none = (dataclasses.MISSING, MISSING)
    return {name: v for name, v in values.items() if name != "_target_" and v not in none}


class Group(Schema):
    """Base of the schemas of all groups: checks its fields when it is created."""

    GROUP: ClassVar[str] = ""

    def __post_init__(self) -> None:
        check_fields(self, prefix=f"{self.GROUP}.")
        for name, must in self._broken():
            raise ConfigError(f"{self.GROUP}.{name}={shown(getattr(self, name))}: must be {must}")

    def _broken(self) -> Broken:
        """Yield the rules between fields that this option breaks."""
        yield from ()


@dataclass_transform()
@dataclass
class Option(Group):
    """Base of the options of a group; each configures the class `_target_`.

    A subclass with a `name` is an option of attnsvm, and a dataclass without a decorator. It
    configures the class `target` of the module attnsvm.GROUP; by default ReluHeadConfig of the
    group head configures Relu.
    """

    DECLARED: ClassVar[dict[str, dict[str, type]]] = {}
    """Group -> name -> schema of attnsvm's options."""

    _target_: str = MISSING

    def __init_subclass__(cls, name: str = "", target: str = "", **others: Any) -> None:
        super().__init_subclass__(**others)
        if name:
            own = cls.__name__.removesuffix("Config").removesuffix(cls.GROUP.capitalize())
            cls._target_ = f"attnsvm.{cls.GROUP}.{target or own}"
            cls.__annotations__["_target_"] = "str"
            dataclass(cls)
            cls.DECLARED.setdefault(cls.GROUP, {})[name] = cls
