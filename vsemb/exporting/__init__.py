"""Export of trained models as SavedModels with string and byte inputs."""

from vsemb.exporting.card import Figures, ModelFacts
from vsemb.exporting.contract import About
from vsemb.exporting.corpus import Corpus
from vsemb.exporting.savedmodel import export_savedmodel
from vsemb.exporting.served_inputs import ImageInput, TextInput
from vsemb.exporting.served_model import ServedModel
from vsemb.exporting.signatures import Exportable, Signature

__all__ = [
    "About",
    "Corpus",
    "Exportable",
    "Figures",
    "ImageInput",
    "ModelFacts",
    "ServedModel",
    "Signature",
    "TextInput",
    "export_savedmodel",
]
