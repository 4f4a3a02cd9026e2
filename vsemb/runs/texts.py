"""The text side of a recipe: which texts it reads, their tokenizer and their encoder."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING

import keras

from vsemb.data.store import Dataset, Split
from vsemb.encoders import (
    BagOfWordsEncoder,
    HybridSentenceEncoder,
    LinearSentenceEncoder,
    RecurrentSentenceEncoder,
    TransformerSentenceEncoder,
    WordEmbedding,
)
from vsemb.encoders.pooling import POOLINGS
from vsemb.encoders.recurrent import CELLS
from vsemb.errors import DataError, invalid_argument, unknown_name
from vsemb.presets import is_preset
from vsemb.recipes.schema import Recipe
from vsemb.runs.presets import build_preset_encoder, check_preset_weights
from vsemb.systems.trees.tree_tokenizer import TreeTokenizer
from vsemb.systems.zero_shot.class_names import ClassTokenizer
from vsemb.text.characters import CharacterTokenizer, alphabet_vocabulary
from vsemb.text.given_pieces import GivenPieces
from vsemb.text.piece_learning import learn_sentencepieces, learn_wordpieces
from vsemb.text.preset_tokenizers import PresetTexts
from vsemb.text.subwords import BPETokenizer, UnigramTokenizer, WordPieceTokenizer
from vsemb.text.tokenizers import Tokenizer, WordTokenizer
from vsemb.text.vocabulary import Vocabulary

if TYPE_CHECKING:
    from vsemb.systems.trees.parses import Parses
    from vsemb.systems.zero_shot.attributes import ClassAttributes


USUAL_SPLITS = ("train", "val", "test")
TOKENIZERS: dict[str, type[Tokenizer]] = {
    "words": WordTokenizer,
    "characters": CharacterTokenizer,
    "trees": TreeTokenizer,
    "classes": ClassTokenizer,
    "wordpiece": WordPieceTokenizer,
    "sentencepiece": UnigramTokenizer,
    "bpe": BPETokenizer,
}
#: Tokenizers of pieces of words -> what learns the pieces from captions, min_count and max_words.
LEARNERS: dict[str, Callable[[Iterable[str], int, int | None], Vocabulary]] = {
    "wordpiece": learn_wordpieces,
    "sentencepiece": partial(learn_sentencepieces, "unigram"),
    "bpe": partial(learn_sentencepieces, "bpe"),
}
#: Name of a convolutional encoder -> what reads its last feature map.
CONVOLUTIONAL = {"cnn": None, "cnn-rnn": "rnn", "cnn-gru": "gru", "cnn-lstm": "lstm"}
LINEAR = ("sum", "mean", "average")
#: Name of an encoder of trees -> how it tells a node's children apart.
TREES = {"tree-lstm": "slots", "child-sum-tree-lstm": "sum"}
ENCODERS = (*CELLS, "brnn", *LINEAR, "bow", *CONVOLUTIONAL, "transformer", *TREES, "attributes")
#: Encoders that need a tokenizer of their own, which in turn needs one of them.
_TOGETHER = {"attributes": "classes", **dict.fromkeys(TREES, "trees")}


def read_texts(recipe: Recipe, split: Split, training: bool = False, parses: Parses | None = None) -> Split:
    """Returns a split with the texts that the recipe reads in place of its captions.

    Args:
        recipe: the recipe.
        split: the split.
        training: whether it is trained on, where the recipe may read few captions an image.
        parses: of the split's dataset, where the recipe reads trees.

    Returns:
        The split; where trees are read, its captions are parsed texts, see `vsemb.systems.trees.trees`.

    Raises:
        DataError: without parses where trees are read; for an image without a class where class names are.
    """
    few = recipe.batches.captions_per_image if training else None
    if recipe.text.tokenizer == "classes":
        names, classes = split.class_ids()
        return split.with_captions([[names[place]] for place in classes])
    if recipe.text.tokenizer == "trees":
        if parses is None:
            raise DataError(
                "The recipe reads dependency trees and the dataset has none. Make them with: vsemb parse "
                "DATA --model en_core_web_sm, or --conllu FILE for those of another parser."
            )
        return _with_trees(split, parses.texts(split), few)
    if few is None:
        return split
    return split.with_captions([entry["captions"][:few] for entry in split.entries])


def _with_trees(split: Split, trees: list[str], few: int | None) -> Split:
    texts: list[list[str]] = [[] for _ in range(len(split))]
    for row, tree in zip(split.caption_rows.tolist(), trees, strict=True):
        texts[row].append(tree)
    return split.with_captions([of_image[:few] for of_image in texts])


def class_attributes(recipe: Recipe, dataset: Dataset) -> ClassAttributes | None:
    """Returns the attributes of a dataset's classes where the recipe reads them, else None.

    Raises:
        DataError: if it reads them and there are none, or a class to train on or to recognise has none.
    """
    if recipe.text.tokenizer != "classes":
        return None
    if dataset.attributes is None:
        raise DataError(
            f"The recipe reads attributes of the classes and {dataset.path} has none. `vsemb scenes "
            "--fine-grained` makes a dataset that has, and `vsemb prepare --format cub` where "
            "CUB-200-2011's folder `attributes` is at hand."
        )
    for name in USUAL_SPLITS:
        if name in dataset.splits:
            dataset.attributes.matrix(dataset.split(name).class_ids()[0])
    return dataset.attributes


def build_vocabulary(
    recipe: Recipe, captions: Iterable[str], attributes: ClassAttributes | None = None
) -> Vocabulary:
    """Returns what the recipe's tokenizer knows: words of the captions, their pieces, characters, or classes.

    Args:
        recipe: the recipe.
        captions: of the training split, as `read_texts` gives them.
        attributes: what `class_attributes` returned; None where there are no classes.

    Raises:
        InvalidArgumentError: if the recipe reads the names of classes, or trees, and there are none; for
            fewer pieces of words than characters.
    """
    from vsemb.systems.trees.tree_tokenizer import tree_vocabulary

    text = recipe.text
    if is_preset(text.tokenizer):
        return PresetTexts.open(text.tokenizer).vocabulary
    if text.tokenizer == "trees":
        if recipe.task == "entailment":
            allowed = "another where sentences have no parses"
            raise invalid_argument("text.tokenizer", text.tokenizer, allowed)
        return tree_vocabulary(captions, text.min_count, text.max_words)
    if text.tokenizer == "characters":
        return alphabet_vocabulary()
    if text.tokenizer == "classes":
        if attributes is None:
            raise invalid_argument("text.tokenizer", text.tokenizer, "another where texts have no classes")
        return Vocabulary(sorted(attributes.values))
    if text.tokenizer not in LEARNERS:
        return Vocabulary.from_captions(captions, text.min_count, text.max_words)
    return LEARNERS[text.tokenizer](captions, text.min_count, text.max_words)


def build_tokenizer(recipe: Recipe, vocabulary: Vocabulary) -> Tokenizer:
    """Returns the recipe's tokenizer.

    Raises:
        InvalidArgumentError: for one that does not exist.
    """

    text = recipe.text
    if is_preset(text.tokenizer):
        return PresetTexts.open(text.tokenizer).tokenizer(text.max_length, vocabulary)
    if text.tokenizer not in TOKENIZERS:
        raise unknown_name("text.tokenizer", text.tokenizer, TOKENIZERS)
    if text.tokenizer == "classes":
        return ClassTokenizer(vocabulary)
    return TOKENIZERS[text.tokenizer](vocabulary, text.max_length)


def token_shape(recipe: Recipe) -> tuple[int, ...]:
    """Returns the shape of a token of the recipe's tokenizer, see `vsemb.text.Tokenizer.token_shape`.

    Raises:
        InvalidArgumentError: for a tokenizer that does not exist.
    """
    if is_preset(recipe.text.tokenizer):
        return GivenPieces.token_shape
    if recipe.text.tokenizer not in TOKENIZERS:
        raise unknown_name("text.tokenizer", recipe.text.tokenizer, TOKENIZERS)
    return TOKENIZERS[recipe.text.tokenizer].token_shape


def build_text_encoder(
    recipe: Recipe, vocabulary_size: int, attribute_dim: int | None = None
) -> keras.layers.Layer:
    """Builds the recipe's sentence encoder, without the column of a twin network.

    Where images are sets of regions, a sentence is the sequence of its words' vectors.

    Args:
        recipe: the recipe.
        vocabulary_size: number of token ids.
        attribute_dim: number of attributes of a class, for the encoder `attributes`.

    Raises:
        InvalidArgumentError: for a field with a value that is not allowed.
    """
    from vsemb.systems.regions.word_sequence import CELLS as SEQUENCE_CELLS
    from vsemb.systems.regions.word_sequence import WordSequenceEncoder
    from vsemb.systems.zero_shot.attribute_encoder import AttributeEncoder
    from vsemb.systems.zero_shot.binary_bag_of_words import BinaryBagOfWords

    text, dtype, dim = recipe.text, recipe.training.dtype, _text_dim(recipe)
    check_preset_weights(recipe)
    if is_preset(text.encoder):
        return build_preset_encoder(recipe)
    if text.encoder not in ENCODERS:
        raise unknown_name("text.encoder", text.encoder, ENCODERS)
    if (recipe.image.regions and text.encoder not in SEQUENCE_CELLS) or (
        text.encoder == "brnn" and not recipe.image.regions
    ):
        allowed = f"one of {', '.join(SEQUENCE_CELLS)} with image.regions=true, and another than brnn without"
        raise invalid_argument("text.encoder", text.encoder, allowed)
    for tokenizer in sorted(set(_TOGETHER.values())):
        if (_TOGETHER.get(text.encoder) == tokenizer) != (text.tokenizer == tokenizer):
            theirs = " or ".join(name for name, needed in _TOGETHER.items() if needed == tokenizer)
            allowed = f"{theirs} with text.tokenizer={tokenizer!r}, and another without"
            raise invalid_argument("text.encoder", text.encoder, allowed)
    if text.encoder == "attributes":
        if attribute_dim is None:
            raise invalid_argument("attribute_dim", attribute_dim, "a number of attributes")
        return AttributeEncoder(vocabulary_size - 2, attribute_dim, dim, dtype=dtype)
    if text.encoder == "bow":
        return BinaryBagOfWords(vocabulary_size, dim, dtype=dtype)
    words = WordEmbedding(
        vocabulary_size,
        text.word_dim,
        train_words=text.train_words,
        init_scale=text.word_init_scale,
        word_dropout=text.word_dropout,
        dropout=text.embedding_dropout,
        dense_gradient=text.dense_gradient,
        dtype=dtype,
    )
    if recipe.image.regions:
        return WordSequenceEncoder(
            words,
            dim,
            cell=text.encoder,
            units=text.units,
            dropout=text.dropout,
            init_scale=text.init_scale,
            dtype=dtype,
        )
    if text.encoder in LINEAR:
        return _linear(recipe, words)
    sequence = _sequence(recipe, words)
    if not text.bag:
        return sequence
    bag = BagOfWordsEncoder(
        WordEmbedding(vocabulary_size, dim, dtype=dtype), dropout=text.bag_dropout, dtype=dtype
    )
    return HybridSentenceEncoder(sequence, bag, dtype=dtype)


def _text_dim(recipe: Recipe) -> int:
    """The size of a sentence's vector: the shared space's, or the encoder's own before a twin column."""
    text = recipe.text
    if not recipe.twin:
        return recipe.embedding_dim
    if text.encoder in ("sum", "mean"):
        return text.word_dim
    if text.encoder in (*CELLS, *TREES, "transformer"):
        directions = 2 if text.encoder in CELLS and text.directions == "concat" else 1
        return text.units * directions * len(POOLINGS.get(text.pooling, ("unknown",)))
    return recipe.embedding_dim


def _linear(recipe: Recipe, words: WordEmbedding) -> LinearSentenceEncoder:
    text, dtype, dim = recipe.text, recipe.training.dtype, _text_dim(recipe)
    if text.encoder == "average":
        return LinearSentenceEncoder(words, "mean", dim, dtype=dtype)
    if text.word_dim != dim:
        allowed = f"{dim}, the embedding_dim, for {text.encoder!r}"
        raise invalid_argument("text.word_dim", text.word_dim, allowed, "`average` has a map behind it.")
    return LinearSentenceEncoder(words, text.encoder, dtype=dtype)


def _sequence(recipe: Recipe, words: WordEmbedding) -> keras.layers.Layer:
    from vsemb.systems.trees.tree_lstm import TreeLSTMEncoder
    from vsemb.systems.zero_shot.convolutional import (
        CHARACTER_STAGES,
        WORD_STAGES,
        ConvolutionalSentenceEncoder,
    )

    text, dtype, dim = recipe.text, recipe.training.dtype, _text_dim(recipe)
    if text.encoder in TREES:
        return TreeLSTMEncoder(
            words,
            dim,
            units=text.units,
            slots=text.slots,
            children=TREES[text.encoder],
            # A sentence's last state is that of its root.
            pooling="root" if text.pooling == "last" else text.pooling,
            dropout=text.dropout,
            init_scale=text.init_scale,
            dtype=dtype,
        )
    if text.encoder in CONVOLUTIONAL:
        return ConvolutionalSentenceEncoder(
            words,
            dim,
            length=text.max_length,
            stages=CHARACTER_STAGES if text.tokenizer == "characters" else WORD_STAGES,
            recurrent=CONVOLUTIONAL[text.encoder],
            units=text.units,
            hidden=text.units,
            dropout=text.dropout,
            dtype=dtype,
        )
    if text.encoder == "transformer":
        return TransformerSentenceEncoder(
            words,
            dim,
            length=text.max_length,
            units=text.units,
            layers=text.layers,
            heads=text.heads,
            feed_forward=text.feed_forward,
            pre_norm=text.pre_norm,
            pooling=text.pooling,
            dropout=text.dropout,
            init_scale=text.init_scale,
            dtype=dtype,
        )
    return RecurrentSentenceEncoder(
        words,
        dim,
        cell=text.encoder,
        units=text.units,
        directions=text.directions,
        pooling=text.pooling,
        dropout=text.dropout,
        init_scale=text.init_scale,
        dtype=dtype,
    )
