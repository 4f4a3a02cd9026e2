"""The parts of speech of a dataset's captions: from a tagger or a file, `vsemb annotate --pos-tags` as functions.

DATASET/tags/
    tags.json            what the rest is, with checksums; which dataset they are of, where they came from
    SPLIT.tags.gz        a line for each caption of a split, in order: its words' tags by spaces
"""

from __future__ import annotations

import gzip
import io
import itertools
import os
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from vsemb.console import progress
from vsemb.data.annotations import CaptionAnnotation
from vsemb.data.caption_index import CaptionIndex
from vsemb.data.store import Dataset, Split
from vsemb.errors import DataError, needs_extra, one_line
from vsemb.files import reading, sha256_bytes, sha256_file
from vsemb.text.normalize import readable_part, words_of

#: The model of NLTK's perceptron tagger for English.
MODEL = "averaged_perceptron_tagger_eng"

_GZIP = b"\x1f\x8b"
# Taggers write brackets in the Penn Treebank's spelling, of which no letter stands in the text.
_BRACKETS = {"-LRB-", "-RRB-", "-LSB-", "-RSB-", "-LCB-", "-RCB-"}

Token = tuple[str, str]
_SHOWN = 100


class TaggedText(NamedTuple):
    """A line of a file of tags.

    Args:
        id: what the file calls the text.
        tokens: words and punctuation, each with its tag.
        line: its number in the file, from 1.
    """

    id: str
    tokens: list[Token]
    line: int


class Tagger:
    """NLTK's averaged perceptron, on the tokens that NLTK makes of raw text; `open_tagger` makes one.

    Args:
        tokenizer: of NLTK.
        tagger: of NLTK.
        name: which tagger it is, with versions.

    Attributes:
        name: as given.
    """

    def __init__(self, tokenizer: Any, tagger: Any, name: str) -> None:
        self.name = name
        self._tokenizer = tokenizer
        self._tagger = tagger

    def __call__(self, text: str) -> list[Token]:
        """Tags a text.

        Args:
            text: raw; what goes beyond `vsemb.text.normalize.MAX_BYTES` is left out.

        Returns:
            Its words and punctuation, each with its Penn tag.

        Example:

        ```python
        print(open_tagger()("A dog runs."))
        ```
        """
        return self._tagger.tag(self._tokenizer.tokenize(readable_part(text)))


def open_tagger() -> Tagger:
    """Opens NLTK's perceptron tagger for English, which gives Penn tags. Nothing is downloaded.

    Raises:
        MissingExtraError: without NLTK.
        DataError: if NLTK does not find the tagger's model.

    Example:

    ```python
    tagger = open_tagger()
    print(tagger.name, tagger("Two dogs run after a ball."))
    ```
    """
    with needs_extra("nltk", "captions"):
        import nltk
        from nltk.tag.perceptron import PerceptronTagger
        from nltk.tokenize import NLTKWordTokenizer
    try:
        tagger = PerceptronTagger(lang="eng")
    except LookupError as error:
        raise DataError(
            f"NLTK does not find the model {MODEL} of its tagger. Fetch it with `python -m nltk.downloader "
            f"{MODEL}`, or set NLTK_DATA to the folder that holds taggers/{MODEL}."
        ) from error
    except (OSError, ValueError) as error:
        raise DataError(f"NLTK cannot read the model {MODEL} of its tagger: {one_line(error)}") from error
    return Tagger(NLTKWordTokenizer(), tagger, f"NLTK {nltk.__version__} {MODEL}")


def align_tags(tokens: Sequence[Token], words: Sequence[str]) -> list[str] | None:
    """Gives the words of a text the tags of the tokens that some tagger has cut the same text into.

    Both are compared by their letters and digits alone, in lower case. A word takes the tag of the token in
    which its first character lies, so `don't`, cut into `do` and `n't`, has that of `do` as our `dont`.
    Punctuation has no letters and falls away.

    Args:
        tokens: pairs of a token and its tag, in order.
        words: of the same text, as `vsemb.text.normalize.split_words` splits it.

    Returns:
        A tag for each word; None where tokens and words are not of one text.

    Example:

    >>> align_tags([("The", "DT"), ("man", "NN"), ("'s", "POS"), ("dog", "NN"), (".", ".")],
    ...            ["the", "man", "'s", "dog"])
    ['DT', 'NN', 'POS', 'NN']
    """
    found, tags = "", []
    for token, tag in tokens:
        characters = "" if token in _BRACKETS else _characters(token)
        found += characters
        tags += [tag] * len(characters)
    expected = [_characters(word) for word in words]
    # Without letters and digits nothing tells that the texts are the same.
    if "".join(expected) != found or bool(tags) != bool(words):
        return None
    starts = itertools.accumulate(map(len, expected), initial=0)
    # A word without letters or digits, of which there are next to none, may stand behind the last token.
    return [tags[min(start, len(tags) - 1)] for start, _ in zip(starts, words, strict=False)]


def _characters(text: str) -> str:
    return "".join(c for c in text.casefold() if unicodedata.category(c)[0] in "LMN")


def read_tags(path: str | os.PathLike[str]) -> Iterator[TaggedText]:
    r"""Reads a file of tags: a text a line, `ID<TAB>word/TAG word/TAG ...`.

    Args:
        path: the file, plain or compressed with gzip, whatever its name; UTF-8.

    Yields:
        The texts in order; empty lines are left out.

    Raises:
        DataError: naming file and line, if the file cannot be read or a line is none of these.

    Example:

    >>> import tempfile
    >>> with tempfile.NamedTemporaryFile("w") as file:
    ...     _ = file.write("7\tA/DT dog/NN 1\\/2/CD\n")
    ...     file.flush()
    ...     [text] = read_tags(file.name)
    >>> text.id, text.tokens
    ('7', [('A', 'DT'), ('dog', 'NN'), ('1\\/2', 'CD')])
    """
    with reading(path, "file of tags"), open(path, "rb") as file:
        content = gzip.GzipFile(fileobj=file) if file.peek(2)[:2] == _GZIP else file
        lines = io.TextIOWrapper(content, encoding="utf-8-sig", newline="\n")
        for number, line in enumerate(lines, 1):
            if line.strip():
                yield _tagged(f"{path}, line {number}", line, number)


def _tagged(where: str, line: str, number: int) -> TaggedText:
    name, tab, text = line.partition("\t")
    if not tab:
        raise DataError(f"{where}: {one_line(line, 80)!r} has no tab. Expected: ID<TAB>word/TAG word/TAG ...")
    tokens = []
    for token in text.split():
        word, slash, tag = token.rpartition("/")
        if not (word and slash and tag):
            raise DataError(f"{where}: {one_line(token, 80)!r} is no word with its tag. Expected: word/TAG")
        tokens.append((word, tag))
    return TaggedText(name.strip(), tokens, number)


class CaptionTags(CaptionAnnotation):
    """The parts of speech of all captions of a dataset.

    Attributes:
        path: their directory.
        fingerprint: hex; equal for equal tags, wherever they came from.
        source: what made them: `{"tagger": ...}`, or `{"file": ..., "sha256": ...}`.
        count: the number of captions.

    Example:

    ```python
    tags = Dataset.open("data/flickr8k").annotation("tags")
    print(tags.of(dataset.split("val"))[0])
    ```
    """

    kind: ClassVar[str] = "tags"
    option: ClassVar[str] = "--pos-tags"

    def __init__(self, dataset: Dataset, content: Mapping[str, Any]) -> None:
        super().__init__(dataset, content)
        self.source: dict[str, Any] = content["source"]

    @classmethod
    def check(cls, content: Mapping[str, Any]) -> None:
        if not isinstance(content["source"], dict):
            raise TypeError("source")

    @classmethod
    def files(cls, split: str, record: Mapping[str, Any]) -> dict[str, str]:
        return {_file_name(split): record["sha256"]}

    def of(self, split: Split) -> list[list[str]]:
        """Returns the tags of each caption of a split.

        Args:
            split: of this dataset, also with few of its captions (`Split.with_captions`).

        Returns:
            For each caption a Penn tag for each word, as `vsemb.text.normalize.split_words` splits it.

        Raises:
            DataError: if it is of another dataset or has other texts than captions, or the file is damaged.
            InvalidArgumentError: if the dataset has no such split.
        """
        lines = self.read(split, _file_name(split.name), lambda file: self.unpacked(file).split("\n")[:-1])
        return [line.split() for line in lines]


find = CaptionTags.find


def tag_captions(dataset: Dataset, tagger: Tagger, *, overwrite: bool = False) -> CaptionTags:
    """Tags all captions of a dataset and writes their tags beside it.

    Args:
        dataset: the dataset.
        tagger: the tagger.
        overwrite: whether other tags are replaced.

    Returns:
        The tags, opened; at once where this tagger's are there already.

    Raises:
        DataError: if other tags are there, which is said before any work, the tagger's tokens are not of a
            caption, or the file system refuses.

    Example:

    ```python
    tags = tag_captions(Dataset.open("data/flickr8k"), open_tagger())
    ```
    """
    source = {"tagger": tagger.name}
    if (present := _present_tags(dataset, source, overwrite)) is not None:
        return present
    captions = CaptionIndex(dataset)
    tokens = ((f"The tagger {tagger.name}", tagger(text)) for text in captions.texts)
    return write_tags(dataset, _aligned(captions, tokens, "tag"), source=source, overwrite=overwrite)


def import_tags(
    dataset: Dataset,
    file: str | os.PathLike[str],
    *,
    overwrite: bool = False,
    report: Callable[[str], None] = print,
) -> CaptionTags:
    """Takes the tags of all captions from a file and writes them beside the dataset.

    A line belongs to the caption of its id: the one that the caption has in the dataset's source, or
    `KEY#NUMBER` with the image's key and the caption's number from 0.

    Args:
        dataset: the dataset.
        file: as `vsemb.systems.language.tags.read_tags` reads it, with every caption.
        overwrite: whether other tags are replaced.
        report: called with lines worth showing, about ids that the dataset does not have.

    Returns:
        The tags, opened; at once where those of this file are there already.

    Raises:
        DataError: if other tags are there, which is said before any work, the file is broken, a caption has
            no line or two, or a line's words are not those of its caption.

    Example:

    ```python
    import_tags(Dataset.open("data/flickr8k"), "pos_tags.txt.gz", report=print)
    ```
    """
    with reading(file, "file of tags"):
        source = {"file": Path(file).name, "sha256": sha256_file(file)}
    if (present := _present_tags(dataset, source, overwrite)) is not None:
        return present
    captions = CaptionIndex(dataset)
    lines = progress(read_tags(file), desc="read", unit="caption", leave=False)
    found = captions.match(lines, "line", report)
    tokens = ((f"{file}, line {line.line},", line.tokens) for line in found)
    return write_tags(dataset, _aligned(captions, tokens, "match"), source=source, overwrite=overwrite)


def write_tags(
    dataset: Dataset,
    tags: Mapping[str, Sequence[Sequence[str]]],
    *,
    source: Mapping[str, Any],
    overwrite: bool = False,
) -> CaptionTags:
    """Writes the tags of a dataset's captions into its directory, whole or not at all.

    Where tags of this source are there already, nothing happens.

    Args:
        dataset: the dataset; its annotation `tags` are these from then on.
        tags: name of a split -> for each caption in order a tag for each word, for all splits.
        source: JSON-able, what made them.
        overwrite: whether other tags are replaced.

    Returns:
        The tags, opened.

    Raises:
        DataError: if a caption has none, tags of another source are there and `overwrite` is false, or the file
            system refuses.

    Example:

    ```python
    write_tags(dataset, {"train": [["DT", "NN"]], "val": [["NNS"]]}, source={"tagger": "by hand"})
    ```
    """
    CaptionTags.check_given(dataset, tags)
    texts = {name: "".join(" ".join(some) + "\n" for some in tags[name]) for name in dataset.splits}
    fingerprint = sha256_bytes("".join(f"{name}\n{text}" for name, text in texts.items()).encode())
    if (present := _present_tags(dataset, source, overwrite)) is not None:
        return present
    described = {"fingerprint": fingerprint, "source": dict(source)}
    with CaptionTags.writing(dataset, described, overwrite) as (folder, splits):
        for name, text in texts.items():
            packed = gzip.compress(text.encode(), 6, mtime=0)
            (folder / _file_name(name)).write_bytes(packed)
            splits[name] = {"captions": len(tags[name]), "sha256": sha256_bytes(packed)}
    return CaptionTags.open(dataset)


def _file_name(split: str) -> str:
    return f"{split}.tags.gz"


def _present_tags(dataset: Dataset, source: Mapping[str, Any], overwrite: bool) -> CaptionTags | None:
    """Returns the tags that are there already; None where there are none, or they are to be replaced.

    Raises:
        DataError: if those that are there are damaged, or of another source.
    """
    present = None if overwrite else find(dataset)
    if present is not None and present.source != source:
        origin = f"of {present.source['tagger']}" if "tagger" in present.source else "from a file"
        raise DataError(f"{present.path} already holds tags {origin}; replace them with --overwrite.")
    return present


def describe_tags(dataset: Dataset, tags: CaptionTags) -> dict[str, Any]:
    """Returns what `vsemb annotate --pos-tags` shows of a dataset's tags, as plain values."""
    counts = Counter(tag for name in dataset.splits for some in tags.of(dataset.split(name)) for tag in some)
    return {
        "captions": tags.count,
        "splits": {name: len(dataset.split(name).captions) for name in dataset.splits},
        "words": counts.total(),
        "tags": dict(counts.most_common()),
        "source": tags.source,
        "fingerprint": tags.fingerprint,
        "directory": str(tags.path),
    }


def _aligned(
    captions: CaptionIndex, tokens: Iterable[tuple[str, list[Token]]], step: str
) -> dict[str, list[list[str]]]:
    """Gives the words of all captions their tags, from where tokens come from and tokens with tags."""
    tags = []
    found = progress(tokens, desc=step, unit="caption", total=len(captions.texts), leave=False)
    for (where, some), words, name, text in zip(
        found, words_of(captions.texts), captions.ids, captions.texts, strict=True
    ):
        aligned = align_tags(some, words)
        if aligned is None:
            read = " ".join(token for token, _ in some)
            raise DataError(
                f"{where} has other words than the caption {name!r}: it has {read[:_SHOWN]!r} and the caption "
                f"is {text[:_SHOWN]!r}."
            )
        tags.append(aligned)
    return captions.by_split(tags)
