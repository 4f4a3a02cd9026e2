"""Readers of datasets of classes."""
