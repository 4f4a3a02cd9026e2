"""What the parts of a model learn from the training set before the first step."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import keras
import numpy as np

from vsemb.data.features.store import FeatureStore
from vsemb.data.store import Split
from vsemb.encoders import BagOfWordsEncoder, HybridSentenceEncoder, ImageEncoder, WordEmbedding
from vsemb.encoders.projection_mlp import unwrapped
from vsemb.errors import invalid_argument, unknown_name
from vsemb.models import DualEncoder
from vsemb.recipes.schema import Recipe
from vsemb.runs.texts import LEARNERS
from vsemb.text.cooccurrence import cooccurrence_vectors
from vsemb.text.tokenizers import Tokenizer
from vsemb.text.vectors import read_word_vectors
from vsemb.text.vocabulary import Vocabulary
from vsemb.training.cca import canonical_correlation, document_frequencies

if TYPE_CHECKING:
    from vsemb.systems.entailment.model import EntailmentModel
    from vsemb.systems.regions.regions import RegionStore
    from vsemb.systems.zero_shot.attributes import ClassAttributes


STARTS = ("random", "cca")
#: What `text.word_vectors` says in place of a file.
FROM_CAPTIONS = "captions"
# Deviation of the entries of word vectors that start from CCA: that of random ones.
_WORD_DEVIATION = 0.1
# Regions whose statistics stand for those of all.
_REGIONS = 50_000


def start_model(
    recipe: Recipe,
    model: DualEncoder,
    tokenizer: Tokenizer,
    split: Split,
    store: FeatureStore | RegionStore | None,
    attributes: ClassAttributes | None = None,
) -> None:
    """Sets feature statistics, word rarities, attributes and, where the recipe asks for it, first weights.

    Args:
        recipe: the recipe.
        model: its model, built.
        tokenizer: its tokenizer.
        split: the training split, with the texts that the recipe reads.
        store: the features, where the recipe starts from features.
        attributes: of the dataset's classes, where the recipe reads them.

    Raises:
        InvalidArgumentError: if the recipe asks for what its parts cannot do.
    """
    from vsemb.systems.regions.region_encoder import RegionEncoder
    from vsemb.systems.zero_shot.attribute_encoder import AttributeEncoder

    if recipe.training.start not in STARTS:
        raise unknown_name("training.start", recipe.training.start, STARTS)
    features = None if store is None else _features(store, split, recipe.image.most_regions)
    encoder = unwrapped(model.image_encoder)
    if (
        isinstance(encoder, ImageEncoder | RegionEncoder)
        and encoder.scaling is not None
        and features is not None
    ):
        encoder.scaling.adapt(features)
    words, bag = text_parts(model)
    text_encoder = unwrapped(model.text_encoder)
    if isinstance(text_encoder, AttributeEncoder):
        assert attributes is not None
        known = attributes.matrix(tokenizer.vocabulary.words)
        # Padding and unknown classes have none.
        text_encoder.set_attributes(np.concatenate([np.zeros((2, known.shape[1]), np.float32), known]))
    if words is None:
        _refuse_word_starts(recipe)
        return
    tokens, offsets = tokenizer.encode(split.captions)
    ids = tokenizer.word_ids(tokens)
    counts = document_frequencies(ids, offsets, len(tokenizer.vocabulary))
    if bag is not None:
        bag.set_document_frequencies(counts, len(split.captions))
    if recipe.training.start == "cca":
        if recipe.twin:
            raise invalid_argument("training.start", "cca", "random with twin=true")
        if features is None or not isinstance(encoder, ImageEncoder) or encoder.affine is None:
            raise invalid_argument("training.start", "cca", "random where features are not projected")
        _start_from_cca(recipe, model, words, bag, ids, offsets, counts, split, features)
    start_word_vectors(recipe, words, tokenizer.vocabulary, ids, offsets)


def _features(store: FeatureStore | RegionStore, split: Split, most_regions: int | None = None) -> np.ndarray:
    """The features of the split's images, or of the regions read of as many as give enough: (n, dim)."""
    if isinstance(store, FeatureStore):
        return store.rows(split.ids)
    count = min(store.count, most_regions or store.count)
    step = max(1, len(split.ids) * count // _REGIONS)
    regions = store.rows(split.ids[::step])[:, :count]
    return regions[regions.any(axis=-1)]


def start_word_vectors(
    recipe: Recipe, words: WordEmbedding, vocabulary: Vocabulary, ids: np.ndarray, offsets: np.ndarray
) -> None:
    """Sets the word vectors that the recipe names, if it names some.

    Args:
        recipe: the recipe.
        words: the word vectors.
        vocabulary: their words.
        ids: (tokens,) the training texts, one behind the other.
        offsets: (texts + 1,) where each begins.

    Raises:
        VsembError: if they cannot be read or do not fit.
    """
    if recipe.text.word_vectors == FROM_CAPTIONS:
        words.set_vectors(cooccurrence_vectors(ids, offsets, len(vocabulary), words.dim))
    elif recipe.text.word_vectors is not None:
        if recipe.text.tokenizer in LEARNERS:
            allowed = f"null or {FROM_CAPTIONS!r} with text.tokenizer={recipe.text.tokenizer!r}"
            fix = "A file has vectors of words, not of their pieces."
            raise invalid_argument("text.word_vectors", recipe.text.word_vectors, allowed, fix)
        vectors, found = read_word_vectors(recipe.text.word_vectors, vocabulary, recipe.training.seed)
        words.set_vectors(vectors)
        print(f"word vectors for {found} of {len(vocabulary.words)} words", file=sys.stderr)


def _refuse_word_starts(recipe: Recipe) -> None:
    for path, value, allowed in (
        ("training.start", recipe.training.start, "random"),
        ("text.word_vectors", recipe.text.word_vectors, None),
    ):
        if value != allowed:
            fix = f"The encoder {recipe.text.encoder!r} has no word vectors."
            raise invalid_argument(path, value, str(allowed), fix)


def text_parts(
    model: DualEncoder | EntailmentModel,
) -> tuple[WordEmbedding | None, BagOfWordsEncoder | None]:
    """Returns the word vectors of a model's sequence encoder and its bag of words, if there are such."""
    encoder = unwrapped(model.text_encoder)
    if isinstance(encoder, HybridSentenceEncoder):
        return encoder.sequence.words, encoder.bag
    return getattr(encoder, "words", None), None


def _start_from_cca(
    recipe: Recipe,
    model: DualEncoder,
    words: WordEmbedding,
    bag: BagOfWordsEncoder | None,
    ids: np.ndarray,
    offsets: np.ndarray,
    counts: np.ndarray,
    split: Split,
    features: np.ndarray,
) -> None:
    encoder = model.image_encoder
    if encoder.scaling is not None:
        features = keras.ops.convert_to_numpy(encoder.scaling(features)).astype(np.float32)
    rarity = np.log((1 + len(split.captions)) / (1 + counts))
    maps = canonical_correlation(ids, offsets, split.caption_rows, features, rarity, recipe.embedding_dim)
    deviation = np.abs(features @ maps.image).std() * np.sqrt(recipe.embedding_dim)
    encoder.affine.kernel.assign(maps.image / deviation)
    dim = min(words.dim, recipe.embedding_dim)
    # Words too rare to take part keep the random vectors they have.
    known = maps.words.any(axis=1)
    start = keras.ops.convert_to_numpy(words.table).copy()
    start[known, :dim] = maps.words[known, :dim] / maps.words[known, :dim].std() * _WORD_DEVIATION
    words.set_vectors(start)
    if bag is not None:
        start = keras.ops.convert_to_numpy(bag.words.table).copy()
        start[known] = maps.words[known] / np.linalg.norm(maps.words[known], axis=1).mean()
        bag.words.set_vectors(start)
