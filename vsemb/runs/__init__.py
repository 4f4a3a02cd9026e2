"""Runs: directories that are made, opened, resumed, measured and exported."""
