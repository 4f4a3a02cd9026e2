"""Encoders: Keras layers that map token ids or image features to one vector or a set of vectors."""

from vsemb.encoders.bag import BagOfWordsEncoder, LinearSentenceEncoder
from vsemb.encoders.generalized_pooling import GeneralizedPooling
from vsemb.encoders.image import FeatureScaling, ImageEncoder, PixelEncoder
from vsemb.encoders.pooled_map import PooledMapEncoder
from vsemb.encoders.pooling import SequencePooling
from vsemb.encoders.recurrent import RecurrentSentenceEncoder
from vsemb.encoders.sequence_and_bag import SequenceAndBagEncoder
from vsemb.encoders.text_encoder import NGramEmbedding, WordEmbedding
from vsemb.encoders.transformer import TransformerSentenceEncoder

__all__ = [
    "BagOfWordsEncoder",
    "FeatureScaling",
    "GeneralizedPooling",
    "SequenceAndBagEncoder",
    "ImageEncoder",
    "LinearSentenceEncoder",
    "NGramEmbedding",
    "PixelEncoder",
    "PooledMapEncoder",
    "RecurrentSentenceEncoder",
    "SequencePooling",
    "TransformerSentenceEncoder",
    "WordEmbedding",
]
