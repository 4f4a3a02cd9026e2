"""Captioners: from images to captions, in graph."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from vsemb.errors import invalid_argument
from vsemb.ops.tensorflow import tf
from vsemb.parts import Count, require_fields
from vsemb.systems.captions.decoding import Sampler, SearchOptions, Tensor, beam_search, sample
from vsemb.systems.captions.multimodal_rnn import MultimodalRNN
from vsemb.text.vocabulary import Vocabulary

_FIVE = SearchOptions(n_best=5)


@dataclass(frozen=True)
class CaptionOptions:
    """Options of the search for captions; None for the recipe's value.

    Attributes:
        beam: hypotheses of the beam search.
        n_best: captions per image, best first; the search may find fewer. None for 5, at most the beam of a beam
            search, and 1 for greedy sampling.
        length_penalty: length penalty of the beam search, see `SearchOptions`.
        max_words: maximum number of words per caption.
        sample: `greedy`, `random`, `top-k=5` or `top-p=0.9` to sample words in place of a beam search.
        temperature: temperature of the sampling; default 1.
        seed: seed of the sampling; default 0.
        candidates: captions that a language model writes before the best are chosen.

    Raises:
        InvalidArgumentError: if `n_best` < 1.
    """

    beam: int | None = None
    n_best: Count | None = None
    length_penalty: float | None = None
    max_words: int | None = None
    sample: str | None = None
    temperature: float = 1.0
    seed: int = 0
    candidates: int | None = None

    def __post_init__(self) -> None:
        require_fields(self)

    def chosen(self, names: Sequence[str]) -> dict[str, Any]:
        """Return the options that are set, of some names."""
        values = {name: getattr(self, name) for name in names}
        return {name: value for name, value in values.items() if value is not None}

    def check_only(self, names: Sequence[str], allowed: str) -> None:
        """Check that only supported options are set.

        Args:
            names: names of the supported options.
            allowed: text of the error about the allowed values of other options.

        Raises:
            InvalidArgumentError: with the first unsupported option.
        """
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if field.name not in names and value != field.default:
                raise invalid_argument(field.name, value, allowed)


class Captions(NamedTuple):
    """Captions of images, best first per image.

    Args:
        texts: (rows, n) string, `""` for a missing caption.
        log_probs: (rows, n) float32, natural logarithm of the probability; 0 for a missing caption.
    """

    texts: Tensor
    log_probs: Tensor


class Captioner(tf.Module):
    """Base of the captioners, from images to captions; usable inside `tf.function`.

    Args:
        n_best: captions per image.

    Call args:
        images: (rows, ...), the model input of each image: features, or pixels. The number of rows may be 0, or
            dynamic in a graph.

    Attributes:
        n_best: as given.
        facts: settings for the contract, such as `beam` and `max_words`.
    """

    facts: dict[str, int | float]

    def __init__(self, n_best: int) -> None:
        super().__init__()
        self.n_best = n_best
        # In eager mode, each word of a batch would be slow.
        self._in_graph = tf.function(self._write, reduce_retracing=True, autograph=False)

    def __call__(self, images: Tensor) -> Captions:
        return self._in_graph(tf.convert_to_tensor(images))

    def _write(self, images: Tensor) -> Captions:
        raise NotImplementedError


class NeuralCaptioner(Captioner):
    """Captioner with a next-word model that is conditioned on the image.

    Args:
        model: a next-word model conditioned on `image`.
        vocabulary: vocabulary of the model.
        search: options of the search.
        sampler: sampler of words; None for beam search.

    Attributes:
        model: as given.
        n_best: captions per image.

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
            hypotheses = beam_search(self.model.step, state, self.search, rows=rows)
        else:
            hypotheses = sample(self.model.step, state, self._sampler, self.search, rows=rows)
        texts = tf.where(hypotheses.exists, detokenize(hypotheses.tokens, self._tokens), "")
        return Captions(texts, tf.where(hypotheses.exists, hypotheses.log_probs, 0.0))


def detokenize(ids: Tensor, vocabulary_tokens: Sequence[str] | Tensor) -> Tensor:
    """Join words to texts, with core TensorFlow operations only.

    Words are joined by single spaces. A word that begins with an apostrophe, such as 's, is joined without a space.

    Args:
        ids: (..., steps) int, word ids; 0 is skipped at any position.
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
