"""Benchmarks: scripts that print a table and write a JSON report; never timed tests."""
