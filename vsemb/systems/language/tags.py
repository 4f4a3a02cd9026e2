"""Parts of speech of a dataset's captions, from a tagger or a file: functions of `vsemb annotate DATA pos-tags`.

Files in DATASET/tags:

- `tags.json`: description with checksums, fingerprint of the dataset and source of the tags
- `SPLIT.tags.gz`: one line per caption of the split, in order, with the words' tags separated by spaces
"""

from __future__ import annotations

import gzip
import io
import itertools
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from vsemb.console import progress
from vsemb.data.annotations import CaptionAnnotation
from vsemb.data.caption_index import CaptionIndex
from vsemb.data.store import Split, StoredDataset
from vsemb.errors import DataError, needs_extra, one_line
from vsemb.files import open_regular, reading, sha256_bytes, sha256_file
from vsemb.text.normalize import is_in_words, words_of
from vsemb.unicode import composed, readable_part

#: Model of NLTK's perceptron tagger for English.
MODEL = "averaged_perceptron_tagger_eng"

_GZIP = b"\x1f\x8b"
# Taggers spell brackets as in the Penn Treebank, with letters that are not in the text.
_BRACKETS = {"-LRB-", "-RRB-", "-LSB-", "-RSB-", "-LCB-", "-RCB-"}

Token = tuple[str, str]
_SHOWN = 100


class TaggedText(NamedTuple):
    """Line of a file of tags.

    Args:
        id: id of the text in the file.
        tokens: words and punctuation, each with its tag.
        line: line number in the file, from 1.
    """

    id: str
    tokens: list[Token]
    line: int


class Tagger:
    """Averaged perceptron tagger of NLTK on raw text, created by `open_tagger`.

    Args:
        tokenizer: tokenizer of NLTK.
        tagger: tagger of NLTK.
        name: name of the tagger, with versions.

    Attributes:
        name: name of the tagger, with versions.
    """

    def __init__(self, tokenizer: Any, tagger: Any, name: str) -> None:
        self.name = name
        self._tokenizer = tokenizer
        self._tagger = tagger

    def __call__(self, text: str) -> list[Token]:
        """Tag a text.

        Args:
            text: raw text, truncated to `vsemb.unicode.MAX_BYTES`.

        Returns:
            Words and punctuation, each with its Penn tag.

        Example:

        ```python
        print(open_tagger()("A dog runs."))
        ```
        """
        return self._tagger.tag(self._tokenizer.tokenize(readable_part(text)))


def open_tagger() -> Tagger:
    """Open NLTK's perceptron tagger for English, with Penn tags, without any download.

    Raises:
        MissingExtraError: without NLTK.
        DataError: if the tagger's model is missing or cannot be read.

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
    """Assign the tags of a tagger's tokens to the words of the same text.

    Tokens and words are compared by their lower-case letters and digits only. A word has the tag of the token with its
    first character: `dont` has the tag of `do` if the tokens are `do` and `n't`. Punctuation is ignored.

    Args:
        tokens: pairs of a token and its tag, in order.
        words: words of the same text, split by `vsemb.text.normalize.split_words`.

    Returns:
        One tag per word; None if tokens and words are of different texts.

    Example:

    >>> align_tags([("The", "DT"), ("man", "NN"), ("'s", "POS"), ("dog", "NN"), (".", ".")],
    ...            ["the", "man", "'s", "dog"])
    ['DT', 'NN', 'POS', 'NN']
    """
    letters, tags = "", []
    for token, tag in tokens:
        characters = "" if token in _BRACKETS else _characters(token)
        letters += characters
        tags += [tag] * len(characters)
    expected = [_characters(word) for word in words]
    # Without letters and digits the texts cannot be compared.
    if "".join(expected) != letters or bool(tags) != bool(words):
        return None
    starts = itertools.accumulate(map(len, expected), initial=0)
    # A rare word without letters or digits may follow the last token.
    return [tags[min(start, len(tags) - 1)] for start, _ in zip(starts, words, strict=False)]


def _characters(text: str) -> str:
    return "".join(character for character in composed(text).casefold() if is_in_words(character))


def read_tags(path: str | os.PathLike[str]) -> Iterator[TaggedText]:
    r"""Read a file of tags, one text per line: `ID<TAB>word/TAG word/TAG ...`.

    Args:
        path: UTF-8 file, plain or compressed with gzip, with any name.

    Yields:
        The texts in order, without empty lines.

    Raises:
        DataError: with file and line, if the file cannot be read or a line has another format.

    Example:

    >>> import tempfile
    >>> with tempfile.NamedTemporaryFile("w") as file:
    ...     _ = file.write("7\tA/DT dog/NN 1\\/2/CD\n")
    ...     file.flush()
    ...     [text] = read_tags(file.name)
    >>> text.id, text.tokens
    ('7', [('A', 'DT'), ('dog', 'NN'), ('1\\/2', 'CD')])
    """
    with reading(path, "file of tags"), open_regular(path) as file:
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
            raise DataError(f"{where}: {one_line(token, 80)!r} must be a word with its tag: word/TAG")
        tokens.append((word, tag))
    return TaggedText(name.strip(), tokens, number)


class CaptionTags(CaptionAnnotation):
    """Parts of speech of all captions of a dataset.

    Attributes:
        path: directory of the tags.
        fingerprint: hexadecimal; equal for equal tags, independent of their source.
        source: `{"tagger": ...}` or `{"file": ..., "sha256": ...}`.
        count: number of captions.

    Example:

    ```python
    tags = Dataset.open("data/flickr8k").annotation("tags")
    print(tags.of(dataset.split("val"))[0])
    ```
    """

    kind: ClassVar[str] = "tags"
    annotation: ClassVar[str] = "pos-tags"

    def __init__(self, dataset: StoredDataset, content: Mapping[str, Any]) -> None:
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
        """Return the tags of each caption of a split.

        Args:
            split: split of this dataset, also with a selection of its captions (`Split.with_captions`).

        Returns:
            Per caption one Penn tag per word; words are split by `vsemb.text.normalize.split_words`.

        Raises:
            DataError: if the split is of another dataset, its texts are not captions, or the file is damaged.
            InvalidArgumentError: if the split does not exist.
        """
        lines = self.read(split, _file_name(split.name), lambda file: self.unpacked(file).split("\n")[:-1])
        return [line.split() for line in lines]


find = CaptionTags.find


def tag_captions(dataset: StoredDataset, tagger: Tagger, *, overwrite: bool = False) -> CaptionTags:
    """Tag all captions of a dataset and write the tags into its directory.

    Args:
        dataset: the dataset.
        tagger: the tagger.
        overwrite: whether to replace existing tags.

    Returns:
        The tags. Existing tags of the same tagger are returned without tagging again.

    Raises:
        DataError: if other tags exist (checked first), the tagger's tokens do not match a caption, or writing fails.

    Example:

    ```python
    tags = tag_captions(Dataset.open("data/flickr8k"), open_tagger())
    ```
    """
    source = {"tagger": tagger.name}
    present = _present_tags(dataset, source, overwrite)
    if present is not None:
        return present
    captions = CaptionIndex(dataset)
    tokens = ((f"The tagger {tagger.name}", tagger(text)) for text in captions.texts)
    return write_tags(dataset, _aligned(captions, tokens, "tag"), source=source, overwrite=overwrite)


def import_tags(
    dataset: StoredDataset,
    file: str | os.PathLike[str],
    *,
    overwrite: bool = False,
    report: Callable[[str], None] = print,
) -> CaptionTags:
    """Read the tags of all captions from a file and write them into the dataset's directory.

    Each line has the id of its caption: the caption's id in the dataset's source, or `KEY#NUMBER` with the image's key
    and the caption's number from 0.

    Args:
        dataset: the dataset.
        file: file with all captions, see `vsemb.systems.language.tags.read_tags`.
        overwrite: whether to replace existing tags.
        report: function for messages about ids that are missing in the dataset.

    Returns:
        The tags. Existing tags of the same file are returned without reading it again.

    Raises:
        DataError: if other tags exist (checked first), the file is malformed, a caption does not have exactly one
            line, or the words of a line differ from its caption.

    Example:

    ```python
    import_tags(Dataset.open("data/flickr8k"), "pos_tags.txt.gz", report=print)
    ```
    """
    with reading(file, "file of tags"):
        source = {"file": Path(file).name, "sha256": sha256_file(file)}
    present = _present_tags(dataset, source, overwrite)
    if present is not None:
        return present
    captions = CaptionIndex(dataset)
    lines = progress(read_tags(file), desc="read", unit="caption", leave=False)
    matched = captions.match(lines, "line", report)
    tokens = ((f"{file}, line {line.line},", line.tokens) for line in matched)
    return write_tags(dataset, _aligned(captions, tokens, "match"), source=source, overwrite=overwrite)


def write_tags(
    dataset: StoredDataset,
    tags: Mapping[str, Sequence[Sequence[str]]],
    *,
    source: Mapping[str, Any],
    overwrite: bool = False,
) -> CaptionTags:
    """Write the tags of a dataset's captions into its directory, atomically.

    Existing tags of the same source are not written again.

    Args:
        dataset: the dataset; afterwards the tags are its annotation `tags`.
        tags: name of a split -> per caption, in order, one tag per word; for all splits.
        source: source of the tags, serializable as JSON.
        overwrite: whether to replace existing tags.

    Returns:
        The tags.

    Raises:
        DataError: if a caption has no tags, tags of another source exist and `overwrite` is false, or writing fails.

    Example:

    ```python
    write_tags(dataset, {"train": [["DT", "NN"]], "val": [["NNS"]]}, source={"tagger": "by hand"})
    ```
    """
    CaptionTags.check_given(dataset, tags)
    present = _present_tags(dataset, source, overwrite)
    if present is not None:
        return present
    texts = {name: "".join(f"{' '.join(of_caption)}\n" for of_caption in tags[name]) for name in dataset.splits}
    fingerprint = sha256_bytes("".join(f"{name}\n{text}" for name, text in texts.items()).encode())
    described = {"fingerprint": fingerprint, "source": dict(source)}
    with CaptionTags.writing(dataset, described, overwrite) as (folder, splits):
        for name, text in texts.items():
            packed = gzip.compress(text.encode(), 6, mtime=0)
            (folder / _file_name(name)).write_bytes(packed)
            splits[name] = {"captions": len(tags[name]), "sha256": sha256_bytes(packed)}
    return CaptionTags.open(dataset)


def _file_name(split: str) -> str:
    return f"{split}.tags.gz"


def _present_tags(dataset: StoredDataset, source: Mapping[str, Any], overwrite: bool) -> CaptionTags | None:
    """Return the existing tags; None if they do not exist or are to be replaced.

    Raises:
        DataError: if the existing tags are damaged or of another source.
    """
    present = None if overwrite else find(dataset)
    if present is not None and present.source != source:
        origin = f"of {present.source['tagger']}" if "tagger" in present.source else "from a file"
        raise DataError(f"{present.path} already holds tags {origin}; replace them with --overwrite.")
    return present


def describe_tags(dataset: StoredDataset, tags: CaptionTags) -> dict[str, Any]:
    """Return the statistics of a dataset's tags for `vsemb annotate DATA pos-tags`, as JSON values."""
    counts: Counter[str] = Counter()
    for name in dataset.splits:
        counts.update(itertools.chain.from_iterable(tags.of(dataset.split(name))))
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
    """Assign tags to the words of all captions, from pairs (origin, tagged tokens)."""
    tags = []
    tokens = progress(tokens, desc=step, unit="caption", total=len(captions.texts), leave=False)
    rows = zip(tokens, words_of(captions.texts), captions.ids, captions.texts, strict=True)
    for (where, tagged), words, name, text in rows:
        aligned = align_tags(tagged, words)
        if aligned is None:
            read = " ".join(token for token, _ in tagged)
            raise DataError(
                f"{where} has other words than the caption {name!r}: it has {read[:_SHOWN]!r} and the caption "
                f"is {text[:_SHOWN]!r}."
            )
        tags.append(aligned)
    return captions.by_split(tags)
