"""The fields of a recipe that describe its two towers."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class TextConfig:
    """The text tower.

    Attributes:
        tokenizer: `words`, `characters`, `trees` (dependency trees of the captions, see `vsemb parse`), or
            `classes`: the name of the image's class in place of its captions. `wordpiece`, `sentencepiece`
            (its unigram model) and `bpe` split words into pieces learned from the training captions; `hub:`
            and a preset of CLIP or SigLIP in keras-hub stands for the preset's pieces.
        min_count: words seen less often in the training captions are unknown, or teach no pieces.
        max_words: size limit of the vocabulary; null for all words, or for 4000 pieces of words.
        max_length: longer captions are cut to so many words, pieces or characters.
        word_dim: size of a word vector.
        word_vectors: path of pretrained vectors (GloVe or word2vec text format), or `captions` for
            vectors from which words stand together in the training captions.
        train_words: whether word vectors are trained.
        word_init_scale: random word vectors are uniform in +- this.
        dense_gradient: whether a word's gradients are added up before the optimizer squares them, see
            `vsemb.encoders.WordEmbedding`.
        word_dropout: share of words replaced by the unknown word in training.
        embedding_dropout: share of word-vector entries dropped in training.
        encoder: `gru`, `lstm` or `peephole-lstm`; `sum` or `mean` of word vectors, `average` (their mean
            and a linear map) or `bow` (which words are there, and a linear map); `cnn`, or `cnn-rnn`,
            `cnn-gru`, `cnn-lstm`; `transformer`; `attributes` of the classes, with the tokenizer `classes`;
            `tree-lstm` or `child-sum-tree-lstm`, with the tokenizer `trees`. Where the similarity
            compares sets, a vector a word in its context, by `brnn` (of Karpathy & Fei-Fei), `gru` or `lstm`.
            Or `hub:` and the preset that the tokenizer names, for its text tower, with an affine map behind
            it where its size is not embedding_dim.
        weights: of a preset's text tower: `preset` for its own, null for random ones.
        units: size of the recurrent state of each direction, of a node of a tree, or of a word in the
            `transformer`; of the layer behind the convolutions of `cnn`.
        layers: of `transformer`, its blocks.
        heads: of `transformer`, the attention heads of a block; they divide `units`.
        feed_forward: of `transformer`, the size of the inner layer of a block; null for 4 times `units`.
        pre_norm: of `transformer`, whether a block normalises what it reads, and not what comes out.
        slots: of `tree-lstm`, the children on each side of a node that have matrices of their own; those
            beyond are summed into the last.
        directions: `forward`, `concat` or `average`, of a recurrent encoder.
        pooling: `last`, which is the root of a tree and the last word of `transformer`, `mean`, `max` or
            `mean+max`.
        dropout: share of pooled entries dropped in training; of `transformer` also within its blocks.
        bag: whether a bag of words stands beside the recurrent or the tree encoder.
        bag_dropout: share of the bag's words left out in training.
        init_scale: recurrent weights, or those of a `transformer`'s blocks, uniform in +- this; null for
            Keras' defaults.
    """

    tokenizer: str = "words"
    min_count: int = 1
    max_words: int | None = None
    max_length: int = 64
    word_dim: int = 300
    word_vectors: str | None = None
    train_words: bool = True
    word_init_scale: float = 0.1
    dense_gradient: bool = False
    word_dropout: float = 0.0
    embedding_dropout: float = 0.0
    encoder: str = "gru"
    weights: str | None = None
    units: int = 1024
    layers: int = 2
    heads: int = 8
    feed_forward: int | None = None
    pre_norm: bool = True
    slots: int = 2
    directions: str = "forward"
    pooling: str = "last"
    dropout: float = 0.0
    bag: bool = False
    bag_dropout: float = 0.0
    init_scale: float | None = None


@dataclass(frozen=True)
class ImageConfig:
    """The image tower.

    Attributes:
        features: fingerprint of the cache of features, or with `regions` of that of regions; null takes the
            dataset's only one.
        regions: whether an image is a set of regions (see `vsemb regions`), as similarities of sets want.
        most_regions: only the first so many regions of an image, 1 for the whole image alone; null for all.
        backbone: null to start from cached features; otherwise the backbone to train from pixels, or `hub:`
            and a preset of keras-hub.
        weights: the backbone's weights: `imagenet`, `preset` for a preset's own, the path of a file or of a
            run that was trained from pixels, or null for random ones.
        size: side of the input in pixels; null for the backbone's own.
        pooling: of the backbone's last map; null for its own.
        layer: an inner layer of the backbone instead.
        frozen_statistics: batch normalisation keeps its stored statistics (for pretrained weights).
        augment: in training, random crops and mirror images where the backbone is trained, and mirror
            images or crops where the feature cache has them.
        policy: what else is done to training images where the backbone is trained: `randaugment` or
            `autoaugment`, see `vsemb.image.augmentation` (extra `models`).
        policy_magnitude: of `randaugment`, how strong its operations are, from 0 to 30.
        policy_layers: of `randaugment`, how many operations an image gets.
        erasing: probability that a rectangle of a training image becomes noise, likewise.
        projection: whether features pass an affine map; without, they are the embedding as they are, and
            their size takes the place of embedding_dim.
        use_bias: whether the affine map has a bias.
        dropout: share of features dropped in training.
        standardize: whether features are evened out first, see `vsemb.encoders.FeatureScaling`.
        init_scale: the map starts uniform in +- this; null for Glorot's.
    """

    features: str | None = None
    regions: bool = False
    most_regions: int | None = None
    backbone: str | None = None
    weights: str | None = None
    size: int | None = None
    pooling: str | None = None
    layer: str | None = None
    frozen_statistics: bool = True
    augment: bool = True
    policy: str | None = None
    policy_magnitude: float = 10.0
    policy_layers: int = 2
    erasing: float = 0.0
    projection: bool = True
    use_bias: bool = True
    dropout: float = 0.0
    standardize: bool = False
    init_scale: float | None = None
