"""Image features: computed once, kept on disk, read by rows."""
