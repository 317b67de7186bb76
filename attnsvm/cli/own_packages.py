"""Our own `conf` and `sweeps`, even if the user has packages of these names.

The current folder may come first on Python's path: a package found there would replace ours. So
Hydra gets `conf` as a folder, and `sweeps` is imported from its place. The commands
`attnsvm-report`, `attnsvm-status` and `attnsvm-claims` start here for this reason.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.machinery import PathFinder
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).parents[2]
"""The folder that contains attnsvm, conf and sweeps."""

CONF = ROOT / "conf"


SWEEPS = ROOT / "sweeps" / "__init__.py"


def use_own_sweeps() -> None:
    """Import `sweeps` from the folder that contains attnsvm, unless already done."""
    if getattr(sys.modules.get("sweeps"), "__file__", None) == str(SWEEPS):
        return
    place = [str(SWEEPS.parent)]
    spec = spec_from_file_location("sweeps", SWEEPS, submodule_search_locations=place)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    sys.modules["sweeps"] = module
    spec.loader.exec_module(module)


_loaded: dict[str, ModuleType] = {}
"""Our modules while the user's package of the same name is imported."""


@contextmanager
def own_sweeps() -> Iterator[None]:
    """Import our `sweeps` within this context; a package of the user's is there again afterwards.

    A command can do without: no other program runs in it.
    """
    theirs = _take_modules()
    if getattr(theirs.get("sweeps"), "__file__", None) == str(SWEEPS):
        sys.modules.update(theirs)
        yield
        return
    sys.modules.update(_loaded)
    use_own_sweeps()
    try:
        yield
    finally:
        found = PathFinder.find_spec("sweeps")
        if theirs or found is None or found.origin != str(SWEEPS):
            _loaded.update(_take_modules())
            sys.modules.update(theirs)


def _take_modules() -> dict[str, ModuleType]:
    """Remove `sweeps` and what is in it from the imported modules, and return it."""
    names = [name for name in sys.modules if name.partition(".")[0] == "sweeps"]
    return {name: sys.modules.pop(name) for name in names}


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


def claims() -> int:
    """Run `attnsvm-claims`."""
    use_own_sweeps()
    from sweeps.verdicts import main

    return main()
