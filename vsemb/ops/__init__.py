"""Pure functions over tensors, written with `keras.ops`; no state, no layers."""
