"""Image room: bytes to pixels to features; guarded decoding, crops, backbones."""
