"""Report of a run: one self-contained HTML file with metrics, examples, failures and training curves."""

from vsemb.report.page import report_run

__all__ = ["report_run"]
