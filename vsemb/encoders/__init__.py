"""Encoders: Keras layers that turn token ids or image features into one vector."""

from vsemb.encoders.bag import BagOfWordsEncoder
from vsemb.encoders.hybrid import HybridSentenceEncoder
from vsemb.encoders.image import ImageEncoder, PixelEncoder
from vsemb.encoders.linear import LinearSentenceEncoder
from vsemb.encoders.peephole import PeepholeLSTMCell
from vsemb.encoders.pooling import SequencePooling
from vsemb.encoders.recurrent import RecurrentSentenceEncoder
from vsemb.encoders.scaling import FeatureScaling
from vsemb.encoders.words import WordEmbedding

__all__ = [
    "BagOfWordsEncoder",
    "FeatureScaling",
    "HybridSentenceEncoder",
    "ImageEncoder",
    "LinearSentenceEncoder",
    "PeepholeLSTMCell",
    "PixelEncoder",
    "RecurrentSentenceEncoder",
    "SequencePooling",
    "WordEmbedding",
]
