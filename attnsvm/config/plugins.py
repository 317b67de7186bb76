"""The options of every group: those of attnsvm, and those that plug-ins declare.

A package declares an option by an entry point of the group `attnsvm.GROUP`, whose name is that of
the option and whose value names the schema, `my_package.config:CubicHeadConfig`. Or it has a
mapping `ATTNSVM`, GROUP -> name -> the same value, and is named in `extensions`. A schema is
imported on first use. A plug-in that cannot be used is named, and breaks nothing else.
"""

from __future__ import annotations

import dataclasses
import importlib
import importlib.util
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from types import UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

from omegaconf import OmegaConf

from attnsvm.config.fields import ConfigError, Option
from attnsvm.config.names import did_you_mean
from attnsvm.config.probe import MAX_NAME, Quantity
from attnsvm.config.sources import package_of

DECLARED = "ATTNSVM"
"""The mapping in which a package named in `extensions` declares its options."""

GROUP_NAMES = (
    "model",
    "parameterization",
    "head",
    "data",
    "optimizer",
    "loss",
    "probe",
    "conf",
    "figures",
)
"""Groups to which a plug-in may add options; and `conf`, whose values are modules that hold config
files, and `figures`, NAME -> the module that draws the sweep NAME."""

PLAIN = (int, float, bool, str)
"""The types of a field, or of the elements of a list, that a record can hold."""

_of_extensions: dict[str, tuple[EntryPoint, ...]] = {}
"""What the packages named in `extensions` have declared in this process."""


class Options(Mapping[str, type]):
    """The schema of every usable option of a group, by name; first `own`, those of attnsvm."""

    def __init__(self, base: type[Option]) -> None:
        self.base, self.group, self.own = base, base.GROUP, base.DECLARED[base.GROUP]

    def __getitem__(self, name: str) -> type:
        return self.own.get(name) or self._usable()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._usable())

    def __len__(self) -> int:
        return len(self._usable())

    def _usable(self) -> dict[str, type]:
        found = self._plugins().items()
        return self.own | {name: one for name, one in found if not isinstance(one, str)}

    def refusal(self, name: str) -> str:
        """Return why `name` is no option: what is allowed, or what is wrong with the plug-in."""
        found = self.broken().get(name)
        return found or f"{self.group}={name}: {did_you_mean(name, self)}must be {' | '.join(self)}"

    def broken(self) -> dict[str, str]:
        """Return what is wrong with each plug-in that cannot be used, by the option's name."""
        found = self._plugins()
        return {name: message for name, message in found.items() if isinstance(message, str)}

    def _plugins(self) -> dict[str, type | str]:
        """Return the schema, or what is wrong with it, of every option that plug-ins declare."""
        declared: dict[str, list[EntryPoint]] = {}
        for one in _declared(self.group):
            declared.setdefault(one.name, []).append(one)
        return {name: self._checked(name, ones) for name, ones in sorted(declared.items())}

    def _checked(self, name: str, ones: list[EntryPoint]) -> type | str:
        schema = ones[0].value
        message = f"{self.group}={name} of {_source(ones[0])} ({schema})"
        if name in self.own:
            return f"{message}: the name is one of attnsvm's own; must be another one"
        if others := {_source(one) for one in ones if one.value != schema}:
            return f"{message}: {', '.join(sorted(others))} has this name too; must be one package"
        if not name.isidentifier():
            return f"{message}: the name must be a word of letters, digits and _"
        found = _imported(schema)
        wrong = found if isinstance(found, str) else _wrong(found, self.base, package_of(schema))
        return f"{message}: {wrong}" if wrong else found


def use_extensions(packages: Iterable[str]) -> None:
    """Add the options that packages declare in their `ATTNSVM`; those without one add none."""
    for package in packages:
        if package not in _of_extensions:
            _of_extensions[package] = tuple(_declared_by(package))


def _declared_by(package: str) -> Iterator[EntryPoint]:
    try:
        module = importlib.import_module(package)
    except (Exception, SystemExit) as error:
        message = f"extensions=[{package}]: cannot be imported ({_described(error)})"
        raise ConfigError(message) from error
    declared: Any = getattr(module, DECLARED, {})
    for group, options in declared.items() if isinstance(declared, Mapping) else [("?", None)]:
        if group not in GROUP_NAMES or not isinstance(options, Mapping):
            raise ConfigError(
                f"extensions=[{package}]: {DECLARED}[{group!r}] must be a mapping of names to "
                f"'module:Class', its key one of {' | '.join(GROUP_NAMES)}"
            )
        for name, schema in options.items():
            yield EntryPoint(str(name), str(schema), f"attnsvm.{group}")


def declared_modules(place: str, name: str | None = None) -> list[str]:
    """Return the modules that plug-ins declare as `conf` or `figures`, if they can be found."""
    found: dict[str, None] = {}
    for one in _declared(place):
        if name in (None, one.name):
            with suppress(ImportError, ValueError):
                if importlib.util.find_spec(one.value):
                    found[one.value] = None
    return list(found)


def _declared(group: str) -> list[EntryPoint]:
    """Return what packages declare in a group: the installed ones, then those of `extensions`."""
    used = (one for ones in _of_extensions.values() for one in ones)
    return [*_installed(group), *(one for one in used if one.group == f"attnsvm.{group}")]


@cache
def _installed(group: str) -> tuple[EntryPoint, ...]:
    return tuple(entry_points(group=f"attnsvm.{group}"))


def _source(one: EntryPoint) -> str:
    """Return the package that declares an option, with its version if it is installed."""
    dist = one.dist
    return f"package {f'{dist.name} {dist.version}' if dist else package_of(one.value)}"


@cache
def _imported(schema: str) -> type | str:
    """Return the class that `module:Class` names, or why there is none."""
    module, _, name = schema.partition(":")
    try:
        found: Any = getattr(importlib.import_module(module), name)
    except (Exception, SystemExit) as error:
        return f"cannot be imported ({_described(error)})"
    return found if isinstance(found, type) else "must be a class"


def _wrong(schema: type, base: type, package: str) -> str:
    """Return why a schema cannot be one of a group; empty if it can."""
    if not (issubclass(schema, base) and dataclasses.is_dataclass(schema)):
        return f"must be a dataclass that extends {base.__name__}"
    if "__dataclass_fields__" not in vars(schema) or vars(schema)["__dataclass_params__"].frozen:
        return "must be decorated with @dataclass itself, and not be frozen"
    target = vars(schema).get("_target_")
    if not isinstance(target, str) or package_of(target) != package:
        return f"its _target_ must name a class in {package}, as in '{package}.head.MyHead'"
    try:
        OmegaConf.structured(schema)
        kinds = get_type_hints(schema)
    except Exception as error:
        return f"its fields must have types that OmegaConf knows ({_described(error)})"
    for f in dataclasses.fields(schema):
        if f.name != "_target_" and "doc" not in f.metadata:
            return f"its field {f.name} must be declared with option(default, allowed, meaning)"
        if not _is_plain(kinds[f.name]):
            return f"its field {f.name} must be of int | float | bool | str, a list of one, or None"
    quantities = getattr(schema, "QUANTITIES", None)
    if not isinstance(quantities, Mapping | None) or quantities == {}:
        return "its QUANTITIES must be a mapping of names to Quantity, not empty"
    for name, one in (quantities or {}).items():
        if not (isinstance(name, str) and name.isidentifier() and len(name) <= MAX_NAME):
            return f"its quantity {name!r} must be a word of letters, digits and _"
        if not isinstance(one, Quantity):
            return f"its quantity {name} must be a Quantity"
    return ""


def _is_plain(kind: Any) -> bool:
    parts = get_args(kind)
    if get_origin(kind) in (Union, UnionType):
        return all(_is_plain(part) for part in parts if part is not type(None))
    return kind in PLAIN or (get_origin(kind) is list and all(part in PLAIN for part in parts))


def _described(error: BaseException) -> str:
    lines = str(error).splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
