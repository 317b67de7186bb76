"""The code that made a record; `mixed_code=true` allows records of several codes in a folder."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from attnsvm.config import ConfigError
from attnsvm.config.code import code_digest
from attnsvm.record.run import RUN_FILE
from attnsvm.record.state import run_state
from attnsvm.record.text import shortened


def refuse_mixed_code(folder: Path, extensions: Iterable[list[str]]) -> None:
    """Raise ConfigError if the sweep's folder holds records that other code made.

    Parameters
    ----------
    folder : Path
        The sweep's folder.
    extensions : iterable of list of str
        The extension packages of every run that is to be added.
    """
    own = {code_digest("attnsvm", *names) for names in extensions}
    states = (run_state(p.parent, verify=False) for p in folder.glob(f"*/{RUN_FILE}"))
    others = Counter(
        shortened(f"version {state.run['version']}, code {state.run['code']}", 60)
        for state in states
        if state.state == "done" and state.run["code"] not in own
    )
    if others:
        listed = "; ".join(f"{n} of {code}" for code, n in others.most_common(3))
        raise ConfigError(
            f"{folder}: holds records made by other code ({listed}). Choose another folder with "
            f"hydra.sweep.dir=DIR, or move this folder away, or allow both codes with "
            f"mixed_code=true"
        )
