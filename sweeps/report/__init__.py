"""The report of a sweep: tables, figures and one HTML page from its records."""

from .command import main
from .write import ReportFiles, write_report
