"""The calls of MLflow's client that the callback makes; a page of a search holds one run."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlparse


class Page(list[SimpleNamespace]):
    """Runs, and the token of the next page."""

    token: str | None = None


class MlflowClient:
    """Experiments and runs in a JSON file at `tracking_uri`."""

    def __init__(self, tracking_uri: str) -> None:
        self._file = Path(tracking_uri.removeprefix("sqlite:///"))
        empty: dict[str, Any] = {"experiments": {}, "runs": []}
        self._store = json.loads(self._file.read_text()) if self._file.exists() else empty

    def get_experiment_by_name(self, name: str) -> SimpleNamespace | None:
        known = name in self._store["experiments"]
        return SimpleNamespace(experiment_id=name) if known else None

    def create_experiment(self, name: str, artifact_location: str) -> str:
        self._store["experiments"][name] = urlparse(artifact_location).path
        self._keep()
        return name

    def search_runs(
        self, experiment_ids: list[str], max_results: int = 1000, page_token: str | None = None
    ) -> Page:
        runs = [run for run in self._store["runs"] if run["experiment"] in experiment_ids]
        first = int(page_token or 0)
        page = Page(
            SimpleNamespace(
                info=SimpleNamespace(run_name=run["name"], status=run["status"]),
                data=SimpleNamespace(
                    params=run["params"], metrics=run["metrics"], tags=run["tags"]
                ),
            )
            for run in runs[first : first + 1]
        )
        page.token = str(first + 1) if first + 1 < len(runs) else None
        return page

    def create_run(
        self, experiment_id: str, run_name: str, tags: dict[str, str]
    ) -> SimpleNamespace:
        run = {"experiment": experiment_id, "name": run_name, "tags": tags, "status": "RUNNING"}
        self._store["runs"].append(run | {"params": {}, "metrics": {}})
        self._keep()
        return SimpleNamespace(info=SimpleNamespace(run_id=str(len(self._store["runs"]) - 1)))

    def log_param(self, run_id: str, key: str, value: Any) -> None:
        self._run(run_id)["params"][key] = str(value)
        self._keep()

    def log_metric(self, run_id: str, key: str, value: float) -> None:
        assert type(value) is float
        self._run(run_id)["metrics"][key] = value
        self._keep()

    def log_artifact(self, run_id: str, local_path: str, artifact_path: str) -> None:
        folder = Path(self._store["experiments"][self._run(run_id)["experiment"]])
        (folder / artifact_path).mkdir(parents=True, exist_ok=True)
        shutil.copy(local_path, folder / artifact_path)

    def set_terminated(self, run_id: str) -> None:
        self._run(run_id)["status"] = "FINISHED"
        self._keep()

    def _run(self, run_id: str) -> dict[str, Any]:
        run: dict[str, Any] = self._store["runs"][int(run_id)]
        return run

    def _keep(self) -> None:
        self._file.write_text(json.dumps(self._store))
