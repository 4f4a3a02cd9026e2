"""Multimodal language models over a joint embedding (Kiros et al. 2014)."""

from vsemb.registry import System

SYSTEM = System(
    name="language",
    modes={"annotate": {"pos-tags": "vsemb.systems.language.annotate_command"}},
    train_inputs={"encoder": "the kiros2014 run whose sentence vectors the model is conditioned on"},
)
