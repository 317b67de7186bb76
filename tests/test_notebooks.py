"""The notebooks of the documentation run from a fresh kernel, in an empty folder."""

from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

NOTEBOOKS = sorted((Path(__file__).parents[1] / "docs/notebooks").glob("*.ipynb"))


def executed(notebook, folder):
    resources = {"metadata": {"path": str(folder)}}
    return NotebookClient(notebook, timeout=300, resources=resources).execute()  # on 127.0.0.1


def read(path):
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    return notebook


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
@pytest.mark.full
def test_a_notebook_runs(path, tmp_path):
    run = executed(read(path), tmp_path)
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
