"""Training of a whole batch of instances, and its result."""

from attnsvm.training.batch import chunk_size, train, train_chunks
from attnsvm.training.span import in_span, span_basis
from attnsvm.training.trajectory import STALLED, TrainingStatus, Trajectory

__all__ = [
    "STALLED",
    "TrainingStatus",
    "Trajectory",
    "chunk_size",
    "in_span",
    "span_basis",
    "train",
    "train_chunks",
]
