"""Implementation of the bulk jobs `pipelines.beam_prepare` and `pipelines.beam_embed`."""
