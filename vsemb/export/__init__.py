"""Export room: a trained model as a SavedModel with string and byte inputs."""

from vsemb.export.card import ModelFacts
from vsemb.export.contract import About
from vsemb.export.corpus import Corpus
from vsemb.export.savedmodel import export_savedmodel
from vsemb.export.served_model import Exportable, ImageInput, ServedModel, Signature, TextInput

__all__ = [
    "About",
    "Corpus",
    "Exportable",
    "ImageInput",
    "ModelFacts",
    "ServedModel",
    "Signature",
    "TextInput",
    "export_savedmodel",
]
