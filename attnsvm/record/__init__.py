"""The record of a run on disk, its state, and its lock.

Tables and archives are read and written by `folder`, `schema` and `archive`, which are not imported
here: pandas takes a second.
"""

from attnsvm.record.columns import STATES
from attnsvm.record.files import (
    CorruptRecordError,
    OtherRunError,
    OtherVersionError,
    TooLargeError,
    UnreadableError,
    byte_size,
    duration,
    kind_of,
    one_line,
    read_json,
    remove_orphans,
    shortened,
    usable_memory,
    verified,
    write_atomically,
    write_json,
)
from attnsvm.record.plan import (
    PLAN_FILE,
    Plan,
    SweepFolder,
    begin_sweep,
    link_latest,
    names_on_record,
    read_plan,
    recorded,
    states,
    sweep_folder,
    unobstructed,
    write_plan,
)
from attnsvm.record.run import RUN_FILE, TABLES, is_of, read_run
from attnsvm.record.state import (
    FINISHED,
    KEPT,
    LOCK_FILE,
    HeldError,
    RunState,
    locked,
    obstacle,
    run_state,
)
