"""The notebooks of the documentation; `make docs` runs each from a fresh kernel."""

from pathlib import Path

import nbformat
import pytest

ROOT = Path(__file__).parents[1]
NOTEBOOKS = sorted((ROOT / "docs/notebooks").glob("*.ipynb"))
EXECUTED = ROOT / "build/jupyter_execute/notebooks"


def read(path):
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    return notebook


@pytest.mark.site
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_of_the_site_has_run_and_drawn(path):
    run = read(EXECUTED / path.name)
    code = [cell for cell in run.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in code] == list(range(1, len(code) + 1))
    drawn = [cell for cell in code if ".plot(" in cell.source]
    assert drawn
    for cell in drawn:
        assert any("image/png" in output.get("data", {}) for output in cell.outputs), cell.source


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_stored_without_output(path):
    code = [cell for cell in read(path).cells if cell.cell_type == "code"]
    assert all(not cell.outputs and cell.execution_count is None for cell in code)
