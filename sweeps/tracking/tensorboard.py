"""Tracking with TensorBoard."""

from __future__ import annotations

import shutil
import struct
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .tracker import TrackedRun, Tracker

PART = ".part"
"""End of the name of a run's folder while it is written."""


class Tensorboard(Tracker):
    """Log into the folder `tensorboard` of the sweep: config, metrics, figures (PNG)."""

    package = "tensorboard"

    def open(self, folder: Path) -> str:
        """Choose the folder of the event files."""
        self.folder = folder / "tensorboard"
        return str(self.folder)

    def logged(self) -> set[str]:
        """Return the runs that are complete."""
        return {path.name for path in self.folder.glob("*") if not path.name.endswith(PART)}

    def log_run(self, run: TrackedRun) -> None:
        """Add a run: its config for the table of hyperparameters, each metric as a scalar."""
        from tensorboard.plugins.hparams.summary_v2 import hparams_pb
        from tensorboard.plugins.scalar.summary_v2 import scalar_pb

        config = {
            name: value if isinstance(value, bool | int | float) else str(value)
            for name, value in run.config.items()
        }
        scalars = [scalar_pb(name, value) for name, value in run.metrics.items()]
        self._write(run.name, [hparams_pb(config, trial_id=run.name), *scalars])

    def log_files(self, name: str, files: Mapping[str, Path]) -> None:
        """Add the figures that are PNG; a later report replaces them."""
        from tensorboard.compat.proto.summary_pb2 import Summary

        images = {place: path.read_bytes() for place, path in files.items() if place[-4:] == ".png"}
        values = [
            Summary.Value(tag=place[:-4], image=_image(Summary.Image, png))
            for place, png in images.items()
        ]
        self._write(f"figures of {name}", [Summary(value=[value]) for value in values])

    def _write(self, name: str, summaries: list[Any]) -> None:
        """Write an event file of `summaries` in a folder `name`, which appears when it is whole."""
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.summary.writer.event_file_writer import EventFileWriter

        part = self.folder / f"{name}{PART}"
        shutil.rmtree(part, ignore_errors=True)
        writer = EventFileWriter(str(part))
        for summary in summaries:
            writer.add_event(Event(wall_time=time.time(), step=0, summary=summary))
        writer.close()
        whole = self.folder / name
        shutil.rmtree(whole, ignore_errors=True)
        part.replace(whole)


def _image(kind: Any, png: bytes) -> Any:
    width, height = struct.unpack(">II", png[16:24])  # of the header IHDR
    return kind(height=height, width=width, colorspace=4, encoded_image_string=png)
