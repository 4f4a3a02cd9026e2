"""Preparation of a language model for caption generation, computed once and stored in its run.

Files in RUN/generation:

- `generation.json`: fingerprints of run and encoder, the weights of the score and all weights tried
- `stopwords.txt`: words that may be repeated without penalty
- `vectors.npz`: sequences of parts of speech; embeddings of single words and of training sentences
- `trigrams.npz`: trigram model of the training captions

The files are arguments of `vsemb.systems.language.candidates.StructureContentCaptioner`.
"""

from __future__ import annotations

import importlib.util
import itertools
import zipfile
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from vsemb.console import progress
from vsemb.data.store import Split, StoredDataset
from vsemb.errors import DataError, missing_extra, needs_extra, one_line
from vsemb.evaluation import Embedder
from vsemb.files import read_json, read_text, replacing_directory, require_regular, sha256_file, write_json
from vsemb.ops.tensorflow import tf
from vsemb.runs.run import Run
from vsemb.systems.captions.caption_metrics import cider
from vsemb.systems.captions.captioner import detokenize
from vsemb.systems.captions.captioning import image_inputs
from vsemb.systems.language.candidates import RankingWeights, StructureContentCaptioner
from vsemb.systems.language.conditioning import embed_captions, require_encoder, require_tags, tag_ids, tags_of
from vsemb.systems.language.kneser_ney import KneserNeyTrigram
from vsemb.text.normalize import words_of

FOLDER, CONTENT = "generation", "generation.json"
STOPWORDS, VECTORS, TRIGRAMS = "stopwords.txt", "vectors.npz", "trigrams.npz"
_FORMAT = 1
#: Value for NLTK's English stop words instead of a path.
NLTK = "nltk"
#: Number of words of captions whose parts of speech are used (supplement 5.2).
SHORTEST, LONGEST = 4, 12
# Enough for 12,000 candidates. Sentences of dimension 1024 take 800 MB.
_MOST_SEQUENCES, _MOST_SENTENCES = 4096, 200_000
_TUNING_SPLIT, _TUNING_IMAGES = "val", 200
_RATIOS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)

#: Weights to try: the cosine only, increasing weights of the trigram model, the trigram model only.
GRID = (
    RankingWeights(),
    *(RankingWeights(1.0, ratio, per_word) for per_word in (False, True) for ratio in _RATIOS),
    *(RankingWeights(0.0, 1.0, per_word) for per_word in (False, True)),
)


def check_generation(recipe: Any, dataset: StoredDataset, encoder: Run) -> None:
    """Check the requirements of caption generation before training.

    Args:
        recipe: recipe of a language model that writes captions.
        dataset: training dataset.
        encoder: run whose embeddings condition the model.

    Raises:
        InvalidArgumentError: if the dataset has no validation images for tuning the weights.
        MissingExtraError: without the packages of the extra `captions`.
        DataError: if the stop words cannot be read, no training caption has 4 to 12 words, or the dataset lacks the
            image features of the encoder.
    """
    read_stopwords(recipe.model.writing.stopwords)
    if importlib.util.find_spec("pycocoevalcap") is None:
        raise missing_extra("pycocoevalcap", "captions")
    val, train = dataset.split(_TUNING_SPLIT), recipe.batches.training_split(dataset)
    # Parts of speech cover whole captions. A model without them reads captions truncated by its tokenizer.
    longest = None if recipe.model.reads_tags else recipe.text.tokenizer.max_length
    if not any(_is_written(len(words[:longest])) for words in words_of(train.captions)):
        raise _nothing_to_write()
    encoder.images_of(dataset, val)


def prepare_generation(run: Run, dataset: StoredDataset) -> None:
    """Write `RUN/generation` atomically, with progress bars; do nothing if it is up to date.

    The weights are tuned on the first images of the split `val`, at most 200.

    Args:
        run: trained run of `sc-nlm` or `multiplicative`.
        dataset: training dataset of the run.

    Raises:
        DataError: if no training caption has 4 to 12 parts of speech, the dataset has no tags, the run does not write
            captions, or the disk is full.
        MissingExtraError: without the packages of the extra `captions`.

    Example:

        prepare_generation(run, Dataset.open("data/flickr8k"))
        texts, log_probs = load_captioner(run)(images)
    """
    encoder = require_encoder(run)
    check_generation(run.recipe, dataset, encoder)
    if _is_prepared(run):
        return
    split = run.recipe.batches.training_split(dataset)
    seed = run.recipe.training.seed
    texts = itertools.chain.from_iterable(own.captions for own in run.recipe.training_splits(dataset))
    parts: dict[str, Any] = {
        "sequences": _sequences_of(run, dataset, split, seed),
        "words": _embed_words(encoder),
        "sentences": embed_captions(encoder, _different(split.captions, seed)),
        "trigrams": KneserNeyTrigram.fit(*run.tokenizer.encode(list(texts)), len(run.vocabulary)),
        "stopwords": read_stopwords(run.recipe.model.writing.stopwords),
    }
    val = dataset.split(_TUNING_SPLIT)
    rows = np.arange(min(len(val), _TUNING_IMAGES))
    images = image_inputs(encoder.images_of(dataset, val), rows)
    references = [val.captions_of(row) for row in rows]
    weights, tried = tune_weights(_captioner(run, encoder, parts, RankingWeights()), images, references)
    with replacing_directory(run.path / FOLDER, overwrite=True) as folder:
        (folder / STOPWORDS).write_text("\n".join(parts["stopwords"]) + "\n", encoding="utf-8")
        np.savez(folder / TRIGRAMS, **parts["trigrams"].arrays())
        np.savez(folder / VECTORS, **{name: parts[name] for name in ("sequences", "words", "sentences")})
        content = {
            "format": _FORMAT,
            "run": run.fingerprint,
            "encoder": encoder.fingerprint,
            "weights": weights.to_json(),
            "tuned_on": {"dataset": dataset.fingerprint, "split": _TUNING_SPLIT, "images": len(rows)},
            "tried": tried,
            "sha256": {name: sha256_file(folder / name) for name in (STOPWORDS, TRIGRAMS, VECTORS)},
        }
        write_json(folder / CONTENT, content)


def tune_weights(
    captioner: StructureContentCaptioner,
    images: np.ndarray,
    references: Sequence[Sequence[str]],
    grid: Sequence[RankingWeights] = GRID,
) -> tuple[RankingWeights, list[dict[str, Any]]]:
    """Select the weights of the score with the highest CIDEr-D on validation images.

    Kiros et al. 2014 (supplement 5.2) "tuned the weights by hand on qualitative results alone". Here the candidates
    are written once. All weights of a grid then rank them, and the best caption of each image is measured.

    Args:
        captioner: writes the candidates; its own weights are not read.
        images: (n, ...) validation images, inputs of the captioner.
        references: human captions per image.
        grid: the weights to try; ties select the first.

    Returns:
        weights: the selected weights.
        tried: per entry of the grid, its fields and `cider`: 100 times the mean CIDEr-D of the best captions.
    """
    best: list[list[tf.Tensor]] = [[] for _ in grid]
    write = tf.function(captioner.write, autograph=False)
    embed = tf.function(captioner.encoder.encode_images, autograph=False)
    for row in progress(range(len(images)), desc="tuning", unit="image", leave=False):
        embedding = tf.cast(embed(images[row : row + 1])[0], tf.float32)
        candidates = write(embedding)
        for weights, chosen in zip(grid, best, strict=True):
            chosen.append(candidates.ids[int(tf.argmax(candidates.scores(weights)))])
    scored: dict[tuple[str, ...], float] = {}
    tried: list[dict[str, Any]] = []
    for weights, chosen in zip(grid, best, strict=True):
        texts = detokenize(tf.stack(chosen), captioner.vocabulary.tokens).numpy()
        captions = tuple(text.decode() for text in texts)
        if captions not in scored:
            scored[captions] = 100.0 * cider(captions, references)[0]
        tried.append({**weights.to_json(), "cider": scored[captions]})
    winner = int(np.argmax([row["cider"] for row in tried]))
    return grid[winner], tried


def load_captioner(run: Run, **options: int) -> StructureContentCaptioner:
    """Open the captioner prepared by `prepare_generation`.

    Args:
        run: run of `sc-nlm` or `multiplicative`.
        **options: `n_best`, `candidates` and `beam` of the captioner; default: from the recipe.

    Returns:
        The captioner; its inputs are outputs of the encoder's `images_of`.

    Raises:
        DataError: if the preparation is missing, damaged or computed with other weights, or the run does not write
            captions.
        InvalidArgumentError: for a number outside its range.
    """
    encoder = require_encoder(run)
    folder = run.path / FOLDER
    if not _is_prepared(run):
        raise DataError(
            f"{run.path} is not prepared for writing captions. Finish its training: give `vsemb train` the "
            "same command again."
        )
    try:
        content = read_json(folder / CONTENT, "preparation of captions")
        for name, digest in dict(content.get("sha256", {})).items():
            if name in (STOPWORDS, TRIGRAMS, VECTORS) and sha256_file(folder / name) != digest:
                raise ValueError(f"{name} is not what was written")
        vectors, trigrams = _read_arrays(folder / VECTORS), _read_arrays(folder / TRIGRAMS)
        parts: dict[str, Any] = {name: vectors[name] for name in ("sequences", "words", "sentences")}
        parts["trigrams"] = KneserNeyTrigram(trigrams)
        parts["stopwords"] = read_text(folder / STOPWORDS).split()
        weights = RankingWeights.from_json(content["weights"])
        if not _fit(parts, run, encoder):
            raise ValueError("its parts do not fit the run")
    except (OSError, ValueError, KeyError, TypeError, EOFError, zipfile.BadZipFile) as error:
        raise DataError(
            f"{folder} is damaged ({one_line(error, 120)}). Remove it, and give `vsemb train` the same command again."
        ) from error
    return _captioner(run, encoder, parts, weights, **options)


def _captioner(
    run: Run, encoder: Run, parts: dict[str, Any], weights: RankingWeights, **options: int
) -> StructureContentCaptioner:
    return StructureContentCaptioner(
        run.model,
        encoder.model,
        run.vocabulary,
        encoder_vocabulary=encoder.vocabulary,
        weights=weights,
        **{**run.recipe.model.writing.arguments("stopwords"), **options},
        **parts,
    )


def _is_prepared(run: Run) -> bool:
    """Return whether the preparation is for the current weights of the run; longer training may change them."""
    path = run.path / FOLDER / CONTENT
    if not path.exists():
        return False
    content = read_json(path, "preparation of captions")
    if not isinstance(content, dict):
        return False
    return (content.get("format"), content.get("run")) == (_FORMAT, run.fingerprint)


def _read_arrays(path: Path) -> dict[str, np.ndarray]:
    with np.load(require_regular(path), allow_pickle=False) as arrays:
        return {name: arrays[name] for name in arrays.files}


def _fit(parts: dict[str, Any], run: Run, encoder: Run) -> bool:
    dim = encoder.embedding_dim
    for name in ("words", "sentences"):
        if parts[name].ndim != 2 or parts[name].shape[1] != dim:
            return False
    tags = parts["sequences"]
    if tags.ndim != 2 or not tags.size or tags.min() < 0 or tags.max() > max(len(tags_of(run)), 1):
        return False
    return parts["trigrams"].vocabulary_size == len(run.vocabulary)


def read_stopwords(name: str) -> tuple[str, ...]:
    """Read a list of stop words.

    Args:
        name: `nltk` for the English list of NLTK's corpus, or the path of a text file with one word per line.

    Returns:
        The sorted words, normalized and split by `vsemb.text.normalize.split_words`: `don't` becomes `dont`, and
        `it's` becomes two words.

    Raises:
        MissingExtraError: without NLTK.
        DataError: if the corpus of NLTK is missing, or the file cannot be read or is empty.

    Example:

    >>> _ = Path("stopwords.txt").write_text("The\\ndon't\\nit's\\n")
    >>> read_stopwords("stopwords.txt")
    ("'s", 'dont', 'it', 'the')
    """
    try:
        if name == NLTK:
            with needs_extra("nltk", "captions"):
                from nltk.corpus import stopwords
            lines = stopwords.words("english")
        else:
            lines = read_text(name, "utf-8-sig").split("\n")
    except LookupError as error:
        raise DataError(
            "NLTK does not find its corpus stopwords. Fetch it with `python -m nltk.downloader stopwords`, "
            "set NLTK_DATA to the folder that holds corpora/stopwords.zip, or name a file of your own: "
            "model.writing.stopwords=FILE"
        ) from error
    except (OSError, ValueError) as error:
        raise DataError(
            f"The stop words {name} cannot be read: {one_line(error)}. Name a file with one word per line, or "
            "nltk for NLTK's stop words."
        ) from error
    words = {word for words in words_of(lines) for word in words}
    if not words:
        raise DataError(f"{name} holds no stop word; write one per line.")
    return tuple(sorted(words))


def draw_sequences(sequences: Iterable[Sequence[int]], most: int, seed: int) -> np.ndarray:
    """Sample distinct sequences of 4 to 12 ids, with probabilities proportional to their frequencies.

    Args:
        sequences: sequence of ids per training caption.
        most: maximum number of samples, without replacement.
        seed: random seed.

    Returns:
        (n, 12) int32, padded on the right with 0, in sampling order.

    Raises:
        DataError: if no sequence has 4 to 12 ids.

    Example:

    >>> draw_sequences([[1, 2, 1, 3], [1, 2, 1, 3], [1]], most=5, seed=0)[:, :5].tolist()
    [[1, 2, 1, 3, 0]]
    """
    counts = Counter(tuple(ids) for ids in sequences if _is_written(len(ids)))
    if not counts:
        raise _nothing_to_write()
    distinct = sorted(counts)  # Independent of the order of counting.
    often = np.array([counts[ids] for ids in distinct], np.float64)
    size = min(most, len(distinct))
    drawn = np.random.default_rng(seed).choice(len(distinct), size, replace=False, p=often / often.sum())
    padded = np.zeros((size, LONGEST), np.int32)
    for row, place in enumerate(drawn):
        padded[row, : len(distinct[place])] = distinct[place]
    return padded


def _is_written(length: int) -> bool:
    return SHORTEST <= length <= LONGEST


def _nothing_to_write() -> DataError:
    return DataError(
        f"No training caption has {SHORTEST} to {LONGEST} words, the lengths in which captions are written."
    )


def _sequences_of(run: Run, dataset: StoredDataset, split: Split, seed: int) -> np.ndarray:
    if not run.recipe.model.reads_tags:
        # All words have the same tag: a sequence defines only the length of a caption.
        lengths = np.diff(run.tokenizer.encode(split.captions)[1])
        return draw_sequences(([1] * length for length in lengths), _MOST_SEQUENCES, seed)
    return draw_sequences(tag_ids(require_tags(dataset).of(split), tags_of(run)), _MOST_SEQUENCES, seed)


def _embed_words(encoder: Run) -> np.ndarray:
    """Embed each word of the encoder's vocabulary as a sentence."""
    ids = np.arange(2, len(encoder.vocabulary), dtype=np.int32)
    return Embedder(encoder.model).texts(ids, np.arange(len(ids) + 1))


def _different(captions: Sequence[str], seed: int) -> list[str]:
    """Return the distinct sentences; if they exceed the maximum, a random sample."""
    different = list(dict.fromkeys(captions))
    if len(different) <= _MOST_SENTENCES:
        return different
    kept = np.random.default_rng(seed).choice(len(different), _MOST_SENTENCES, replace=False)
    return [different[row] for row in np.sort(kept)]
