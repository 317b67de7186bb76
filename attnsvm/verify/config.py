"""What follows from a recorded config: its signature, its folder's name, its plan."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from attnsvm.config import GROUPS
from attnsvm.config.identity import digest, file_content, folder_name, named_files


def config_refusals(run: Mapping[str, Any], folder: Path) -> Iterator[str]:
    """Yield what is wrong with the signature of a `run.json`, and with its folder's name."""
    contents = _contents(run)
    if None not in contents and run["signature"] != _signature(run):
        files = " and the files that it names, which are here" if contents else ""
        yield f"signature: is not that of the config{files}"
    if re.search("-[0-9a-f]{12}$", folder.name):
        name = folder_name(run["options"], run["config"]["data"], run["signature"])
        if folder.name != name:
            yield f"folder: its name must be {name}"


def files_are_here(run: Mapping[str, Any]) -> bool:
    """Return whether the files of a config have the content that the run was started with."""
    return None not in _contents(run) and run["signature"] == _signature(run)


def with_files_beside(run: Mapping[str, Any], folder: Path) -> Mapping[str, Any]:
    """Return a `run.json`; a file that is not at its path is looked for beside the record.

    Its name counts there, in the folder of the run or of its sweep. The signature says whether it
    is the same file.
    """
    moved = copy.deepcopy(dict(run))
    for part, key in named_files(moved["config"]):
        if file_content(part, key) is None:
            near = (place / Path(part[key]).name for place in (folder, folder.parent))
            part[key] = next((str(path) for path in near if path.exists()), part[key])
    return moved


def _contents(run: Mapping[str, Any]) -> list[str | None]:
    """Return the sha256 of the files that a config names; None of one that is not here."""
    return [file_content(node, key) for node, key in named_files(run["config"])]


def _signature(run: Mapping[str, Any]) -> str:
    return digest({**run["config"], "extensions": run["extension_code"]}, run["version"])


def plan_refusals(run: Mapping[str, Any], overrides: Sequence[str]) -> Iterator[str]:
    """Yield overrides of the plan `key=value` that the recorded config contradicts."""
    for override in overrides:
        key, _, text = str(override).lstrip("+").partition("=")
        if key in ("sweep", "question", "device"):
            found: Any = run.get(key)
        elif key in run["options"]:
            found = run["options"][key] if text in GROUPS[key].own else _ABSENT  # else one's own
        else:
            found = run["config"]
            for part in key.split("."):
                found = found.get(part, _ABSENT) if isinstance(found, Mapping) else _ABSENT
        if found is not _ABSENT and not _is(found, text):
            yield f"the plan says {override}, the config has {found}"


_ABSENT = object()

BOOLEANS = {
    **dict.fromkeys(("true", "yes", "y", "on", "1"), True),
    **dict.fromkeys(("false", "no", "n", "off", "0"), False),
}
"""What a command line may write for a boolean."""


def _is(found: Any, text: str) -> bool:
    """Return whether the text of a command line means the value; True for lists and mappings."""
    if isinstance(found, Mapping | list) or text[:1] in ("{", "[", "'", '"', "$"):
        return True
    if found is None:
        return text.lower() in ("null", "none", "")
    if isinstance(found, bool):
        return BOOLEANS.get(text.lower(), found) == found
    if isinstance(found, int | float):
        try:
            return float(text) == found
        except ValueError:
            return True  # a number that only Hydra reads is not compared
    return str(found) == text.replace("\\", "")
