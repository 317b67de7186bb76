"""The page that follows one run names files and functions that exist, and not too many files."""

import importlib
import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs/how_a_run_works.md").read_text()
ROWS = re.findall(r"^\| `(attnsvm/\S+\.py)` \| (.*) \|$", PAGE, re.MULTILINE)
BRANCHES = re.findall(r"`Stages\.(\w+)`", PAGE)


def test_every_named_function_exists_in_its_file():
    assert ROWS
    for path, text in ROWS:
        module = path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        names = re.findall(r"`([A-Za-z][\w.]*)`", text)
        for name in names:
            found = importlib.import_module(module)
            if name in ("_target_", "run.json") or name.startswith("attnsvm"):
                continue
            for part in name.split("."):
                found = getattr(found, part)
    stages = importlib.import_module("attnsvm.experiment.stages")
    assert all(callable(getattr(stages.Stages, name)) for name in BRANCHES)
    assert set(stages.SELECTIONS) == {"top", "multi", "scc", "optimal"} < {*BRANCHES}


def test_one_run_is_followed_in_at_most_forty_files():
    files = set(re.findall(r"`(attnsvm/\S+\.py)`", PAGE))
    assert all((ROOT / path).is_file() for path in files)
    assert len(files) <= 40
    assert f"This page names {len(files)} files" in PAGE
