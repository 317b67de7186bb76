"""The documentation is run, and what it points to exists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]


def test_the_library_page_runs_from_top_to_bottom():
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "docs/library.md").read_text(), re.DOTALL)
    assert len(blocks) >= 6
    scope: dict[str, object] = {}
    for block in blocks:
        exec(block, scope)
    assert scope["W_svmeq"].shape == (10, 6, 6)


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_links_and_paths_exist(page):
    text = page.read_text()
    for target in re.findall(r"\]\((?!https?://|#)([^)#]+)", text):
        assert (page.parent / target).exists(), target
    for path in re.findall(r"`((?:attnsvm|sweeps|conf|tests|docs|benchmarks)/[\w/.]+)`", text):
        if "my_" not in path:
            assert (ROOT / path).exists(), path


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_commands_name_what_exists(page):
    text = page.read_text()
    for sweep in re.findall(r"sweep=(\w+)", text):
        assert sweep in ("NAME", "my_sweep") or (ROOT / f"conf/sweep/{sweep}.yaml").exists(), sweep
    for group, option in re.findall(
        r"\b(model|parameterization|head|data|optimizer|loss|selection|svm)=(\w+)", text
    ):
        assert (ROOT / f"conf/{group}/{option}.yaml").exists(), f"{group}={option}"
    for target in re.findall(r"^ *make ([\w-]+)", text, re.MULTILINE):
        assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text(), re.MULTILINE), target
