"""Our own `conf` and `sweeps`, even if the user has packages of these names.

The current folder may come first on Python's path: a package found there would replace ours. So
Hydra gets `conf` as a folder, and `sweeps` is imported from its place. The commands
`attnsvm-report` and `attnsvm-status` start here for this reason.
"""

from __future__ import annotations

import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

ROOT = Path(__file__).parents[2]
"""The folder that contains attnsvm, conf and sweeps."""

CONF = ROOT / "conf"


def use_own_sweeps() -> None:
    """Import `sweeps` from the folder that contains attnsvm, unless already done."""
    place = ROOT / "sweeps" / "__init__.py"
    if getattr(sys.modules.get("sweeps"), "__file__", None) == str(place):
        return
    spec = spec_from_file_location("sweeps", place, submodule_search_locations=[str(place.parent)])
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    sys.modules["sweeps"] = module
    spec.loader.exec_module(module)


def report() -> int:
    """Run `attnsvm-report`."""
    use_own_sweeps()
    from sweeps.report import main

    return main()


def status() -> int:
    """Run `attnsvm-status`."""
    use_own_sweeps()
    from sweeps.status import main

    return main()
