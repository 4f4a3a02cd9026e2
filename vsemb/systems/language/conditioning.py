"""Conditioning of language models: sentence vectors of an encoder stored in the run, and parts of speech."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from vsemb.data.store import Split, StoredDataset
from vsemb.errors import DataError
from vsemb.evaluation import Embedder
from vsemb.files import hard_link_or_copy, replacing_directory
from vsemb.image.presets import KEPT
from vsemb.recipes.info import untyped
from vsemb.recipes.retrieval import Retrieval
from vsemb.recipes.towers import BACKBONE
from vsemb.runs.run import BEST, RECIPE, STATUS, VOCABULARY, Run
from vsemb.systems.captions.sentences import Sentences
from vsemb.systems.language.tags import CaptionTags
from vsemb.text.tokenizers import Tokenizer, Words
from vsemb.text.vocabulary import UNKNOWN

#: Folder of the encoder in the run directory.
ENCODER = "encoder"


def check_encoder(encoder: Run) -> None:
    """Check that a run embeds each sentence and each image as one vector.

    Raises:
        DataError: for a run of another task, with sets of vectors as embeddings, or with tokens other than words.
    """
    reason = None
    if not isinstance(encoder.recipe, Retrieval):
        reason = f"is for {encoder.recipe.kind}"
    elif encoder.multi_vector:
        reason = "embeds sentences as sets of vectors"
    elif not isinstance(encoder.recipe.text.tokenizer, Words):
        # The encoder embeds the generated words without joining them to a text.
        reason = f"reads {encoder.recipe.text.tokenizer.kind}, not words"
    if reason is not None:
        raise DataError(
            f"{encoder.path} must embed every caption as one vector; it was trained with the recipe "
            f"{encoder.recipe.name!r}, which {reason}. Name a run of kiros2014 as `inputs.encoder`."
        )


def keep_encoder(encoder: Run, out: Path) -> None:
    """Copy the files that are required to open a run, without logs and training state.

    Files are hard-linked if the file system supports it: training replaces files and never modifies them.

    Args:
        encoder: the run to copy.
        out: run directory of the language model.

    Raises:
        DataError: if a file cannot be copied.
    """
    names = [RECIPE, STATUS, VOCABULARY, BEST]
    for part in (BACKBONE, KEPT):
        files = (path for path in (encoder.path / part).rglob("*") if path.is_file())
        names += sorted(path.relative_to(encoder.path).as_posix() for path in files)
    with replacing_directory(out / ENCODER) as folder:
        for name in names:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            hard_link_or_copy(encoder.path / name, folder / name)


def encoder_of(run: Run) -> Run | None:
    """Return the run that embeds sentences and images for a language model; None for a model without encoder.

    Raises:
        DataError: if the model was trained with another encoder.
    """
    if untyped(run.info)["encoder"] is None:
        return None
    opened = vars(run)
    if "_encoder" not in opened:
        encoder = Run.open(run.path / ENCODER)
        if encoder.fingerprint != untyped(run.info)["encoder"]:
            raise DataError(
                f"{encoder.path} must be the encoder that {run.path} was trained with; it is "
                f"{encoder.fingerprint[:12]}, not {untyped(run.info)['encoder'][:12]}. Restore it."
            )
        opened["_encoder"] = encoder
    return opened["_encoder"]


def require_encoder(run: Run) -> Run:
    """Return the encoder of a language model.

    Raises:
        DataError: for a model without encoder.
    """
    encoder = encoder_of(run)
    if encoder is None:
        raise DataError(
            f"{run.path} must be a run with an encoder; its model sees no image and no content. Train the recipe "
            "sc-nlm, which does: vsemb train sc-nlm"
        )
    return encoder


def tags_of(run: Run) -> tuple[str, ...]:
    """Return the parts of speech of a language model, ids from 1, the unknown one last; () for a model without them."""
    return tuple(untyped(run.info)["tag_names"] or ())


def require_tags(dataset: StoredDataset) -> CaptionTags:
    """Return the parts of speech of a dataset's captions.

    Raises:
        DataError: if the dataset has no parts of speech, with the command that adds them.
    """
    tags: CaptionTags | None = dataset.annotation("tags")
    if tags is None:
        raise DataError(
            f"{dataset.path} must have parts of speech of its captions, which sc-nlm is trained with; it has none. "
            f"Find them with: vsemb annotate {dataset.path} pos-tags"
        )
    return tags


def tag_names(tags: Sequence[Sequence[str]]) -> tuple[str, ...]:
    """Return the parts of speech for a model; the id of each is its position, from 1.

    Args:
        tags: parts of speech of the training captions.

    Returns:
        The distinct parts of speech in alphabetical order, then the unknown one for other captions.

    Example:

    >>> tag_names([["DT", "NN"], ["NN", "VBZ"]])
    ('DT', 'NN', 'VBZ', '<unk>')
    """
    return (*sorted(set().union(*tags)), UNKNOWN)


def tag_ids(tags: Sequence[Sequence[str]], names: Sequence[str]) -> list[list[int]]:
    """Return the ids of parts of speech, from 1.

    Args:
        tags: parts of speech of each caption.
        names: the known parts of speech; the last one stands for all others.

    Example:

    >>> tag_ids([["NN", "FW"]], ("DT", "NN", "<unk>"))
    [[2, 3]]
    """
    ids = {name: number for number, name in enumerate(names, 1)}
    return [[ids.get(tag, len(names)) for tag in of_caption] for of_caption in tags]


def read_sentences(
    split: Split, tokenizer: Tokenizer, *, encoder: Run | None = None, names: Sequence[str] = ()
) -> Sentences:
    """Read the captions of a split.

    Args:
        split: the split of a dataset.
        tokenizer: tokenizer of the language model; longer captions and their tags are truncated.
        encoder: encoder of the captions, with vectors of unit length; None to omit the vectors.
        names: parts of speech of the model; () to omit the tags.

    Raises:
        DataError: if the dataset has no tags although `names` is given, or a vector is not finite.
    """
    ids, offsets = tokenizer.encode(split.captions)
    content = None if encoder is None else embed_captions(encoder, split.captions)
    if not names:
        return Sentences(ids, offsets, content)
    dataset = split.dataset
    assert dataset is not None
    tags: list[int] = []
    # The tokenizer may have cut the words of a caption.
    for of_caption, length in zip(tag_ids(require_tags(dataset).of(split), names), np.diff(offsets), strict=True):
        tags += of_caption[:length]
    if len(tags) != len(ids):
        raise DataError(
            f"{dataset.path} has {len(tags):,} parts of speech for the {len(ids):,} words of the split "
            f"{split.name!r}. Find them again with: vsemb annotate {dataset.path} pos-tags --overwrite"
        )
    return Sentences(ids, offsets, content, np.array(tags, np.int32))


def embed_captions(encoder: Run, captions: Sequence[str]) -> np.ndarray:
    """Embed captions with the sentence encoder of a run.

    Args:
        encoder: the run.
        captions: the captions.

    Returns:
        (captions, dim) float32.

    Raises:
        DataError: if a vector is not finite.
    """
    vectors = Embedder(encoder.model).texts(*encoder.encode(list(captions)))
    if not np.isfinite(vectors).all():
        raise DataError(f"{encoder.path} embeds a caption as NaN or infinity. Train it again.")
    return vectors.astype(np.float32, copy=False)
