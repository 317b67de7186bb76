"""The report of a sweep: tables, figures and one HTML page from its records."""

from attnsvm.record import one_line
from sweeps.report.command import main
from sweeps.report.write import ReportFiles, write_report

__all__ = ["ReportFiles", "main", "one_line", "write_report"]
