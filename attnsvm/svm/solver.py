"""The interface of every attention-SVM solver."""

from __future__ import annotations

from abc import ABC, abstractmethod

from attnsvm.norm import Norm
from attnsvm.svm.problem import SvmProblem
from attnsvm.svm.solution import Candidate


class Solver(ABC):
    """A method for  min norm(W)  under the rows of a problem.

    A solver returns candidates. `attnsvm.svm.certificate` computes from the problem alone what a
    candidate proves. Where it stops is in `attnsvm.svm.tolerances`.

    Attributes
    ----------
    norm : str or Norm
        The norm to minimise.
    """

    norm: str | Norm

    @abstractmethod
    def candidates(self, problem: SvmProblem) -> Candidate:
        """Return W, multipliers and rays of every instance of a batch; NaN where none is found."""
