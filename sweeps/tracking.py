"""Tracking with MLflow: at the end of a sweep its driver logs the records on disk.

Each record is identified by its signature and logged once, independent of the process, machine or
launcher that made it, and of how often the sweep was resumed.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pandas as pd
from hydra.experimental.callback import Callback
from omegaconf import DictConfig

log = logging.getLogger(__name__)

SIGNATURE = "attnsvm.signature"


class Mlflow(Callback):
    """Log parameters, metrics and figures to MLflow.

    Parameters
    ----------
    uri : str, optional
        Tracking server; by default the file `mlflow.db` in the sweep's folder, which
        `mlflow ui --backend-store-uri sqlite:///mlflow.db` displays without a network.
    experiment : str
        Name of the experiment on that server.
    """

    def __init__(self, uri: str | None = None, experiment: str = "attnsvm") -> None:
        self.uri, self.experiment = uri, experiment

    def on_run_end(self, config: DictConfig, **kwargs: Any) -> None:
        """Log a single run."""
        self._log(Path(config.hydra.runtime.output_dir))

    def on_multirun_end(self, config: DictConfig, **kwargs: Any) -> None:
        """Log the sweep's figures and those of its runs that are not logged yet."""
        self._log(Path(config.hydra.sweep.dir))

    def _log(self, folder: Path) -> None:
        from mlflow.tracking import MlflowClient

        from sweeps.aggregate import load

        if not folder.is_dir():
            return  # a dry run creates no folder
        uri = self.uri or f"sqlite:///{folder.resolve()}/mlflow.db"
        client = MlflowClient(tracking_uri=uri)
        experiment = self._experiment(client, folder)
        logged = _signatures(client, experiment)
        frames = load(folder)
        for _, row in frames.runs[frames.runs["state"] == "done"].iterrows():
            if row["run"] not in logged:
                trials = frames.trials[frames.trials["run"] == row["run"]]
                _log_run(client, experiment, row, trials.median(numeric_only=True))
        _log_figures(client, experiment, folder)
        log.info("tracked in %s", uri)

    def _experiment(self, client: Any, folder: Path) -> str:
        """Return the experiment's id; without a server its files are stored in the folder too."""
        found = client.get_experiment_by_name(self.experiment)
        if found is None:
            files = None if self.uri else (folder / "mlflow").resolve().as_uri()
            return str(client.create_experiment(self.experiment, artifact_location=files))
        return str(found.experiment_id)


def _signatures(client: Any, experiment: str) -> set[str]:
    runs, token = [], None
    while True:
        page = client.search_runs([experiment], max_results=1000, page_token=token)
        runs += page
        token = page.token
        if not token:
            return {run.data.tags.get(SIGNATURE, "") for run in runs}


def _log_run(client: Any, experiment: str, row: pd.Series[Any], medians: pd.Series[float]) -> None:
    run = client.create_run(experiment, run_name=row["run"], tags={SIGNATURE: row["run"]})
    metrics = ("wall_s", "drawn", "accepted", "wanted")
    for name, value in row.items():
        if name in metrics:
            client.log_metric(run.info.run_id, name, float(value))
        elif pd.notna(value) and name not in ("run", "state", "reason"):
            client.log_param(run.info.run_id, name, value)
    for name, median in medians.items():
        if pd.notna(median) and name not in row:
            client.log_metric(run.info.run_id, f"median_{name}", float(median))
    client.set_terminated(run.info.run_id)


def _log_figures(client: Any, experiment: str, folder: Path) -> None:
    files = [*folder.glob("figures/*"), *folder.glob("tables/*"), *folder.glob("report.html")]
    if not files:
        return
    tags = {SIGNATURE: f"figures of {folder.name}"}
    run = client.create_run(experiment, run_name=folder.name, tags=tags)
    for path in files:
        client.log_artifact(run.info.run_id, str(path), path.parent.name)
    client.set_terminated(run.info.run_id)
