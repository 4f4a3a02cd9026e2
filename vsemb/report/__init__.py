"""Report of a run: one self-contained HTML file with metrics, examples, failures and training curves."""

from vsemb.report.page import write_report

__all__ = ["write_report"]
