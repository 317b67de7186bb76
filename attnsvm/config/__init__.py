"""The schema of a run, its checks, and what follows from it: objects, identity, folder name."""

from attnsvm.config.fields import KINDS, ConfigError, Group, ListOf, OneOf, Range, check_fields
from attnsvm.config.run import GROUPS, RunConfig, SelectionConfig, SvmConfig

__all__ = [
    "GROUPS",
    "KINDS",
    "ConfigError",
    "Group",
    "ListOf",
    "OneOf",
    "Range",
    "RunConfig",
    "SelectionConfig",
    "SvmConfig",
    "check_fields",
]
