"""Captions: recurrent models that write them, and their metrics."""
