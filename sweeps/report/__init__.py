"""The report of a sweep: tables, figures and one HTML page from its records."""

from attnsvm.record import one_line

from .command import main
from .write import ReportFiles, write_report

__all__ = ["ReportFiles", "main", "one_line", "write_report"]
