"""Run directories: create, open, resume, measure and export them."""
