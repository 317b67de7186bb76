"""Error messages for the user, and exit codes."""

from __future__ import annotations

import re
import signal
import sys
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from hydra.errors import HydraException
from omegaconf.errors import OmegaConfBaseException

from attnsvm.config import KINDS, PROBES, ConfigError
from attnsvm.config.identity import unknown_field
from attnsvm.config.names import did_you_mean
from attnsvm.config.run import ALL_GROUPS
from attnsvm.record import CorruptRecordError, HeldError

INTERRUPTED = "interrupted; finished runs are on disk, run the same command again to resume"

EXTRAS = {
    "submitit_slurm": "slurm",
    "submitit_local": "slurm",
    "joblib": "joblib",
    "optuna": "optuna",
    "colorlog": "colorlog",
}
"""Option of a group of Hydra's own section -> the extra of attnsvm that installs it."""

SEARCH_ENDS = {
    "No trials are completed yet.": "the objective of no run is defined",
    "`Study.stop` is supposed to be invoked inside an objective function or a callback.": (
        "the last run of the grid has no number, and Optuna's sweeper wrote no result"
    ),
}
"""Errors that Optuna's sweeper ends with if runs have no objective -> what they mean."""


class SweepIncompleteError(RuntimeError):
    """Some runs of a sweep have no complete record; the report lists them."""


def exit_code(command: Callable[[], Any], show_traces: bool = False) -> int:
    """Return 0 if `command` succeeds, else print its error on stderr and return an exit code.

    The code is 2 for a config or an environment that the user can correct, 1 for a failed run, and
    128 plus the number of the signal after a signal.
    """
    try:
        command()
    except KeyboardInterrupt as stop:
        with suppress(OSError):  # a terminal that was closed, which sends SIGHUP
            print(f"attnsvm: {INTERRUPTED}", file=sys.stderr)  # noqa: T201
        return 128 + getattr(stop, "signum", signal.SIGINT)
    except Exception as error:
        message = user_message(error)
        if message is None or show_traces:
            traceback.print_exc()
        if message is not None:
            print(f"attnsvm: {message}", file=sys.stderr)  # noqa: T201
        return 1 if message is None or isinstance(error, SweepIncompleteError) else 2
    return 0


def user_message(error: BaseException) -> str | None:
    """Return the message of `error` for the user; None for an error in the program.

    Hydra and OmegaConf wrap errors: then the message of the cause is used. For any other error its
    own message is used, even if it was raised while another error was handled.
    """
    chain = [error]
    while isinstance(chain[-1], HydraException | OmegaConfBaseException):
        if (below := chain[-1].__cause__ or chain[-1].__context__) is None:
            break
        chain.append(below)
    for rule in (_own_message, _schema_message, _hydra_message, _os_message, search_message):
        for link in chain:
            message = rule(link)
            if message is not None:
                return message
    return None


def _own_message(error: BaseException) -> str | None:
    mine = isinstance(error, ConfigError | SweepIncompleteError | HeldError | CorruptRecordError)
    return str(error) if mine else None


def _schema_message(error: BaseException) -> str | None:
    if not isinstance(error, OmegaConfBaseException) or error.object_type is None:
        return None
    known = getattr(error.object_type, "__dataclass_fields__", {})
    name = str(error.full_key).rpartition(".")[2]
    if known and name not in known:
        return f"{error.full_key}: {unknown_field(name, error.object_type)}"
    field = known.get(name)
    allowed = (field.metadata.get("allowed") or KINDS.get(str(field.type))) if field else None
    also = f"; must be {allowed}" if allowed is not None else ""
    return f"{error.full_key}: {str(error.msg).splitlines()[0]}{also}"


def _hydra_message(error: BaseException) -> str | None:
    misused = isinstance(error, ValueError) and str(error).startswith("Config group override")
    if not isinstance(error, HydraException) and not misused:
        return None
    text = str(error).partition("\nConfig search path:")[0].strip()
    for group, options in ALL_GROUPS.items():
        for name, broken in options.broken().items():
            if f"'{group}/{name}'" in text:
                return broken
    if probe := re.search(r"Could not load 'probe/([^']+)'", text):
        return PROBES.refusal(probe[1])
    return _missing_extra(text, sys.argv[1:]) or _meant(text)


def _missing_extra(text: str, command: Sequence[str]) -> str | None:
    """Return what to install, if `text` reports a missing launcher, sweeper or logging."""
    for group, option in re.findall(r"'(hydra/\w+)/(\w+)'", text):
        if extra := EXTRAS.get(option):
            requested = [word for word in command if word.startswith(f"{group}=")]
            what = requested[-1] if requested else f"{group}={option}"
            return f"{what}: is not installed here; pip install 'attnsvm[{extra}]' installs it"
    return None


def _meant(text: str) -> str:
    """Return Hydra's message; in front of a list of options, the one that is probably meant."""
    requested = re.search(r"Could not find '([^']+)'", text)
    start, here, listed = text.partition("Available options in ")
    if requested is None or not listed:
        return text
    meant = did_you_mean(requested[1].rpartition("/")[2], listed.split("\n\t")[1:])
    return f"{start}{meant.strip()}\n{here}{listed}" if meant else text


def search_message(error: BaseException) -> str | None:
    """Return why a search ended without a result, None if `error` is another one."""
    meaning = SEARCH_ENDS.get(str(error))
    return f"the search has no result: {meaning}; the log says why" if meaning else None


def _os_message(error: BaseException) -> str | None:
    if not isinstance(error, OSError):
        return None
    return f"{error.filename2 or error.filename or 'file system'}: {error.strerror or error}"
