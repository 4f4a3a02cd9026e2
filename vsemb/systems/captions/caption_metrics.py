"""Caption metrics as defined by the COCO caption evaluation (Chen et al. 2015), and novelty.

BLEU, ROUGE-L and CIDEr-D are computed by `pycocoevalcap`, the code of that evaluation. METEOR is computed by its own
Java program. Words are split as in the evaluation, see `caption_tokens`. Novelty compares captions with the training
captions, see `TrainingCaptions`.
"""

from __future__ import annotations

import contextlib
import importlib.resources
import math
import re
import shutil
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from vsemb.errors import DataError, invalid_argument, missing_extra, needs_extra, one_line
from vsemb.text.normalize import words_of

Tokens = dict[int, list[str]]
"""Captions of each image, words joined by single spaces, as `pycocoevalcap` takes them."""

_ONE_IMAGE = "CIDEr is 0 where there is one image: every n-gram of its references is in all images."


@dataclass(frozen=True)
class CaptionMetrics:
    """Caption metrics; scores in percent.

    Attributes:
        images: number of images, each with one caption.
        bleu: BLEU-1 to BLEU-4 of the corpus.
        rouge_l: mean ROUGE-L.
        cider: CIDEr-D times 100, as usually reported. Document frequencies are counted in the references. Values for
            other images, or for fewer images, cannot be compared.
        meteor: METEOR 1.5 of the corpus; None if not measured.
        words: mean number of words per caption.
        vocabulary: number of distinct words of all captions.
        novelty: percent of captions that differ from every training caption, compared as words; None without
            training captions.
        train_vocabulary: number of distinct words of the training captions, or None.
        each: score -> (images,) float64 in percent: `rouge_l`, `cider` and, if measured, `meteor`, `clip_score` and
            `ref_clip_score`.
        notes: notes on the metrics, one line each.
        clip_score: mean CLIPScore; None if not measured.
        ref_clip_score: mean RefCLIPScore; None if not measured.
    """

    images: int
    bleu: tuple[float, float, float, float]
    rouge_l: float
    cider: float
    meteor: float | None
    words: float
    vocabulary: int
    novelty: float | None = None
    train_vocabulary: int | None = None
    each: Mapping[str, np.ndarray] = field(default_factory=dict, compare=False, repr=False)
    notes: tuple[str, ...] = ()
    clip_score: float | None = None
    ref_clip_score: float | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the scores of the corpus, without `each`.

        Example:

        >>> metrics = CaptionMetrics(1, (100.0, 50.0, 25.0, 12.5), 60.0, 0.0, None, 5.0, 5)
        >>> metrics.to_json()["BLEU-4"], metrics.to_json()["METEOR"]
        (12.5, None)
        """
        return {
            "images": self.images,
            **{f"BLEU-{order}": value for order, value in enumerate(self.bleu, 1)},
            "METEOR": self.meteor,
            "ROUGE-L": self.rouge_l,
            "CIDEr": self.cider,
            "CLIPScore": self.clip_score,
            "RefCLIPScore": self.ref_clip_score,
            "novel": self.novelty,
            "vocabulary": self.vocabulary,
            "train_vocabulary": self.train_vocabulary,
            "words": self.words,
            "notes": list(self.notes),
        }


def evaluate_captions(
    candidates: Sequence[str],
    references: Sequence[Sequence[str]],
    *,
    train: TrainingCaptions | None = None,
    meteor: bool = True,
) -> CaptionMetrics:
    """Measure one caption per image against the references of the image.

    Args:
        candidates: the caption of each image, raw. A caption without words counts, with score 0.
        references: the references of each image, raw, one or more.
        train: the training captions, used for novelty; None to leave novelty out.
        meteor: whether METEOR is measured, which needs Java and half a minute. On failure a note gives the reason.

    Raises:
        InvalidArgumentError: if `candidates` is empty, the numbers of candidates and references differ, or an image
            has no references.
        MissingExtraError: if `pycocoevalcap` is not installed.

    Example:

    >>> references = [["a dog runs", "the dog is running"], ["two cats on a sofa"]]
    >>> metrics = evaluate_captions(["A dog runs.", "two cats"], references, meteor=False)
    >>> [round(score, 1) for score in metrics.bleu[:2]], round(metrics.rouge_l, 1), metrics.vocabulary
    ([54.9, 54.9], 76.5, 5)
    """
    found, wanted = _tokens(candidates, references)
    bleu, _ = _scorer("bleu.bleu", "Bleu")(4).compute_score(wanted, found, verbose=0)
    rouge_l, rouge_each = _scorer("rouge.rouge", "Rouge")().compute_score(wanted, found)
    cider_d, cider_each = _cider(found, wanted)
    each = {"rouge_l": 100 * np.asarray(rouge_each), "cider": 100 * cider_each}
    notes = [_ONE_IMAGE] if len(found) == 1 else []
    score = None
    if meteor:
        try:
            score, meteor_each = meteor_of_tokens([found[row][0] for row in found], list(wanted.values()))
            score, each["meteor"] = 100 * score, 100 * meteor_each
        except DataError as error:
            notes.append(f"METEOR was not measured. {error}")
    words = list(words_of(candidates))
    first, second, third, fourth = (100 * float(value) for value in bleu)
    return CaptionMetrics(
        images=len(found),
        bleu=(first, second, third, fourth),
        rouge_l=100 * float(rouge_l),
        cider=100 * cider_d,
        meteor=score,
        words=float(np.mean([len(caption) for caption in words])),
        vocabulary=len({word for caption in words for word in caption}),
        novelty=None if train is None else train.novelty(candidates),
        train_vocabulary=None if train is None else train.vocabulary,
        each=each,
        notes=tuple(notes),
    )


def cider(candidates: Sequence[str], references: Sequence[Sequence[str]]) -> tuple[float, np.ndarray]:
    """Compute CIDEr-D (Vedantam et al. 2015), sigma 6, n-grams up to 4.

    Args:
        candidates: the caption of each image, raw.
        references: the references of each image, raw, one or more. Document frequencies are counted in them.

    Returns:
        corpus: the mean, in [0, 10]; papers report it times 100.
        each: (images,) float64.

    Raises:
        InvalidArgumentError: see `evaluate_captions`.
        MissingExtraError: if `pycocoevalcap` is not installed.

    Example:

    >>> corpus, each = cider(["a dog runs fast", "two cats on a sofa"], [["a dog runs fast"], ["Two men."]])
    >>> round(corpus, 2), each.round(2).tolist()
    (5.35, [10.0, 0.7])
    """
    return _cider(*_tokens(candidates, references))


def _cider(found: Tokens, wanted: Tokens) -> tuple[float, np.ndarray]:
    if not any(caption for captions in wanted.values() for caption in captions):
        return 0.0, np.zeros(len(found))  # pycocoevalcap fails if no reference has a word.
    corpus, each = _scorer("cider.cider", "Cider")().compute_score(wanted, found)
    return float(corpus), np.asarray(each, np.float64)


def _tokens(candidates: Sequence[str], references: Sequence[Sequence[str]]) -> tuple[Tokens, Tokens]:
    """Check captions and split them into words; return candidates (one per image) and references."""
    if isinstance(candidates, str) or not len(candidates):
        raise invalid_argument("candidates", candidates, "the captions of one image or more")
    if len(references) != len(candidates):
        allowed = f"as many as candidates, {len(candidates)}"
        raise invalid_argument("references", f"references of {len(references)} images", allowed)
    for row, captions in enumerate(references):
        if isinstance(captions, str) or not len(captions):
            raise invalid_argument("references", captions, f"a list of captions for image {row}, one or more")
    found = {row: [" ".join(caption_tokens(caption))] for row, caption in enumerate(candidates)}
    wanted = {
        row: [" ".join(caption_tokens(caption)) for caption in captions] for row, captions in enumerate(references)
    }
    return found, wanted


def _scorer(module: str, name: str) -> Any:
    """Return a class of `pycocoevalcap`."""
    import importlib

    with needs_extra("pycocoevalcap", "captions"):
        return getattr(importlib.import_module(f"pycocoevalcap.{module}"), name)


_METEOR = "meteor-1.5.jar"
_METEOR_OPTIONS = ("-", "-", "-stdio", "-l", "en", "-norm")  # As the COCO evaluation calls it.
_JAVA = ("-Xmx2G", "-Dfile.encoding=UTF-8", "-Duser.language=en")
# Maximum seconds per answer. Before the first, the program loads its tables, in ten seconds on an idle machine.
_PATIENCE = 300.0


def meteor_of_tokens(candidates: Sequence[str], references: Sequence[Sequence[str]]) -> tuple[float, np.ndarray]:
    """Compute METEOR 1.5 (Denkowski and Lavie 2014) with the Java program of `pycocoevalcap`.

    Args:
        candidates: the caption of each image, tokenized (`caption_tokens`), words joined by single spaces.
        references: the references of each image, in the same format.

    Returns:
        corpus: the corpus score, in [0, 1]; it differs from the mean of `each`.
        each: (images,) float64.

    Raises:
        DataError: without Java, or if the Java program fails or stops answering.
        MissingExtraError: if `pycocoevalcap` is not installed.

    Example:

        score, each = meteor_of_tokens(["a dog runs"], [["a dog is running", "the dog runs"]])
    """
    with _program() as process:
        statistics = [
            _ask(process, " ||| ".join(["SCORE", *map(_one_line, texts), _one_line(candidate)]))
            for candidate, texts in zip(candidates, references, strict=True)
        ]
        first = _ask(process, " ||| ".join(["EVAL", *statistics]))
        answers = [first, *(_ask(process) for _ in candidates)]
    try:
        *each, corpus = map(float, answers)
    except ValueError as error:
        raise DataError(f"METEOR answered no numbers: {one_line(' '.join(answers), 100)}") from error
    return corpus, np.asarray(each, np.float64)


def _one_line(text: str) -> str:
    # The program reads ||| and line breaks as separators.
    return " ".join(text.replace("|||", " ").encode(errors="replace").decode().split())


def _command() -> list[str]:
    """Return the command line of the program."""
    try:
        jar = importlib.resources.files("pycocoevalcap") / "meteor" / _METEOR
    except ModuleNotFoundError as error:
        raise missing_extra("pycocoevalcap", "captions") from error
    java = shutil.which("java")
    if java is None:
        raise DataError("METEOR needs `java` on the PATH. Install a Java runtime.")
    if not jar.is_file():
        raise DataError(f"The installed pycocoevalcap is without {_METEOR}; install pycocoevalcap again.")
    return [java, *_JAVA, "-jar", str(jar), *_METEOR_OPTIONS]


@contextlib.contextmanager
def _program() -> Iterator[subprocess.Popen[bytes]]:
    """Start the program, and end it also after errors."""
    try:
        process = subprocess.Popen(_command(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    except OSError as error:
        raise DataError(f"Java does not start: {error.strerror}.") from error
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def _ask(process: subprocess.Popen[bytes], line: str | None = None) -> str:
    """Write a line to the program, unless it is None, and return the next line of output."""
    assert process.stdin is not None and process.stdout is not None
    # A time limit for reading: killing the program also ends the read.
    began, late = time.monotonic(), threading.Timer(_PATIENCE, process.kill)
    late.start()
    try:
        if line is not None:
            process.stdin.write(f"{line}\n".encode())
            process.stdin.flush()
        answer = process.stdout.readline()
    except OSError:
        answer = b""
    finally:
        late.cancel()
    if answer:
        return answer.decode(errors="replace").strip()
    if time.monotonic() - began >= _PATIENCE:
        raise DataError(f"Its Java program gave no answer for {_PATIENCE:g} seconds.")
    raise DataError("Its Java program ended early; it needs 2 GB of memory and Java 8 or later: java -version")


_ASCII = str.maketrans({"‘": "'", "’": "'", "‛": "'", "′": "'", "–": "--", "—": "--", "…": "...", "\0": " "})
_DOUBLE_QUOTES = re.compile("[\"“”„«»]|``|''")
_BRACKETS = {"(": "-lrb-", ")": "-rrb-", "[": "-lsb-", "]": "-rsb-", "{": "-lcb-", "}": "-rcb-"}

# Tokens that the COCO evaluation removes. Its list also has brackets, but spelled in capitals, and texts are in lower
# case. So brackets are not removed.
_DROPPED = frozenset(["'", "`", ".", "?", "!", ",", ":", "-", "--", ";"])

# Words that the Penn treebank splits in two.
_SPLIT = {
    "cannot": "can not",
    "gonna": "gon na",
    "gotta": "got ta",
    "wanna": "wan na",
    "gimme": "gim me",
    "lemme": "lem me",
    "'tis": "'t is",
    "'twas": "'t was",
}

# Abbreviations, which keep their full stop.
_ABBREVIATIONS = (
    *("mr", "mrs", "ms", "dr", "prof", "rev", "gen", "sgt", "capt", "lt", "col", "gov", "sen", "st", "jr"),
    *("sr", "inc", "co", "corp", "ltd", "vs", "etc", "ave", "mt", "ft", "blvd", "dept", "approx"),
)

_TOKEN = re.compile(
    rf"""
      (?:{"|".join(_ABBREVIATIONS)})\.(?!\w)  # mr.
    | (?:[^\W\d_]\.)+(?!\w)                   # u.s.
    | '(?:tis|twas)\b
    | '?n'(?!\w)                              # rock 'n' roll
    | '(?:s|m|d|re|ve|ll|em|til|cause)\b  # what stands apart from its word
    | n't\b
    | (?-i:[A-Z]+&[A-Z]+)                     # A&M, where small letters would be three words
    | \d+(?:[.,:/]\d+)+                       # 3,000 and 5:30
    # A word: t-shirt, o'clock, end.of, black/white; don't, dog's and we'll are cut in front of their end.
    | \w(?:(?!n't\b)\w)*(?:[-./@](?=\w)(?:(?!n't\b)\w)+|'(?!(?:s|m|d|re|ve|ll)\b)(?=\w\w)\w+)*
    | ---*
    | \.\.\.*
    | [!?]+
    | \S
    """,
    re.VERBOSE | re.IGNORECASE,
)


def caption_tokens(text: str) -> list[str]:
    """Split a caption into the words that metrics count, without Java.

    The COCO caption evaluation tokenizes candidates and references with Stanford's PTBTokenizer, a Java program. It
    returns words of the Penn treebank in lower case, without punctuation. Here regular expressions do the same, so
    that scores do not depend on the installed software. Both give the same words for all 35,000 captions of Flickr8k's
    train and val.

    Words are in lower case. `don't` becomes `do n't`, and `dog's` becomes `dog 's`. Words with hyphens stay whole.
    Punctuation is removed.

    Args:
        text: a caption.

    Returns:
        its words, each without white space and not empty; an empty list for a caption without words.

    Example:

    >>> caption_tokens("The dog's T-shirt isn't red, it's blue!")
    ['the', 'dog', "'s", 't-shirt', 'is', "n't", 'red', 'it', "'s", 'blue']
    """
    text = _DOUBLE_QUOTES.sub(" ", text.translate(_ASCII))
    tokens = []
    for token in map(str.lower, _TOKEN.findall(text)):
        if token in _DROPPED or not token.strip("."):
            continue
        tokens += _SPLIT.get(token, _BRACKETS.get(token, token)).split()
    return tokens


class NearestSentences(NamedTuple):
    """The training sentence most similar to each caption.

    Attributes:
        rows: (captions,) int64, the first of equally similar sentences; -1 if no sentence shares a word.
        similarities: (captions,) float64, the cosine, in [0, 1].
    """

    rows: np.ndarray
    similarities: np.ndarray


class TrainingCaptions:
    """The training captions of a model, for comparison with generated captions.

    Captions are compared as the words that models read and write, see `vsemb.text.normalize.split_words`. Models cannot
    write the hyphens and apostrophes of training captions.

    Args:
        captions: raw, one or more.

    Raises:
        InvalidArgumentError: if `captions` is empty.

    Example:

    >>> train = TrainingCaptions(["two cats sleep", "A dog runs fast.", "a cat"])
    >>> train.novelty(["a dog runs fast", "a dog runs"]), train.vocabulary
    (50.0, 8)
    >>> nearest = train.nearest(["a dog runs"])
    >>> train.captions[nearest.rows[0]], nearest.similarities.round(2).tolist()
    ('A dog runs fast.', [0.83])
    """

    def __init__(self, captions: Sequence[str]) -> None:
        if isinstance(captions, str) or not len(captions):
            raise invalid_argument("captions", captions, "training captions, one or more")
        self.captions = captions
        self._words = [tuple(words) for words in words_of(captions)]

    @cached_property
    def vocabulary(self) -> int:
        """Number of distinct words."""
        return len({word for words in self._words for word in words})

    @cached_property
    def _known(self) -> set[tuple[str, ...]]:
        return set(self._words)

    def novelty(self, captions: Sequence[str]) -> float:
        """Return the percent of captions that differ from every training caption, compared as words.

        Args:
            captions: raw, one or more.

        Raises:
            InvalidArgumentError: if `captions` is empty.

        Example:

        >>> TrainingCaptions(["a dog"]).novelty(["A dog!", "dogs"])
        50.0
        """
        if isinstance(captions, str) or not len(captions):
            raise invalid_argument("captions", captions, "captions, one or more")
        return 100 * float(np.mean([tuple(words) not in self._known for words in words_of(captions)]))

    def nearest(self, captions: Sequence[str]) -> NearestSentences:
        """Find the training sentence most similar to each caption by its words.

        Similarity is the cosine of tf-idf vectors over words and pairs of adjacent words. The idf of a feature in df of
        the n training sentences is 1 + ln(n / df).

        Args:
            captions: raw.

        Example:

        >>> TrainingCaptions(["a dog", "the dog"]).nearest(["the dog runs", "cats"]).rows.tolist()
        [1, -1]
        """
        numbers, sentences, weights, bounds, _ = self._index
        found = np.full(len(captions), -1, np.int64)
        similarities = np.zeros(len(captions))
        for row, vector in enumerate(map(self._vector, words_of(captions))):
            scores = np.zeros(len(self.captions))
            for feature, weight in vector.items():
                number = numbers.get(feature)
                if number is not None:
                    own = slice(bounds[number], bounds[number + 1])
                    scores[sentences[own]] += weight * weights[own]
            best = int(scores.argmax())
            if scores[best] > 0:
                # By rounding, the cosine of a copy may exceed 1.
                found[row], similarities[row] = best, min(scores[best], 1.0)
        return NearestSentences(found, similarities)

    def similarities(self, captions: Sequence[str]) -> np.ndarray:
        """Return the similarities of all pairs of captions, see `nearest`: (captions, captions) float64.

        Args:
            captions: raw.

        Example:

        >>> TrainingCaptions(["a dog", "a cat"]).similarities(["a dog", "a dog", "cats"]).round(6).tolist()
        [[1.0, 1.0, 0.0], [1.0, 1.0, 0.0], [0.0, 0.0, 1.0]]
        """
        vectors = [self._vector(words) for words in words_of(captions)]
        return np.array(
            [
                [sum(weight * other.get(feature, 0.0) for feature, weight in one.items()) for other in vectors]
                for one in vectors
            ]
        )

    def _vector(self, words: Sequence[str]) -> dict[object, float]:
        """Return the weights of a caption's features, scaled to length 1."""
        numbers, _, _, _, idf = self._index
        unseen = 1 + math.log(len(self.captions))
        weights: dict[object, float] = {}
        for feature in (*words, *pairwise(words)):
            number = numbers.get(feature)
            weights[feature] = weights.get(feature, 0.0) + (unseen if number is None else float(idf[number]))
        length = math.hypot(*weights.values())
        return {feature: weight / length for feature, weight in weights.items()}

    @cached_property
    def _index(self) -> tuple[dict[object, int], np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Index from features to sentences: feature numbers, sentences and weights by feature, their bounds, idf."""
        numbers: dict[object, int] = {}
        flat: list[int] = []
        lengths = []
        for words in self._words:
            features = (*words, *pairwise(words))
            flat += [numbers.setdefault(feature, len(numbers)) for feature in features]
            lengths.append(len(features))
        rows = np.repeat(np.arange(len(lengths)), lengths)
        pairs, counts = np.unique(np.asarray(flat, np.int64) * len(lengths) + rows, return_counts=True)
        found, sentences = np.divmod(pairs, len(lengths))
        frequencies = np.bincount(found, minlength=len(numbers))
        idf = 1 + np.log(len(lengths) / np.maximum(frequencies, 1))
        weights = counts * idf[found]
        norms = np.sqrt(np.bincount(sentences, weights=weights**2, minlength=len(lengths)))
        bounds = np.concatenate([[0], np.cumsum(frequencies)])
        return numbers, sentences, weights / norms[sentences], bounds, idf
