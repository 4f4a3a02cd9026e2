"""Report of a run: one self-contained HTML file with metrics, examples, failures and training curves."""
