"""Captioners: from rows of images to captions that can be read, in graph."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import tensorflow as tf

from vsemb.errors import invalid_argument
from vsemb.systems.captions.decoding import Sampler, SearchOptions, beam_search, sample
from vsemb.systems.captions.multimodal_rnn import MultimodalRNN
from vsemb.text.vocabulary import Vocabulary

Tensor = Any
_FIVE = SearchOptions(n_best=5)


@dataclass(frozen=True)
class CaptionOptions:
    """How captions are looked for; None leaves it to the run's recipe.

    Attributes:
        beam: hypotheses kept while a caption is searched for.
        n_best: captions per image, best first; None for five, or fewer where the beam of a network is narrower, and
            one where words are drawn greedily. A search may find fewer.
        length_penalty: of a beam search.
        max_words: longest caption.
        sample: `greedy`, `random`, `top-k=5` or `top-p=0.9`: words are drawn, and no beam is searched.
        temperature: of the draws.
        seed: of the draws.
        candidates: of language models, captions written before the best are chosen.

    Raises:
        InvalidArgumentError: for an `n_best` < 1.
    """

    beam: int | None = None
    n_best: int | None = None
    length_penalty: float | None = None
    max_words: int | None = None
    sample: str | None = None
    temperature: float = 1.0
    seed: int = 0
    candidates: int | None = None

    def __post_init__(self) -> None:
        if self.n_best is not None and self.n_best < 1:
            raise invalid_argument("n_best", self.n_best, "an integer >= 1")

    def check_only(self, names: Sequence[str], allowed: str) -> None:
        """Refuses options that are given and not read.

        Args:
            names: the options that are read.
            allowed: what the others may be, for the error.

        Raises:
            InvalidArgumentError: naming the first.
        """
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if field.name not in names and value != field.default:
                raise invalid_argument(field.name, value, allowed)


class Captions(NamedTuple):
    """Captions of images, of each the best first.

    Args:
        texts: (rows, n) string, `""` where there is none.
        log_probs: (rows, n) float32, natural logarithm of the probability; 0 where there is none.
    """

    texts: Tensor
    log_probs: Tensor


class Captioner(tf.Module):
    """Base of the captioners: from rows of images to captions; usable inside `tf.function`.

    Args:
        n_best: captions of an image.
        autograph: whether control flow of `_write` depends on tensors.

    Call args:
        images: (rows, ...), the model's input of each image: features, or pixels. The number of rows may be 0, and
            unknown in a graph.

    Attributes:
        n_best: as given.
        facts: numbers for a contract, such as `beam` and `max_words`.
    """

    facts: dict[str, int | float]

    def __init__(self, n_best: int, *, autograph: bool = True) -> None:
        super().__init__()
        self.n_best = n_best
        # Without, a batch that is not captioned inside a graph would take its time for each of its words.
        self._in_graph = tf.function(self._write, reduce_retracing=True, autograph=autograph)

    def __call__(self, images: Tensor) -> Captions:
        return self._in_graph(tf.convert_to_tensor(images))

    def _write(self, images: Tensor) -> Captions:
        raise NotImplementedError


class NeuralCaptioner(Captioner):
    """Writes captions by a model of the next word that sees the image.

    Args:
        model: a model of the next word that is conditioned on `image`.
        vocabulary: its words.
        search: how captions are searched for.
        sampler: draws words in place of the beam search; None for none.

    Attributes:
        model: as given.
        n_best: captions of an image.

    Example:

    ```python
    captioner = NeuralCaptioner(run.model, run.tokenizer.vocabulary, SearchOptions(beam=7, n_best=5))
    texts, log_probs = captioner(features)
    ```
    """

    def __init__(
        self,
        model: MultimodalRNN,
        vocabulary: Vocabulary,
        search: SearchOptions = _FIVE,
        sampler: Sampler | None = None,
    ) -> None:
        super().__init__(search.n_best)
        self.model = model
        self.search = search
        self.facts = {name: getattr(search, name) for name in ("beam", "length_penalty", "max_words")}
        self._tokens = vocabulary.tokens
        self._sampler = sampler

    def _write(self, images: Tensor) -> Captions:
        state, rows = self.model.start({"image": images}), tf.shape(images)[0]
        if self._sampler is None:
            found = beam_search(self.model.step, state, self.search, rows=rows)
        else:
            found = sample(self.model.step, state, self._sampler, self.search, rows=rows)
        texts = tf.where(found.exists, detokenize(found.tokens, self._tokens), "")
        return Captions(texts, tf.where(found.exists, found.log_probs, 0.0))


def detokenize(ids: Tensor, vocabulary_tokens: Sequence[str] | Tensor) -> Tensor:
    """Joins words into texts, with core TensorFlow operations only.

    Words are joined by single blanks; one that begins with an apostrophe, as the English 's does, follows the
    word before it without.

    Args:
        ids: (..., steps) int, of words; 0 is no word, wherever it stands.
        vocabulary_tokens: (V,) string, all entries of a vocabulary by id.

    Returns:
        (...) string, `""` without words.

    Example:

    >>> ids = tf.constant([[2, 3, 4, 5], [2, 3, 0, 0]])
    >>> detokenize(ids, Vocabulary(["a", "dog", "'s", "ball"]).tokens).numpy().tolist()
    [b"a dog's ball", b'a dog']
    """
    pieces = tf.strings.regex_replace(tf.strings.join([" ", vocabulary_tokens]), "^ '", "'")
    pieces = tf.where(tf.range(tf.shape(pieces)[0]) == 0, "", pieces)
    return tf.strings.strip(tf.strings.reduce_join(tf.gather(pieces, ids), axis=-1))
