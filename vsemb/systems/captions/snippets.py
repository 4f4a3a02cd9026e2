"""Snippets: segments of captions with the regions that they describe; cutting, storage and batches.

Each caption is aligned with the regions of its image; adjacent words prefer the same region (Karpathy and Fei-Fei 2015,
section 3.1.4, equations 10 to 12). Consecutive words on one region are a snippet. Snippets and their regions are the
training data of the multimodal RNN of regions. All snippets are kept, as in the paper: also single words, words that
are in every caption, and snippets of the whole image, which is the first region. Words after the maximum length of the
alignment are left out. An 's at the start of a snippet is left out too, since it belongs to the previous word.

FOLDER/
  rows.npz        image_rows, image_ids and regions, int64 (snippets,) each
  texts.jsonl     the words of each snippet, one JSON string per line
  manifest.json   affinity and fingerprints
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from vsemb.console import progress, say
from vsemb.data.batches import pad_ids
from vsemb.data.sources import ImageSource
from vsemb.data.store import Split, StoredDataset
from vsemb.errors import DataError, invalid_argument
from vsemb.files import read_json, read_text, replacing_directory, require_regular, sha256_bytes, write_json
from vsemb.ops.tensorflow import tf
from vsemb.parts import NonNegative, require
from vsemb.runs.run import Run
from vsemb.systems.captions.sentences import Sentences
from vsemb.systems.regions.alignment import phrases
from vsemb.systems.regions.image_tower import regions_of, require_regions
from vsemb.systems.regions.pointing import score_spread
from vsemb.systems.regions.region_store import RegionStore
from vsemb.systems.regions.signature import chain_in_graph
from vsemb.systems.regions.similarities import MultiVectorSimilarity, item_mask
from vsemb.text.tokenizers import Tokenizer, Words

_FORMAT, _VERSION = "vsemb-snippets", 1
_ROWS = ("image_rows", "image_ids", "regions")
# Number of images whose regions are read at once.
_IMAGES = 256


@dataclass(frozen=True, eq=False)
class Snippets:
    """Segments of the captions of a split, in the order of the captions.

    Attributes:
        image_rows: int64 (m,), row of the image in the split.
        image_ids: int64 (m,), id of the image.
        regions: int64 (m,), row of the region among the regions of the image, 0 for the whole image.
        texts: m texts, words joined by spaces.
        affinity: score of two adjacent words on one region.
        store: fingerprint of the cache of the regions.
        fingerprint: hex fingerprint of all inputs of the cutting.

    Example:

    >>> rows = np.array([0, 0])
    >>> snippets = Snippets(rows, rows + 7, np.array([3, 0]), ["a dog", "in the snow"], 0.5, "c0", "ffee")
    >>> len(snippets), snippets.mean_words, snippets.whole_images
    (2, 2.5, 0.5)
    """

    image_rows: np.ndarray
    image_ids: np.ndarray
    regions: np.ndarray
    texts: list[str]
    affinity: float
    store: str
    fingerprint: str

    def __post_init__(self) -> None:
        sizes = [len(getattr(self, name)) for name in _ROWS]
        if sizes != [len(self.texts)] * len(_ROWS):
            raise invalid_argument("texts", len(self.texts), f"as many as rows, ids and regions ({sizes})")

    def __len__(self) -> int:
        return len(self.texts)

    @property
    def mean_words(self) -> float:
        """Mean number of words per snippet; 0 without snippets."""
        return sum(len(text.split()) for text in self.texts) / max(len(self), 1)

    @property
    def whole_images(self) -> float:
        """Share of the snippets whose region is the whole image, in [0, 1]; 0 without snippets."""
        return float(np.count_nonzero(self.regions == 0)) / max(len(self), 1)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the folder atomically; an existing folder is replaced.

        Raises:
            DataError: if the folder cannot be written.
        """
        with replacing_directory(path, overwrite=True) as folder:
            rows = {name: np.asarray(getattr(self, name), np.int64) for name in _ROWS}
            np.savez_compressed(folder / "rows.npz", allow_pickle=False, **rows)
            lines = "".join(json.dumps(text, ensure_ascii=False) + "\n" for text in self.texts)
            (folder / "texts.jsonl").write_text(lines, encoding="utf-8")
            manifest = {"format": _FORMAT, "version": _VERSION, "snippets": len(self)}
            manifest |= {"affinity": self.affinity, "store": self.store, "fingerprint": self.fingerprint}
            write_json(folder / "manifest.json", manifest)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Snippets:
        """Read a folder of snippets.

        Raises:
            DataError: if the folder is missing, damaged or of another version.
        """
        path = Path(path)
        manifest = read_json(path / "manifest.json", "manifest of snippets")
        try:
            if (manifest["format"], manifest["version"]) != (_FORMAT, _VERSION):
                raise ValueError("manifest.json is of another format or version")
            with np.load(require_regular(path / "rows.npz"), allow_pickle=False) as stored:
                rows, ids, regions = (np.asarray(stored[name], np.int64) for name in _ROWS)
            texts = [json.loads(line) for line in read_text(path / "texts.jsonl").split("\n")[:-1]]
            if len(texts) != manifest["snippets"] or not all(isinstance(text, str) for text in texts):
                raise ValueError(f"{len(texts)} texts of {manifest['snippets']}")
            made = str(manifest["store"]), str(manifest["fingerprint"])
            return cls(rows, ids, regions, texts, float(manifest["affinity"]), *made)
        # A damaged .npz file raises different exceptions, depending on the damage.
        except Exception as error:
            raise DataError(
                f"The snippets in {path} are damaged: {error}. Remove the folder, and they are cut again."
            ) from error


def check_same_regions(cut: str, read: str) -> None:
    """Check that snippets and features are of the same regions.

    Args:
        cut: fingerprint of the regions of the alignment.
        read: fingerprint of the regions of the features.

    Raises:
        DataError: if the fingerprints differ.
    """
    if cut != read:
        raise DataError(
            f"The snippets are of the regions {cut}, not of {read}, so their regions have other numbers. "
            f"Name the features of the alignment's training: image.fingerprint={cut}"
        )


class SnippetImages(ImageSource):
    """Features of the regions of snippets, from the cache; held in memory if they fit.

    Args:
        snippets: the snippets.
        store: the regions of their dataset.
        memory: maximum memory of the features, in bytes; default 4 GiB. Larger features are read from disk per batch.

    Raises:
        DataError: if the snippets are of other regions.
    """

    def __init__(self, snippets: Snippets, store: RegionStore, *, memory: int = 4 << 30) -> None:
        check_same_regions(snippets.store, store.fingerprint)
        self._store, self._ids, self._regions = store, snippets.image_ids, snippets.regions
        self._features: np.ndarray | None = None
        # Regions shared by several snippets are stored once.
        pairs, places = np.unique(np.stack([snippets.image_ids, snippets.regions]), axis=1, return_inverse=True)
        if pairs.shape[1] * store.dim * 2 <= memory:
            self._features, self._places = self._read(*pairs), places.reshape(-1)

    def _read(self, ids: np.ndarray, regions: np.ndarray) -> np.ndarray:
        # float16 as in the cache: half the memory, without loss.
        features = np.zeros((len(ids), self._store.dim), np.float16)
        for start in range(0, len(ids), _IMAGES):
            part = slice(start, start + _IMAGES)
            images, places = np.unique(ids[part], return_inverse=True)
            features[part] = self._store.rows(images)[places.reshape(-1), regions[part]]
        return features

    @property
    def spec(self) -> tf.TensorSpec:
        return tf.TensorSpec((self._store.dim,), tf.float32)

    def gather(self, rows: np.ndarray) -> np.ndarray:
        """Return the features of the regions of some snippets: (n,) rows to (n, dim) float32."""
        if self._features is None:
            return self._read(self._ids[rows], self._regions[rows]).astype(np.float32)
        return self._features[self._places[rows]].astype(np.float32)


class SideBySide(ImageSource):
    """Vectors of several sources, concatenated.

    Args:
        *sources: sources of one vector per row, with the same rows.
    """

    def __init__(self, *sources: ImageSource) -> None:
        self._sources = sources

    @property
    def spec(self) -> tf.TensorSpec:
        return tf.TensorSpec((sum(source.spec.shape[0] for source in self._sources),), tf.float32)

    def gather(self, rows: np.ndarray) -> np.ndarray:
        """Return the vectors of some rows: (n,) rows to (n, sum of sizes) float32."""
        return np.concatenate([source.gather(rows) for source in self._sources], axis=-1)


def snippet_sentences(snippets: Snippets, images: ImageSource, tokenizer: Tokenizer) -> Sentences:
    """Return snippets as sentences, with their regions as images.

    Args:
        snippets: the snippets, see `find_snippets`.
        images: the inputs of their regions, one row per snippet, such as `SnippetImages`.
        tokenizer: tokenizer of the snippets.
    """
    return Sentences(*tokenizer.encode(snippets.texts), images=images, image_rows=np.arange(len(snippets)))


# Version of the cutting algorithm.
_CUT = 1
# Captions per block, whose images are embedded together, and captions of similar length per aligned batch.
_BLOCK, _BATCH = 2048, 256
# Split for the choice of the affinity, and maximum number of captions scored for it.
_CHOOSING, _CHOOSERS = "val", 2048


def find_snippets(alignment: Run, dataset: StoredDataset, part: Split, affinity: float | None = None) -> Snippets:
    """Cut the captions of a split into snippets, with a progress bar.

    Args:
        alignment: a run of `dvsa` that was trained on the dataset's regions.
        dataset: the dataset.
        part: the split.
        affinity: score of two adjacent words on one region, the paper's beta; None to choose it.

    Returns:
        The snippets, in the order of the captions.

    Raises:
        InvalidArgumentError: if the affinity is not a number >= 0, or the run does not read words.
        DataError: if the run has no regions, the dataset lacks its regions, or a score is not finite.

    Example:

        dataset = Dataset.open("data/flickr8k")
        snippets = find_snippets(Run.open("runs/dvsa"), dataset, dataset.split("train"))
        print(snippets.texts[0], snippets.image_rows[0], snippets.regions[0])
    """
    require("affinity", affinity, NonNegative | None)
    fingerprint = snippets_fingerprint(alignment, dataset, part, affinity)
    aligner = _Aligner(alignment, dataset)
    if affinity is None:
        affinity = _choose_affinity(aligner, dataset)
    rows, regions, texts = [], [], []
    with progress(total=len(part.captions), desc="snippets", unit="caption") as bar:
        for captions, words, path in aligner.paths(part, affinity):
            for caption, of_caption, chosen in zip(captions.tolist(), words, path, strict=True):
                for region, start, length in phrases(chosen):
                    text = _joined(of_caption[start : start + length])
                    if text:
                        rows.append(part.caption_rows[caption])
                        regions.append(region)
                        texts.append(text)
            bar.update(len(captions))
    image_rows = np.array(rows, np.int64)
    snippets = Snippets(
        image_rows,
        part.ids[image_rows],
        np.array(regions, np.int64),
        texts,
        affinity,
        aligner.store.fingerprint,
        fingerprint,
    )
    say(
        f"snippets     {len(snippets):,} of {snippets.mean_words:.1f} words, "
        f"{100 * snippets.whole_images:.0f} % of whole images; affinity {snippets.affinity:g}"
    )
    return snippets


def stored_snippets(
    path: Path, alignment: Run, dataset: StoredDataset, part: Split, affinity: float | None = None
) -> Snippets:
    """Read stored snippets, or cut captions if none are stored; does not store the result.

    Args:
        path: a folder of `Snippets.save`. It is ignored if its snippets were cut with other inputs.
        alignment, dataset, part, affinity: see `find_snippets`.

    Raises:
        VsembError: see `find_snippets`; also `DataError` if the folder is damaged.
    """
    if path.exists():
        snippets = Snippets.load(path)
        if snippets.fingerprint == snippets_fingerprint(alignment, dataset, part, affinity):
            return snippets
    return find_snippets(alignment, dataset, part, affinity)


def snippets_fingerprint(alignment: Run, dataset: StoredDataset, split: Split, affinity: float | None) -> str:
    """Return a hex fingerprint of all inputs of a split's snippets.

    Args:
        alignment: the run that aligns words and regions.
        dataset: the dataset.
        split: the split.
        affinity: score of two adjacent words on one region; None if `find_snippets` chooses it.
    """
    captions = json.dumps([list(split.captions), split.caption_rows.tolist()])
    parts = [_CUT, alignment.fingerprint, dataset.fingerprint, split.name, affinity]
    return sha256_bytes(json.dumps([*parts, sha256_bytes(captions.encode())]).encode())


def _choose_affinity(aligner: _Aligner, dataset: StoredDataset) -> float:
    """Choose the affinity from scores of words and regions of the validation split, or of the first split without one.

    The affinity is the standard deviation of the scores of a word's regions. A word then joins its neighbour unless
    another region is better by more than chance. The choice needs no labelled regions. On synthetic scenes, which have
    labels, more words choose the right region than without affinity, but some nouns follow their neighbours.
    `vsemb evaluate --protocol pointing` tries multiples of this value.
    """
    images = dataset.manifest["splits"].get(_CHOOSING, {}).get("images")
    spread = aligner.spread(dataset.split(_CHOOSING if images else dataset.splits[0]))
    # Two digits, so that the value is easy to type.
    return float(f"{spread:.2g}")


# Rows of captions in their block; scores (b, T, M); masks of words (b, T) and of regions (b, M).
_Batch = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]


class _Aligner:
    """Alignment of captions in batches, in graph.

    Args:
        alignment: the run of `dvsa`.
        dataset: the dataset.
    """

    def __init__(self, alignment: Run, dataset: StoredDataset) -> None:
        require_regions(alignment)
        tokenizer = alignment.recipe.text.tokenizer
        if not isinstance(tokenizer, Words):
            raise invalid_argument("alignment", tokenizer.kind, "a run that reads words: text.tokenizer='words'")
        self.run = alignment
        self.store: RegionStore = regions_of(alignment, dataset)
        similarity = alignment.model.similarity
        assert isinstance(similarity, MultiVectorSimilarity)  # Ensured by `require_regions`.
        self._similarity = similarity
        features = tf.TensorSpec((None, None, self.store.dim), tf.float32)
        self._embed = tf.function(alignment.model.encode_images, [features], autograph=False)
        inputs = [
            tf.TensorSpec((None, None, alignment.recipe.embedding_dim), tf.float32),
            tf.TensorSpec((None,), tf.int64),
            tf.TensorSpec((None, None), tf.int32),
            tf.TensorSpec((None,), tf.int64),
        ]
        self._score = tf.function(self._scores, inputs, autograph=False)

    def _scores(self, regions: Any, places: Any, ids: Any, lengths: Any) -> tuple[Any, Any, Any]:
        """Return (b, T, M) scores, and the masks of words, (b, T), and of regions, (b, M)."""
        # Words are counted by length, since a word vector may be zero. The whole image is always a region.
        words = tf.range(tf.shape(ids)[1], dtype=tf.int64)[None] < lengths[:, None]
        real = item_mask(regions) | (tf.range(tf.shape(regions)[1]) == 0)[None]
        texts = self.run.model.encode_texts(ids)
        scores = self._similarity.word_region_scores(tf.gather(regions, places), texts)
        return scores, words, tf.gather(real, places)

    def paths(self, part: Split, affinity: float) -> Iterator[tuple[np.ndarray, list[list[str]], list[list[int]]]]:
        """Yield, block by block, the rows of captions, their words, and the region of each word."""
        finite = tf.constant(min(affinity, float(np.finfo(np.float32).max)))
        for captions, batches in self._scored(part, np.arange(len(part.captions))):
            regions: list[list[int]] = [[] for _ in captions]
            for rows, scores, words, real in batches:
                _refuse_nan(bool(np.isfinite(scores[words[:, :, None] & real[:, None]]).all()))
                path = chain_in_graph(tf.constant(scores), tf.constant(words), tf.constant(real), finite)
                for row, chosen in zip(rows.tolist(), path.numpy().tolist(), strict=True):
                    regions[row] = chosen
            pieces = self.run.tokenizer.pieces(tf.constant([part.captions[caption] for caption in captions]))
            words_of_captions = [[word.decode() for word in of_caption] for of_caption in pieces.to_list()]
            yield captions, words_of_captions, regions

    def spread(self, part: Split) -> float:
        """Return the standard deviation of the scores of a word's regions."""
        count = len(part.captions)
        captions = np.unique(np.linspace(0, count - 1, min(count, _CHOOSERS)).astype(np.int64))
        spread = score_spread(batch[1:] for _, batches in self._scored(part, captions) for batch in batches)
        _refuse_nan(math.isfinite(spread))
        return spread

    def _scored(self, part: Split, captions: np.ndarray) -> Iterator[tuple[np.ndarray, list[_Batch]]]:
        """Yield blocks of captions, and their scores in batches of similar length."""
        most = self.run.recipe.image.max_regions
        for start in range(0, len(captions), _BLOCK):
            block = captions[start : start + _BLOCK]
            images, places = np.unique(part.caption_rows[block], return_inverse=True)
            regions = self._embed(tf.constant(self.store.rows(part.ids[images], most)))
            ids, offsets = self.run.tokenizer.encode([part.captions[caption] for caption in block])
            lengths, batches = np.diff(offsets), []
            order = np.argsort(lengths, kind="stable")
            for at in range(0, len(order), _BATCH):
                rows = order[at : at + _BATCH]
                inputs = (regions, places.reshape(-1)[rows], pad_ids(ids, offsets, rows), lengths[rows])
                scores, words, real = (output.numpy() for output in self._score(*map(tf.constant, inputs)))
                batches.append((rows, scores, words, real))
            yield block, batches


def _refuse_nan(fine: bool) -> None:
    if not fine:
        raise DataError(
            "The scores of words and regions hold NaN or infinity. The alignment or its features are broken; "
            "no snippet was cut."
        )


def _joined(words: Sequence[str]) -> str:
    """Join words to a text that splits into the same words: 's is joined without a space."""
    while words and words[0].startswith("'"):
        words = words[1:]
    return " ".join(words).replace(" '", "'")
