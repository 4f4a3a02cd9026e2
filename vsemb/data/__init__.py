"""Data: datasets on disk, cached features, and batches for `fit`."""
