"""Encoders: Keras layers that turn token ids or image features into one vector, or a set of them."""

from vsemb.encoders.bag import BagOfWordsEncoder
from vsemb.encoders.cells import PeepholeLSTMCell, ProjectedGRUCell, ProjectedLSTMCell, ReLUCell
from vsemb.encoders.hybrid import SequenceAndBagEncoder
from vsemb.encoders.image import ImageEncoder, PixelEncoder
from vsemb.encoders.linear import LinearSentenceEncoder
from vsemb.encoders.pooling import SequencePooling
from vsemb.encoders.preset_text import PresetTextEncoder
from vsemb.encoders.projection_mlp import ProjectionMLP
from vsemb.encoders.recurrent import RecurrentSentenceEncoder
from vsemb.encoders.scaling import FeatureScaling
from vsemb.encoders.transformer import TransformerSentenceEncoder
from vsemb.encoders.words import WordEmbedding

__all__ = [
    "BagOfWordsEncoder",
    "FeatureScaling",
    "SequenceAndBagEncoder",
    "ImageEncoder",
    "LinearSentenceEncoder",
    "PeepholeLSTMCell",
    "PixelEncoder",
    "PresetTextEncoder",
    "ProjectedGRUCell",
    "ProjectedLSTMCell",
    "RecurrentSentenceEncoder",
    "ReLUCell",
    "SequencePooling",
    "TransformerSentenceEncoder",
    "ProjectionMLP",
    "WordEmbedding",
]
