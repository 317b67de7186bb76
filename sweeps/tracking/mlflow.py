"""Tracking with MLflow."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from .tracker import TrackedRun, Tracker

SIGNATURE = "attnsvm.signature"


class Mlflow(Tracker):
    """Log to MLflow.

    Parameters
    ----------
    uri : str, optional
        Tracking server; by default the file `mlflow.db` in the sweep's folder, which
        `mlflow ui --backend-store-uri sqlite:///mlflow.db` displays without a network.
    experiment : str
        Name of the experiment on that server.
    """

    package = "mlflow"

    def __init__(self, uri: str | None = None, experiment: str = "attnsvm") -> None:
        super().__init__()
        self.uri, self.experiment = uri, experiment

    def open(self, folder: Path) -> str:
        """Find or make the experiment; without a server its files are in the folder too."""
        from mlflow.tracking import MlflowClient

        place = self.uri or f"sqlite:///{folder}/mlflow.db"
        self.client = MlflowClient(tracking_uri=place)
        found = self.client.get_experiment_by_name(self.experiment)
        files = None if self.uri else (folder / "mlflow").as_uri()
        self.number = (
            str(found.experiment_id)
            if found is not None
            else str(self.client.create_experiment(self.experiment, artifact_location=files))
        )
        return place

    def logged(self) -> set[str]:
        """Return the runs of the experiment, which is read page by page."""
        runs, token = [], None
        while True:
            page = self.client.search_runs([self.number], max_results=1000, page_token=token)
            runs += page
            token = page.token
            if not token:
                return {run.data.tags.get(SIGNATURE, "") for run in runs}

    def log_run(self, run: TrackedRun) -> None:
        """Add a run."""
        made = self._begun(run.name, run.name)
        for name, value in run.config.items():
            self.client.log_param(made, name, value)
        for name, metric in run.metrics.items():
            self.client.log_metric(made, name, metric)
        self.client.set_terminated(made)

    def log_files(self, name: str, files: Mapping[str, Path]) -> None:
        """Add the files as artifacts of a run of their own."""
        made = self._begun(name, f"figures of {name}")
        for place, path in files.items():
            self.client.log_artifact(made, str(path), str(Path(name, place).parent))
        self.client.set_terminated(made)

    def _begun(self, name: str, signature: str) -> str:
        tags = {SIGNATURE: signature}
        return str(self.client.create_run(self.number, run_name=name, tags=tags).info.run_id)
