"""Faults as test input: kills, full disks, rivals and flipped bytes; `python -m tests.faults` prints the table."""
