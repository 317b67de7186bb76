"""Any column against any other: what is drawn, its numbers, its figure."""

from .chart import Chart, chart_of
from .spec import ChartError, ChartSpec, chosen_rows, spec_of
