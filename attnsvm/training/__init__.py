"""Training of a whole batch of instances, and its result."""

from attnsvm.training.batch import chunk_size, train, train_chunks
from attnsvm.training.compiled import uncompiled
from attnsvm.training.span import in_span, span_basis
from attnsvm.training.start import check_start, in_cone
from attnsvm.training.trajectory import STALLED, TrainingStatus, Trajectory
