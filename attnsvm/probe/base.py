"""What a probe sees, and what it must do."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from attnsvm.loss import Loss
from attnsvm.problem import ProblemBatch
from attnsvm.svm import SvmSolution


@dataclass(frozen=True, eq=False)
class Snapshot:
    """The state of a batch at one recorded step.

    Attributes
    ----------
    batch : ProblemBatch
        B instances.
    step : float
        Number of updates; for a regularisation path the radius.
    W : Tensor
        Combined weights, shape (B, d, d); finite.
    K, Q : Tensor or None
        Factors, shape (B, d, m); only for a probe with `FACTORS`.
    softmax : Tensor
        Attention s, shape (B, n, T); 0 at inadmissible tokens.
    selected : Tensor
        The token that each sample attends to most at the end of training, int64 of shape (B, n).
    loss : Loss
        The loss of the run.
    solutions : mapping of str to SvmSolution
        The SVMs of the selected tokens by norm, those that the run solves; with selection=multi
        the margin part W_mm of Gen-SVM.
    """

    batch: ProblemBatch
    step: float
    W: Tensor
    K: Tensor | None
    Q: Tensor | None
    softmax: Tensor
    selected: Tensor
    loss: Loss
    solutions: Mapping[str, SvmSolution[Tensor]]


class Probe(ABC):
    """Measures the quantities that its schema declares, of every instance by itself."""

    FACTORS: ClassVar[bool] = False
    """Whether it needs K and Q."""

    SOLUTIONS: ClassVar[bool] = False
    """Whether it needs the SVMs of the selected tokens."""

    GEN_SVM: ClassVar[bool] = False
    """Whether it also measures against Gen-SVM, whose problems have equalities."""

    WEIGHTS: ClassVar[bool] = False
    """Whether it needs the weights that come with data=pretrained."""

    def check(self, d: int) -> None:  # noqa: B027
        """Raise ConfigError if it cannot measure weights of shape (d, d)."""

    @abstractmethod
    def measure(self, snapshot: Snapshot) -> Mapping[str, Tensor]:
        """Return every declared quantity, float64 of shape (B,); NaN where it is not defined."""
