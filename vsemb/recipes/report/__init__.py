"""The report of a run: one HTML file that shows what it has learned, and needs nothing else."""

from vsemb.recipes.report.captions import write_caption_report
from vsemb.recipes.report.page import write_report

__all__ = ["write_caption_report", "write_report"]
