"""Any column against any other: the question, its numbers, its figure."""

from .answer import Chart, answer, shown
from .question import ChartError, Question, Tables, asked
