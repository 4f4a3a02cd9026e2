"""Encoders: Keras layers that turn token ids or image features into one vector, or a set of them."""

from vsemb.encoders.attributes import AttributeEncoder
from vsemb.encoders.bag import BagOfWordsEncoder
from vsemb.encoders.convolutional import CHARACTER_STAGES, WORD_STAGES, ConvolutionalSentenceEncoder
from vsemb.encoders.hybrid import HybridSentenceEncoder
from vsemb.encoders.image import ImageEncoder, PixelEncoder
from vsemb.encoders.indicator import IndicatorEncoder
from vsemb.encoders.linear import LinearSentenceEncoder
from vsemb.encoders.peephole import PeepholeLSTMCell
from vsemb.encoders.places import PlaceEncoder
from vsemb.encoders.pooling import SequencePooling
from vsemb.encoders.preset_text import PresetTextEncoder
from vsemb.encoders.projected import ProjectedGRUCell, ProjectedLSTMCell
from vsemb.encoders.rectified import RectifiedCell
from vsemb.encoders.recurrent import RecurrentSentenceEncoder
from vsemb.encoders.regions import RegionEncoder
from vsemb.encoders.scaling import FeatureScaling
from vsemb.encoders.transformer import TransformerSentenceEncoder
from vsemb.encoders.tree_lstm import TreeLSTMEncoder
from vsemb.encoders.twin import TwinColumn
from vsemb.encoders.word_sequence import WordSequenceEncoder
from vsemb.encoders.words import WordEmbedding

__all__ = [
    "CHARACTER_STAGES",
    "WORD_STAGES",
    "AttributeEncoder",
    "BagOfWordsEncoder",
    "ConvolutionalSentenceEncoder",
    "FeatureScaling",
    "HybridSentenceEncoder",
    "ImageEncoder",
    "IndicatorEncoder",
    "LinearSentenceEncoder",
    "PeepholeLSTMCell",
    "PixelEncoder",
    "PlaceEncoder",
    "PresetTextEncoder",
    "ProjectedGRUCell",
    "ProjectedLSTMCell",
    "RecurrentSentenceEncoder",
    "RectifiedCell",
    "RegionEncoder",
    "SequencePooling",
    "TransformerSentenceEncoder",
    "TreeLSTMEncoder",
    "TwinColumn",
    "WordEmbedding",
    "WordSequenceEncoder",
]
