"""Figures of sweeps that are not attnsvm's own: a module beside the sweep file, or of a plug-in."""

from __future__ import annotations

import importlib
from collections.abc import Iterable
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

from attnsvm.config.plugins import declared_modules


def own_figures(sweep: str, folders: Iterable[Path]) -> ModuleType | None:
    """Return the module that draws a sweep; None if there is none.

    It is `DIR/sweep/NAME.py` for one of the folders, or the module that a plug-in declares under
    the name of the sweep in its group `figures`.

    Raises
    ------
    TypeError
        If the module lacks `tables` or `draw`, or if plug-ins declare several.
    """
    if not sweep.isidentifier():  # the name may come from a record
        return None
    found = None
    files = [path for folder in folders if (path := folder / f"sweep/{sweep}.py").is_file()]
    declared = declared_modules("figures", sweep)
    if files:
        found = _from_file(files[0])
    elif len(declared) > 1:
        raise TypeError(f"figures of sweep={sweep}: {', '.join(declared)}; must be one module")
    elif declared:
        found = importlib.import_module(declared[0])
    if found is not None and not (hasattr(found, "tables") and hasattr(found, "draw")):
        raise TypeError(f"{found.__file__}: must have the functions tables and draw")
    return found


def _from_file(path: Path) -> ModuleType:
    spec = spec_from_file_location(f"figures_of_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
