"""Recognition of classes by their descriptions or attributes."""
