"""The state of a run, derived from its folder alone."""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from attnsvm.record.files import CorruptRecordError, kind_of, verified
from attnsvm.record.lock import LOCK_FILE, NoLocksError, holder
from attnsvm.record.run import RUN_FILE, TABLES, read_run
from attnsvm.record.text import shortened

FOLDER_OR_NOTHING = ("a folder", "nothing")
FILES = (RUN_FILE, *TABLES, LOCK_FILE)
WRITTEN_BY_HYDRA = (".log", ".yaml")


@dataclass(frozen=True)
class RunState:
    """State of the run of a folder, one of `STATES`; and why it is not done, in one line.

    `run` is the content of its `run.json`, empty if that is missing or corrupt.
    """

    state: str
    reason: str = ""
    run: Mapping[str, Any] = field(default_factory=dict)


def run_state(folder: Path, verify: bool = True) -> RunState:
    """Return the state of the run in `folder`; `verify` checks the checksums of the tables."""
    if kind_of(folder) not in FOLDER_OR_NOTHING:
        return RunState("corrupt", obstacle(folder))
    found = _on_record(folder, verify)
    try:
        if found.state == "done" or (lock := holder(folder)) is None:
            return found
    except CorruptRecordError as error:
        return RunState("corrupt", shortened(error), found.run)
    except NoLocksError as error:
        return RunState("running", f"whether it still runs cannot be known: {error.strerror}")
    owner, lives = lock
    if lives:
        return RunState("running", owner, found.run)
    if (finished := _on_record(folder, verify)).state == "done":  # it finished since the first test
        return finished
    return RunState("lost", f"{owner}: gone without a record", found.run)


def _on_record(folder: Path, verify: bool) -> RunState:
    run: Mapping[str, Any] = {}
    try:
        run = read_run(folder)
        named = re.search(r"-([0-9a-f]{12})$", folder.name)  # the start of its signature
        if named is not None and not run["signature"].startswith(named[1]):
            return RunState("corrupt", shortened(f"{folder}: holds the record of another run"), run)
        if run["state"] != "done":
            return RunState(run["state"], shortened(run["reason"]), run)
        for name in TABLES if verify else ():
            with verified(folder / name, run["files"][name]):
                pass
    except (FileNotFoundError, NotADirectoryError):
        if message := obstacle(folder):
            return RunState("corrupt", message)
        return RunState("missing", "no record on disk")
    except (CorruptRecordError, OSError) as error:
        return RunState("corrupt", shortened(error), run)
    return RunState("done", "", run)


def obstacle(folder: Path) -> str:
    """Return what keeps a run from writing to its folder, in one line; empty if nothing does.

    Hydra writes its log and `.hydra/*.yaml` before the run begins: a pipe in the place of one of
    them would block for ever, and a link would lead out of the folder. What lies there is not
    replaced: whoever put it there may need it.
    """
    for below in (folder, folder / ".hydra"):
        if (kind := kind_of(below)) not in FOLDER_OR_NOTHING:
            return shortened(f"{below}: is {kind}; must be a folder")
        try:
            for name in sorted(os.listdir(below)):
                kind = kind_of(below / name)
                written = name in FILES or name.endswith(WRITTEN_BY_HYDRA)
                if written and kind not in ("a file", "nothing"):
                    return shortened(f"{below / name}: is {kind}; must be a file")
        except FileNotFoundError:
            return ""
        except OSError as error:
            return shortened(error)
    return ""
