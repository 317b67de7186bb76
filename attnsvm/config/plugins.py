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
import itertools
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from functools import cache
from importlib.machinery import PathFinder
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from types import UnionType
from typing import Any, Union, get_args, get_origin

from attnsvm.config.fields import ConfigError, Option
from attnsvm.config.names import must_be_one_of
from attnsvm.config.probe import MAX_NAME, ProbeConfig, Quantity
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
        plugins = self._plugins().items()
        return self.own | {name: schema for name, schema in plugins if not isinstance(schema, str)}

    def refusal(self, name: str) -> str:
        """Return why `name` is no option: what is allowed, or what is wrong with the plug-in."""
        must = f"{self.group}={name}: {must_be_one_of(name, self)}"
        return self.broken().get(name, must)

    def broken(self) -> dict[str, str]:
        """Return what is wrong with each plug-in that cannot be used, by the option's name."""
        return {name: text for name, text in self._plugins().items() if isinstance(text, str)}

    def _plugins(self) -> dict[str, type | str]:
        """Return the schema, or what is wrong with it, of every option that plug-ins declare."""
        declared: dict[str, list[EntryPoint]] = {}
        for point in _declared(self.group):
            declared.setdefault(point.name, []).append(point)
        return {name: self._checked(name, *points) for name, points in sorted(declared.items())}

    def _checked(self, name: str, point: EntryPoint, *others: EntryPoint) -> type | str:
        source = f"{self.group}={name} of {_source(point)} ({point.value})"
        try:
            if name in self.own:
                raise ConfigError("the name is one of attnsvm's own; must be another one")
            if packages := {_source(other) for other in others if other.value != point.value}:
                packages_have = f"{', '.join(sorted(packages))} has this name too"
                raise ConfigError(f"{packages_have}; must be one package")
            _require(name.isidentifier(), "the name must be a word of letters, digits and _")
            return _usable_schema(point.value, self.base)
        except ConfigError as error:
            return f"{source}: {error}"


def use_extensions(packages: Iterable[str]) -> None:
    """Add the options that packages declare in their `ATTNSVM`; those without one add none.

    A package that lies in the current folder, and nowhere else, can be imported from then on.
    """
    for package in packages:
        if package not in _of_extensions:
            _of_extensions[package] = tuple(_declared_by(package))


def _declared_by(package: str) -> Iterator[EntryPoint]:
    extension, place = f"extensions=[{package}]", str(Path.cwd())
    if not package.isidentifier():
        raise ConfigError(f"{extension}: must be the name of a package, without dots")
    if package in sys.stdlib_module_names:
        raise ConfigError(f"{extension}: must be your own package; Python has this one")
    spec = importlib.util.find_spec(package)
    if spec is None and (spec := PathFinder.find_spec(package, [place])):
        sys.path.append(place)
    if spec is None or not (spec.origin or "").endswith(".py"):
        must = "must be a module, or a package with an __init__.py, here or in PYTHONPATH"
        raise ConfigError(f"{extension}: {must}")
    try:
        module = importlib.import_module(package)
    except (Exception, SystemExit) as error:
        raise ConfigError(f"{extension}: cannot be imported ({_described(error)})") from error
    declared: Any = getattr(module, DECLARED, {})
    for group, options in declared.items() if isinstance(declared, Mapping) else [("?", None)]:
        if group not in GROUP_NAMES or not isinstance(options, Mapping):
            must = (
                f"must be a mapping of names to 'module:Class', its key {' | '.join(GROUP_NAMES)}"
            )
            raise ConfigError(f"{extension}: {DECLARED}[{group!r}] {must}")
        for name, schema in options.items():
            yield EntryPoint(str(name), str(schema), f"attnsvm.{group}")


def declared_modules(place: str, name: str | None = None) -> list[str]:
    """Return the modules that plug-ins declare as `conf` or `figures`, if they can be found."""
    modules: dict[str, None] = {}
    for point in _declared(place):
        if name in (None, point.name):
            with suppress(ImportError, ValueError):
                if importlib.util.find_spec(point.value):
                    modules[point.value] = None
    return list(modules)


def _declared(group: str) -> list[EntryPoint]:
    """Return what packages declare in a group: the installed ones, then those of `extensions`."""
    used = itertools.chain(*_of_extensions.values())
    return [*_installed(group), *(point for point in used if point.group == f"attnsvm.{group}")]


@cache
def _installed(group: str) -> tuple[EntryPoint, ...]:
    return tuple(entry_points(group=f"attnsvm.{group}"))


def _source(point: EntryPoint) -> str:
    """Return the package that declares an option, with its version if it is installed."""
    dist = point.dist
    return f"package {f'{dist.name} {dist.version}' if dist else package_of(point.value)}"


@cache
def _imported(place: str) -> Any:
    """Return what `module:Class` names; ConfigError if it cannot be imported."""
    module, _, name = place.partition(":")
    try:
        return getattr(importlib.import_module(module), name)
    except (Exception, SystemExit) as error:
        raise ConfigError(f"cannot be imported ({_described(error)})") from error


def _usable_schema(place: str, base: type) -> type:
    """Return the schema at `place`; ConfigError, with what it must be, if it cannot be used."""
    from omegaconf import OmegaConf  # the solvers, which import this file, do without it

    schema, package = _imported(place), package_of(place)
    extends = isinstance(schema, type) and issubclass(schema, base)
    _require(extends, f"must be a dataclass that extends {base.__name__}")
    decorated = "__dataclass_fields__" in vars(schema) and not schema.__dataclass_params__.frozen
    _require(decorated, "must be decorated with @dataclass itself, and not be frozen")
    ours = package_of(str(vars(schema).get("_target_"))) == package
    _require(ours, f"its _target_ must name a class in {package}, as in '{package}.head.MyHead'")
    for f in dataclasses.fields(schema):
        form = "Annotated[TYPE, ALLOWED, MEANING] = DEFAULT"
        declared = f.name == "_target_" or "doc" in f.metadata
        _require(declared, f"its field {f.name} must be declared as {form}")
        must = "must be of int | float | bool | str, a list of one, or None"
        _require(_is_plain(f.type), f"its field {f.name} {must}")
    try:
        OmegaConf.structured(schema)
    except Exception as error:
        raise ConfigError(f"its defaults must be of their types ({_described(error)})") from error
    if issubclass(schema, ProbeConfig):
        of: Any = schema.QUANTITIES
        words = isinstance(of, Mapping) and all(
            str(name).isidentifier() and len(name) <= MAX_NAME and isinstance(quantity, Quantity)
            for name, quantity in of.items()
        )
        _require(of and words, "its QUANTITIES must be a mapping of words to Quantity, not empty")
    return schema


def _require(holds: Any, message: str) -> None:
    if not holds:
        raise ConfigError(message)


def _is_plain(kind: Any) -> bool:
    """Whether a record can hold the values of a field of this type."""
    parts, plain = get_args(kind), (int, float, bool, str)
    if get_origin(kind) in (Union, UnionType):
        return all(_is_plain(part) for part in parts if part is not type(None))
    return kind in plain or (get_origin(kind) is list and all(part in plain for part in parts))


def _described(error: BaseException) -> str:
    lines = str(error).splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
