"""The sentences that language models are trained and measured on: words, content vectors, parts of speech."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from vsemb.data.store import Dataset, Split
from vsemb.errors import DataError
from vsemb.evaluation import Embedder
from vsemb.runs.run import Run
from vsemb.systems.language.language_batches import Sentences
from vsemb.text.tokenizers import Tokenizer
from vsemb.text.vocabulary import UNKNOWN


def tag_names(tags: Sequence[Sequence[str]]) -> tuple[str, ...]:
    """Returns the parts of speech that a model knows; the id of each is its place, from 1 on.

    Args:
        tags: those of the training captions.

    Returns:
        They by alphabet, and behind them the unknown one, for what other captions have.

    Example:

    >>> tag_names([["DT", "NN"], ["NN", "VBZ"]])
    ('DT', 'NN', 'VBZ', '<unk>')
    """
    return (*sorted({tag for of_one in tags for tag in of_one}), UNKNOWN)


def tag_ids(tags: Sequence[Sequence[str]], names: Sequence[str]) -> list[list[int]]:
    """Returns the ids of parts of speech, from 1 on; what has no name has the last id.

    Example:

    >>> tag_ids([["NN", "FW"]], ("DT", "NN", "<unk>"))
    [[2, 3]]
    """
    places = {name: place for place, name in enumerate(names, 1)}
    return [[places.get(tag, len(names)) for tag in of_one] for of_one in tags]


def need_tags(dataset: Dataset) -> None:
    """Refuses a dataset without parts of speech.

    Raises:
        DataError: naming the command that finds them.
    """
    if dataset.tags is None:
        raise DataError(
            f"{dataset.path} has no parts of speech of its captions, which sc-nlm is trained with. Find them "
            f"with: vsemb tag {dataset.path}"
        )


def read_sentences(
    split: Split,
    tokenizer: Tokenizer,
    *,
    encoder: Run | None = None,
    names: Sequence[str] | None = None,
) -> Sentences:
    """Reads the captions of a split.

    Args:
        split: the split, of a dataset.
        tokenizer: of the language model; longer captions are cut, and so are their tags.
        encoder: gives each caption its vector, of unit length; None where no model asks for it.
        names: of the parts of speech that the model knows; None where no model asks for them.

    Raises:
        DataError: if tags are asked for and the split's dataset has none, or a vector is not finite.
    """
    ids, offsets = tokenizer.encode(split.captions)
    content = None if encoder is None else embed_captions(encoder, split.captions)
    if names is None:
        return Sentences(ids, offsets, content)
    assert split.dataset is not None
    need_tags(split.dataset)
    assert split.dataset.tags is not None
    found = tag_ids(split.dataset.tags.of(split), names)
    cut = [of_one[:length] for of_one, length in zip(found, np.diff(offsets).tolist(), strict=True)]
    tags = np.array([tag for of_one in cut for tag in of_one], np.int32)
    if len(tags) != len(ids):
        raise DataError(
            f"{split.dataset.path} has {len(tags):,} parts of speech for the {len(ids):,} words of the split "
            f"{split.name!r}. Find them again with: vsemb tag {split.dataset.path} --overwrite"
        )
    return Sentences(ids, offsets, content, tags)


def embed_captions(encoder: Run, captions: Sequence[str]) -> np.ndarray:
    """Returns the sentence vectors of captions, float32 (captions, dim).

    Raises:
        DataError: if one is not finite.
    """
    vectors = Embedder(encoder.model).texts(*encoder.encode(list(captions)))
    if not np.isfinite(vectors).all():
        raise DataError(f"{encoder.path} embeds a caption as NaN or infinity. Train it again.")
    return vectors.astype(np.float32, copy=False)
