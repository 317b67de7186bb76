"""Tracking: at the end of a sweep its driver logs the records on disk to a tracking tool."""

from .mlflow import Mlflow
from .tensorboard import Tensorboard
from .tracker import TrackedRun, Tracker
from .wandb import Wandb

__all__ = ["Mlflow", "Tensorboard", "TrackedRun", "Tracker", "Wandb"]
