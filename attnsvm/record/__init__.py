"""The record of a run on disk, its state, and its lock.

Tables need pandas, whose import takes a second: names that read or write tables are imported on
first use.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from attnsvm.record.archive import pack, unpacked
from attnsvm.record.column import STATES, Column
from attnsvm.record.files import (
    CorruptRecordError,
    kind_of,
    read_json,
    remove_orphans,
    verify_file,
    write_atomically,
    write_json,
)
from attnsvm.record.lock import LOCK_FILE, HeldError, Owner, holder, locked
from attnsvm.record.plan import (
    PLAN_FILE,
    Plan,
    begin_sweep,
    link_latest,
    planned,
    read_plan,
    recorded,
    states,
    tidy,
    unobstructed,
    write_plan,
)
from attnsvm.record.run import RUN_FILE, TABLES, read_run
from attnsvm.record.state import RunState, obstacle, run_state
from attnsvm.record.text import byte_size, duration, one_line, shortened

if TYPE_CHECKING:
    from attnsvm.record.folder import (
        UNREADABLE,
        compact,
        is_done,
        read,
        read_solutions,
        read_tables,
        write,
        write_failure,
    )
    from attnsvm.record.schema import RunRecord, trial_columns, trial_table

_TABULAR = {
    "UNREADABLE": "folder",
    "compact": "folder",
    "is_done": "folder",
    "read": "folder",
    "read_solutions": "folder",
    "read_tables": "folder",
    "write": "folder",
    "write_failure": "folder",
    "RunRecord": "schema",
    "trial_columns": "schema",
    "trial_table": "schema",
}

__all__ = [
    "LOCK_FILE",
    "PLAN_FILE",
    "RUN_FILE",
    "STATES",
    "TABLES",
    "UNREADABLE",
    "Column",
    "CorruptRecordError",
    "HeldError",
    "Owner",
    "Plan",
    "RunRecord",
    "RunState",
    "begin_sweep",
    "byte_size",
    "compact",
    "duration",
    "holder",
    "is_done",
    "kind_of",
    "link_latest",
    "locked",
    "obstacle",
    "one_line",
    "pack",
    "planned",
    "read",
    "read_json",
    "read_plan",
    "read_run",
    "read_solutions",
    "read_tables",
    "recorded",
    "remove_orphans",
    "run_state",
    "shortened",
    "states",
    "tidy",
    "trial_columns",
    "trial_table",
    "unobstructed",
    "unpacked",
    "verify_file",
    "write",
    "write_atomically",
    "write_failure",
    "write_json",
    "write_plan",
]


def __getattr__(name: str) -> Any:
    """Import a name that reads or writes tables."""
    if name not in _TABULAR:
        raise AttributeError(f"module 'attnsvm.record' has no attribute {name!r}")
    return getattr(importlib.import_module(f"attnsvm.record.{_TABULAR[name]}"), name)
