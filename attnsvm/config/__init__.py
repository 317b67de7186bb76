"""The schema of a run, its checks, and what follows from it: objects, identity, folder name."""

from attnsvm.config.fields import KINDS, ConfigError, Group, ListOf, OneOf, Range, check_fields
from attnsvm.config.run import GROUPS, WITHOUT_EFFECT, RunConfig, SelectionConfig, SvmConfig

__all__ = [
    "GROUPS",
    "KINDS",
    "WITHOUT_EFFECT",
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
