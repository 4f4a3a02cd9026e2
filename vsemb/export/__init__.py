"""Export room: a trained model as a SavedModel with string and byte inputs."""

from vsemb.export.card import ModelFacts
from vsemb.export.corpus import Corpus
from vsemb.export.image_input import ImageInput
from vsemb.export.savedmodel import export_captioner, export_savedmodel
from vsemb.export.signatures import ClassPrompts, ServedModel

__all__ = [
    "ClassPrompts",
    "Corpus",
    "ImageInput",
    "ModelFacts",
    "ServedModel",
    "export_captioner",
    "export_savedmodel",
]
