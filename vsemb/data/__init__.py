"""Data room: datasets on disk, cached features, and the batches that `fit` takes."""
