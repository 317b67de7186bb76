"""`attnsvm.load`: from the folders of runs to tidy tables."""

from __future__ import annotations

from os import PathLike
from typing import TYPE_CHECKING

from attnsvm.cli.own_packages import own_sweeps

if TYPE_CHECKING:
    from sweeps.loaded import LoadedSweep


def load(*paths: str | PathLike[str]) -> LoadedSweep:
    """Return the recorded runs of one or several folders.

    Parameters
    ----------
    *paths : str or path
        Folders of sweeps or of single runs; several are read as one sweep.

    Returns
    -------
    LoadedSweep
        Tables `trials`, `history` and `runs`, arrays by `solutions(run)`. Fields of the config are
        columns named as on the command line, as `data.d`.

    Raises
    ------
    FileNotFoundError
        If a folder does not exist or holds neither a plan nor a record.
    """
    with own_sweeps():
        from sweeps.loaded import load as loaded

        return loaded(*paths)
