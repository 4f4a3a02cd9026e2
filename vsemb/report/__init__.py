"""The report of a run: one HTML file that shows what it has learned, and needs nothing else."""

from vsemb.report.page import write_report

__all__ = ["write_report"]
