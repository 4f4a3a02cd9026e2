"""Hypernymy as order of concept vectors."""
