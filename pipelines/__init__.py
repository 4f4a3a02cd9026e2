"""Runnable end-to-end pipelines over the public API and the command line."""
