"""Tracking: at the end of a sweep its driver logs the records on disk to a tracking tool."""

from sweeps.tracking.mlflow import Mlflow
from sweeps.tracking.tensorboard import Tensorboard
from sweeps.tracking.tracker import TrackedRun, Tracker
from sweeps.tracking.wandb import Wandb

__all__ = ["Mlflow", "Tensorboard", "TrackedRun", "Tracker", "Wandb"]
