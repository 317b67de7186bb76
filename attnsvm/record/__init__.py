"""The record of a run on disk, its state, and its lock.

Tables need pandas, whose import takes a second: names that read or write tables or archives are
imported on first use.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from attnsvm.record.columns import STATES, Column
from attnsvm.record.files import (
    CorruptRecordError,
    kind_of,
    read_json,
    remove_orphans,
    usable_memory,
    verified,
    write_atomically,
    write_json,
)  # fmt: skip
from attnsvm.record.lock import LOCK_FILE, HeldError, locked
from attnsvm.record.plan import (
    PLAN_FILE,
    Plan,
    SweepFolder,
    begin_sweep,
    link_latest,
    read_plan,
    recorded,
    refuse_mixed_code,
    states,
    sweep_folder,
    unobstructed,
    write_plan,
)  # fmt: skip
from attnsvm.record.run import RUN_FILE, TABLES, read_run
from attnsvm.record.state import RunState, obstacle, run_state
from attnsvm.record.text import byte_size, duration, one_line, shortened

if TYPE_CHECKING:
    from attnsvm.record.archive import pack, unpacked
    from attnsvm.record.folder import (
        UNREADABLE,
        compact,
        is_done,
        read,
        read_solutions,
        read_tables,
        write,
        write_failure,
    )  # fmt: skip
    from attnsvm.record.schema import RunRecord, trial_columns, trial_table

__all__ = [
    "LOCK_FILE", "PLAN_FILE", "RUN_FILE", "STATES", "TABLES", "UNREADABLE", "Column",
    "CorruptRecordError", "HeldError", "Plan", "RunRecord", "RunState", "SweepFolder",
    "begin_sweep", "byte_size", "compact", "duration", "is_done", "kind_of", "link_latest",
    "locked", "obstacle", "one_line", "pack", "read", "read_json", "read_plan", "read_run",
    "read_solutions", "read_tables", "recorded", "refuse_mixed_code", "remove_orphans",
    "run_state", "shortened", "states", "sweep_folder", "trial_columns", "trial_table",
    "unobstructed", "unpacked", "usable_memory", "verified", "write", "write_atomically",
    "write_failure", "write_json", "write_plan",
]  # fmt: skip


LATER = {"archive": ("pack", "unpacked"), "schema": ("RunRecord", "trial_columns", "trial_table")}


def __getattr__(name: str) -> Any:
    """Import a name that reads or writes tables or archives."""
    if name not in __all__:
        raise AttributeError(f"module 'attnsvm.record' has no attribute {name!r}")
    module = next((one for one, names in LATER.items() if name in names), "folder")
    return getattr(importlib.import_module(f"attnsvm.record.{module}"), name)
