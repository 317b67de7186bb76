"""Any column against any other: the question, its numbers, its figure."""

from .answer import Chart, answer, shown
from .question import ESTIMATORS, KINDS, ChartError, Parts, Question, Tables, asked

__all__ = [
    "ESTIMATORS", "KINDS", "Chart", "ChartError", "Parts", "Question", "Tables", "answer", "asked",
    "shown",
]  # fmt: skip
