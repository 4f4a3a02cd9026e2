"""What a run shows over the images of a dataset, and what tabs compute: all is opened once and asked often."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from keras import ops

from vsemb.data.store import Dataset
from vsemb.errors import InvalidArgumentError, invalid_argument
from vsemb.files import sha256_bytes
from vsemb.runs.images import embed_new_image, stored_image
from vsemb.runs.indexing import ALL, index_items
from vsemb.runs.run import Run
from vsemb.runs.searching import Query, Result, Searchable, embed_text, nearest, searcher_of
from vsemb.runs.serve import run_encoders
from vsemb.searching import abstract, combine, compose

MAX_RESULTS, MAX_SENTENCES, RESORTED = 48, 20, 20
# Bytes of embeddings that no index holds, those of images and of captions each: more are made anew for every answer.
_KEPT = 2 << 30
_OPERATIONS = {"compose": compose, "abstract": abstract}
#: A caption and the natural logarithm of its probability.
Written = tuple[str, float]


@dataclass(frozen=True)
class ComparedSentence:
    """A sentence and how well it fits an image.

    Attributes:
        text: the sentence.
        score: the similarity, higher is better.
        share: length of its bar, 0 to 1: a cosine itself, and other scores relative to the best and the
            worst that are shown with it.
    """

    text: str
    score: float
    share: float


@dataclass(frozen=True)
class Answer:
    """What a query found.

    Attributes:
        images: best first; empty where sentences are compared.
        captions: best first; empty where captions were not asked for.
        notes: lines worth showing, such as words that the run does not know.
        written: captions that another run writes of the image asked about, best first; None without one.
        sentences: those compared with an image, the best fitting first.
    """

    images: tuple[Result, ...] = ()
    captions: tuple[Result, ...] = ()
    notes: tuple[str, ...] = ()
    written: tuple[Written, ...] | None = None
    sentences: tuple[ComparedSentence, ...] = ()


class Demonstration:
    """What a run shows, over the images of some splits of a dataset; subclasses add tabs.

    Args:
        dataset: the dataset.
        splits: their names.

    Attributes:
        dataset: the dataset.
        items: the images, in order.
        places: split and row in it of each image.

    Raises:
        VsembError: if a split is not there.
    """

    def __init__(self, dataset: Dataset, splits: Sequence[str]) -> None:
        self.dataset = dataset
        self.items = index_items(dataset, tuple(splits), "image")
        parts = [dataset.split(name) for name in splits]
        self.places = [(part, row) for part in parts for row in range(len(part))]
        self._by_key: dict[str, int] = {}
        self._by_digest: dict[str, list[int]] = {}
        for place, (part, row) in enumerate(self.places):
            self._by_key.setdefault(part.keys[row], place)
            self._by_digest.setdefault(part.entries[row].get("sha256", ""), []).append(place)

    def __len__(self) -> int:
        return len(self.items)

    @property
    def facts(self) -> str:
        """What the page says of the run, a phrase."""
        raise NotImplementedError

    def add(self, page: Any) -> None:
        """Adds tabs, or what stands in their place, to a `vsemb.demo.page.Page` that is being built."""
        raise NotImplementedError

    def written(self, image: bytes | str) -> tuple[Written, ...] | None:
        """Returns captions of an image, by its bytes or key, best first; None for a run that writes none."""
        return None

    def close(self) -> None:
        """Closes what is open."""

    def place_of(self, key: str) -> int:
        """Returns the place of the image with a key.

        Raises:
            InvalidArgumentError: if there is none.
        """
        if key not in self._by_key:
            allowed = f"the key of an image of {self.dataset.name}, such as {self.items[0].key!r}"
            raise invalid_argument("image", key, allowed)
        return self._by_key[key]

    def same_as(self, encoded: bytes) -> list[int]:
        """Returns the places of the images that are stored as these bytes."""
        return self._by_digest.get(sha256_bytes(encoded), [])


class Demo(Demonstration):
    """A run that answers over a dataset; encoders and indexes are made once, here.

    A run of several vectors per item has no index: they are made with the first answer, and kept if they fit.

    An image is given as bytes, of any format that a dataset takes, or as the key of one of the dataset's.

    Args:
        run: the run.
        dataset: the dataset searched.
        split: its split, or `all`.
        report: called with a line worth showing: an index being built.
        captioning: writes captions of the images asked about, with another run; None for none.

    Raises:
        VsembError: if run and dataset do not fit, or the index cannot be made.

    Attributes:
        has_order: whether the space has composition and abstraction.
        has_arithmetic: whether embeddings can be added and subtracted.
        has_captions: whether captions can be searched; a run that reads names of classes reads none.

    Example:

        demo = Demo(Run.open("runs/vsepp"), Dataset.open("data/flickr8k"))
        demo.by_text("a dog on a beach", 12).images[0].item.key
    """

    def __init__(
        self,
        run: Run,
        dataset: Dataset,
        split: str = ALL,
        report: Callable[[str], None] = print,
        captioning: Demonstration | None = None,
    ) -> None:
        self.run = run
        self._searcher = searcher_of(run)
        self.has_order = run.recipe.similarity.composes
        self.has_arithmetic = self._searcher.combines
        self.has_captions = run.recipe.text.tokenizer.per_caption
        self._encoders = run_encoders(run)
        self._captioning = captioning

        def searched(kind: str) -> Searchable:
            return self._searcher.open(run, dataset, split, kind, encoders=self._encoders, report=report, keep=_KEPT)

        self._images = searched("image")
        self._captions: Searchable | None = None
        if run.reader.limits is not None:
            report(run.reader.limits)
        super().__init__(dataset, self._images.source.splits)
        if self.has_captions:
            self._captions = searched("text")

    def close(self) -> None:
        for index in (self._images, self._captions):
            if index is not None:
                index.close()

    @property
    def dim(self) -> int:
        """Size of the embeddings."""
        return self._images.dim

    def by_text(self, text: str, k: int) -> Answer:
        """Finds the images that fit a sentence.

        Args:
            text: the sentence.
            k: images wanted, up to 48.

        Raises:
            InvalidArgumentError: if no word of it is known, or for another k.
        """
        notes: list[str] = []
        vector = self._embed_text(text, "text", notes)
        return Answer(self._nearest_images(vector, k, "text"), notes=tuple(notes))

    def by_image(self, image: bytes | str, k: int) -> Answer:
        """Finds the captions and the images nearest to an image, which is not among them itself.

        Where a run that writes captions is there, it writes some too.

        Args:
            image: its bytes or key.
            k: images wanted, and captions.

        Raises:
            InvalidArgumentError: for an unknown key, or a k that is not 1 to 48.
            DataError: if it cannot be decoded or embedded.
        """
        vector, own = self._embed_image(image)
        images = self._nearest_images(vector, k, "image", own)
        captions: tuple[Result, ...] = ()
        if self._captions is not None:
            captions = tuple(nearest(self._captions, vector, k, query_kind="image"))
        written = None if self._captioning is None else self._captioning.written(image)
        return Answer(images, captions, written=written)

    def arithmetic(
        self, image: bytes | str, minus: Sequence[str], plus: Sequence[str], k: int, resort: bool = False
    ) -> Answer:
        """Finds the images nearest to an image with words taken away and added (Kiros et al. 2014).

        Args:
            image: its bytes or key.
            minus: words or phrases taken away.
            plus: words or phrases added.
            k: images wanted.
            resort: whether the best 20 are sorted anew by their distance to their mean.

        Raises:
            InvalidArgumentError: for an unknown key or words, nothing left of the image, another k, or a run
                of several vectors per item.
            DataError: if the image cannot be decoded or embedded.
        """
        asked = Query(image="image", minus=tuple(minus), plus=tuple(plus))
        self._searcher.check(self.run, asked, self.run.path, k, RESORTED if resort else None)
        notes: list[str] = []
        vector, own = self._embed_image(image)
        less = [self._embed_text(text, "minus", notes) for text in minus]
        more = [self._embed_text(text, "plus", notes) for text in plus]
        if less or more:
            vector = combine(vector, less, more, self.run.model.similarity.normalize)
        else:
            notes.append("Nothing was taken away or added: these are the nearest images.")
        images = self._nearest_images(vector, k, "image", own, RESORTED if resort else None)
        return Answer(images, notes=tuple(notes))

    def of_texts(self, operation: str, texts: Sequence[str], k: int) -> Answer:
        """Finds the images of all that several texts say, or of what they have in common.

        Args:
            operation: `compose` or `abstract`, see `vsemb.searching.compose`.
            texts: two or more.
            k: images wanted.

        Raises:
            InvalidArgumentError: for a space without order, another operation, fewer than two texts, or
                texts without a known word.
        """
        if not self.has_order:
            raise invalid_argument("operation", operation, "one that the run has; its similarity is no order")
        if operation not in _OPERATIONS:
            raise invalid_argument("operation", operation, "compose or abstract")
        if len(texts) < 2:
            raise invalid_argument(operation, list(texts), "two or more texts")
        notes: list[str] = []
        vectors = [self._embed_text(text, operation, notes) for text in texts]
        return Answer(self._nearest_images(_OPERATIONS[operation](*vectors), k, "text"), notes=tuple(notes))

    def compare(self, image: bytes | str, sentences: Sequence[str]) -> Answer:
        """Scores sentences against an image; one without a known word is left out and noted.

        Args:
            image: its bytes or key.
            sentences: 1 to 20.

        Raises:
            InvalidArgumentError: for another number of sentences, or if none has a known word.
            DataError: if the image cannot be decoded or embedded.
        """
        if not 1 <= len(sentences) <= MAX_SENTENCES:
            raise invalid_argument("sentences", len(sentences), f"1 to {MAX_SENTENCES} sentences")
        vector, _ = self._embed_image(image)
        notes: list[str] = []
        known, vectors, refused = [], [], None
        for sentence in sentences:
            try:
                vectors.append(self._embed_text(sentence, "sentence", notes))
                known.append(sentence)
            except InvalidArgumentError as error:
                refused = refused or error
                notes.append(f"Left out, since no word of it is known: {sentence}")
        if refused is not None and not known:
            raise refused
        tensors = [ops.convert_to_tensor(each) for each in (vector[None], np.stack(vectors))]
        scores = ops.convert_to_numpy(self.run.model.similarity.scores(*tensors))[0]
        similarity = self.run.recipe.similarity
        shares = _shares(scores, similarity.linear and similarity.unit_length)
        compared = [
            ComparedSentence(known[row], float(scores[row]), float(shares[row]))
            for row in np.argsort(-scores, kind="stable")
        ]
        return Answer(sentences=tuple(compared), notes=tuple(notes))

    def _nearest_images(
        self, vector: np.ndarray, k: int, kind: str, exclude: Sequence[int] = (), resort: int | None = None
    ) -> tuple[Result, ...]:
        if not 1 <= k <= MAX_RESULTS:
            raise invalid_argument("k", k, f"an integer from 1 to {MAX_RESULTS}")
        return tuple(nearest(self._images, vector, k, query_kind=kind, exclude=exclude, resort=resort))

    def _embed_text(self, text: str, name: str, notes: list[str]) -> np.ndarray:
        def note(line: str) -> None:
            # It stands among notes, where no line need say that it is one.
            line = line.removeprefix("Warning: ")
            notes.append(line[0].upper() + line[1:])

        return embed_text(self._encoders, self.run, text, name, note)

    def _embed_image(self, image: bytes | str) -> tuple[np.ndarray, list[int]]:
        """Returns the embedding, and the places in the index that are the image itself."""
        if isinstance(image, str):
            place = self.place_of(image)
            return self._images.embedding(place), [place]
        encoded = stored_image(image, self.dataset).encoded
        vector = embed_new_image(self.run, self._encoders, encoded, "the image")
        return vector, self.same_as(encoded)


def _shares(scores: np.ndarray, absolute: bool) -> np.ndarray:
    if absolute:
        return np.clip(scores, 0.0, 1.0)
    span = float(scores.max() - scores.min())
    return np.ones_like(scores) if span == 0 else (scores - scores.min()) / span
