"""From a name or a config to the object that it names, within the allowed packages."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
from collections.abc import Iterable, Iterator
from typing import Any

from attnsvm.config.fields import ConfigError, builtin
from attnsvm.config.names import did_you_mean
from attnsvm.config.run import ALL_GROUPS, GROUPS, SECTIONS, RunConfig
from attnsvm.config.sources import package_of


def instantiate(config: Any, group: str, extensions: Iterable[str] = ()) -> Any:
    """Return the object that `config._target_` names, made from the other fields of `config`.

    `config` is an option of `group`, whose objects are of the class attnsvm.GROUP.Group, as
    attnsvm.head.Head; the target lies in attnsvm or in a package of `extensions`.
    """
    cls = target_class(config._target_, group, extensions)
    names = [f.name for f in dataclasses.fields(config) if f.name != "_target_"]
    return cls(**{name: getattr(config, name) for name in names})


def named(group: str, name: Any, **fields: Any) -> Any:
    """Return the object of option `name` of `group`, its fields checked against the schema.

    An object of the group, `name`, is returned as it is.
    """
    options, base = ALL_GROUPS[group], base_class(group)
    if isinstance(name, base):
        return name
    if not isinstance(name, str) or name not in options:
        refusal = options.refusal(str(getattr(name, "__name__", name)))
        others = "" if isinstance(name, str) else f", or an object of attnsvm.{group}"
        raise ConfigError(f"{refusal}{others}")
    schema = options[name]
    for field in fields:
        if field not in fields_of(group, name):
            raise ConfigError(f"{group}.{field}: {unknown_field(field, schema, f' of {name}')}")
    config = schema(**{field: builtin(value) for field, value in fields.items()})
    return instantiate(config, group, [package_of(config._target_)])


def fields_of(group: str, name: Any) -> set[str]:
    """Return the fields of option `name` of `group`; none of an object."""
    config = ALL_GROUPS[group].get(name) if isinstance(name, str) else None
    return {f.name for f in dataclasses.fields(config) if f.name != "_target_"} if config else set()


def named_from(group: str, name: Any, options: dict[str, Any]) -> Any:
    """Return `named`, with the fields of the option taken out of `options`."""
    taken = fields_of(group, name) & set(options)
    return named(group, name, **{field: options.pop(field) for field in taken})


def unknown_field(field: str, schema: type, of: str = "") -> str:
    """Return the end of an error message: the field that is meant, and all fields of `schema`."""
    names = [f.name for f in dataclasses.fields(schema) if not f.name.startswith("_")]
    group, meant = getattr(schema, "GROUP", ""), did_you_mean(field, names)
    if having := [name for name in GROUPS.get(group, ()) if field in fields_of(group, name)]:
        meant = f"{group}={' | '.join(having)} has it; "
    elif schema is RunConfig:
        likes = (field, f"{field}s")
        places = [name for name in GROUPS if name in likes]
        places += [f"{at}.{f.name}" for at, _, f in declared_fields() if at and f.name in likes]
        meant = f"did you mean {' | '.join(dict.fromkeys(places))}? " if places else meant
    return f"unknown field{of}; {meant}must be {' | '.join(names) or 'absent, there is none here'}"


def declared_fields() -> Iterator[tuple[str, str, dataclasses.Field[Any]]]:
    """Yield the fields of a run, each with its place, "" or "optimizer", and option, as "adam"."""
    yield from (("", "", f) for f in dataclasses.fields(RunConfig))
    for group, options in ALL_GROUPS.items():
        for name, schema in options.items():
            place = f"probe.{name}" if group == "probe" else group
            yield from ((place, name, f) for f in dataclasses.fields(schema))
    for section, schema in SECTIONS.items():
        yield from ((section, "", f) for f in dataclasses.fields(schema))


def target_class(target: str, group: str, extensions: Iterable[str] = ()) -> Any:
    """Return the class named `target`, a subclass of the group's base in an allowed package."""
    check_package(target, group, extensions)
    module, _, name = target.rpartition(".")
    base = base_class(group)
    try:
        cls = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigError(f"{group}._target_={target}: cannot be imported ({error})") from error
    if not (isinstance(cls, type) and issubclass(cls, base)) or inspect.isabstract(cls):
        raise ConfigError(f"{group}._target_={target}: must be a subclass of {base.__name__}")
    return cls


def base_class(group: str) -> type:
    """Return the class that the objects of a group extend."""
    return getattr(importlib.import_module(f"attnsvm.{group}"), group.capitalize())


def check_package(target: str, group: str, extensions: Iterable[str] = ()) -> None:
    """Raise ConfigError if `target` lies outside the allowed packages; import nothing."""
    allowed = ("attnsvm", *extensions)
    if package_of(target) not in allowed:
        raise ConfigError(
            f"{group}._target_={target}: must be a class in {', '.join(allowed)}; "
            f"allow your own package with extensions=[package]"
        )
