"""The parts of speech of a dataset's captions, which lie in its directory and belong to it.

    DATASET/tags/
        tags.json            what the rest is, with checksums; which dataset they are of, where they came from
        SPLIT.tags.gz        a line for each caption of a split, in order: its words' tags by spaces

The dataset's index, shards and fingerprint do not change, so its features and runs stay usable.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from vsemb.data.store import Dataset, Split
from vsemb.errors import DataError
from vsemb.files import read_json, replacing_directory, sha256_bytes, write_json
from vsemb.systems.language.taggers import words_of

FOLDER, MANIFEST = "tags", "tags.json"
FORMAT, VERSION = "vsemb-tags", 1
AGAIN = "Make them again with `vsemb annotate --pos-tags --overwrite`."


class CaptionTags:
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

    def __init__(self, dataset: Dataset, content: dict[str, Any]) -> None:
        self.path = dataset.path / FOLDER
        self.fingerprint: str = content["fingerprint"]
        self.source: dict[str, Any] = content["source"]
        self.count = sum(record["captions"] for record in content["splits"].values())
        self._dataset = dataset
        # Read at once, since that is what verifying them takes.
        self._lines = {name: _verified(self.path, name, of) for name, of in content["splits"].items()}

    @classmethod
    def open(cls, dataset: Dataset) -> CaptionTags:
        """Opens the tags of a dataset and verifies their files.

        Raises:
            DataError: if there are none, or they are damaged, of another version or of another dataset.
        """
        return cls(dataset, _read_manifest(dataset))

    def of(self, split: Split) -> list[list[str]]:
        """Returns the tags of each caption of a split.

        Args:
            split: of this dataset, also with few of its captions (`Split.with_captions`).

        Returns:
            For each caption a Penn tag for each word, as `vsemb.text.normalize.split_words` splits it.

        Raises:
            DataError: if it is of another dataset or has other texts than captions.
            InvalidArgumentError: if the dataset has no such split.
        """
        if split.entries != self._dataset.split(split.name).entries:
            raise DataError(
                f"The split {split.name!r} is of another dataset than these tags, which are of {self._dataset.path}."
            )
        if split.caption_places is None:
            raise DataError(f"The texts of the split {split.name!r} are not its captions, and only those have tags.")
        lines = self._lines[split.name]
        return [lines[place].split() for place in split.caption_places]

    def __repr__(self) -> str:
        return f"<CaptionTags at {self.path} ({self.count} captions)>"


def find(dataset: Dataset) -> CaptionTags | None:
    """Opens the tags of a dataset; None where it has none.

    Raises:
        DataError: if they are damaged, of another version or of another dataset.
    """
    return CaptionTags.open(dataset) if (dataset.path / FOLDER).exists() else None


def write_tags(
    dataset: Dataset,
    tags: Mapping[str, Sequence[Sequence[str]]],
    *,
    source: Mapping[str, Any],
    overwrite: bool = False,
) -> CaptionTags:
    """Writes the tags of a dataset's captions into its directory, whole or not at all.

    Where these tags are there already, nothing happens.

    Args:
        dataset: the dataset; its annotation `tags` are these from then on.
        tags: name of a split -> for each caption in order a tag for each word, for all splits.
        source: JSON-able, what made them.
        overwrite: whether other tags are replaced.

    Returns:
        The tags, opened.

    Raises:
        DataError: if a caption has none or another number of words, a tag is none, other tags are there and
            `overwrite` is false, or the file system refuses.

    Example:

    ```python
    write_tags(dataset, {"train": [["DT", "NN"]], "val": [["NNS"]]}, source={"tagger": "by hand"})
    ```
    """
    _check_tags(dataset, tags)
    path = dataset.path / FOLDER
    described = {
        "dataset": dataset.fingerprint,
        "fingerprint": _fingerprint({name: tags[name] for name in dataset.splits}),
        "source": json.loads(json.dumps(dict(source))),
    }
    present = present_tags(dataset, source, overwrite)
    if present is not None:
        if present.fingerprint != described["fingerprint"]:
            raise _other_tags(present)
        return present
    with replacing_directory(path, overwrite) as folder:
        splits = {}
        for name in dataset.splits:
            text = "".join(" ".join(some) + "\n" for some in tags[name])
            packed = gzip.compress(text.encode(), 6, mtime=0)
            (folder / _file_name(name)).write_bytes(packed)
            splits[name] = {"captions": len(tags[name]), "sha256": sha256_bytes(packed)}
        write_json(folder / MANIFEST, {"format": FORMAT, "version": VERSION, **described, "splits": splits})
    dataset.forget_annotation("tags")
    return CaptionTags.open(dataset)


def present_tags(dataset: Dataset, source: Mapping[str, Any], overwrite: bool = False) -> CaptionTags | None:
    """Returns the tags that are there already; None where there are none, or they are to be replaced.

    Args:
        dataset: the dataset.
        source: JSON-able, what new ones would be made of.
        overwrite: whether those that are there are replaced.

    Raises:
        DataError: if those that are there are damaged, or of another source.
    """
    if overwrite or not (dataset.path / FOLDER).exists():
        return None
    present = CaptionTags.open(dataset)
    if present.source != json.loads(json.dumps(dict(source))):
        raise _other_tags(present)
    return present


def _other_tags(present: CaptionTags) -> DataError:
    return DataError(f"{present.path} already holds tags {_origin(present)}; replace them with --overwrite.")


def _file_name(split: str) -> str:
    return f"{split}.tags.gz"


def _origin(tags: CaptionTags) -> str:
    return f"of {tags.source['tagger']}" if "tagger" in tags.source else "from a file"


def _fingerprint(tags: Mapping[str, Sequence[Sequence[str]]]) -> str:
    digest = hashlib.sha256()
    for name, some in tags.items():
        digest.update(f"{name}\n".encode())
        digest.update("".join(" ".join(line) + "\n" for line in some).encode())
    return digest.hexdigest()


def _check_tags(dataset: Dataset, tags: Mapping[str, Sequence[Sequence[str]]]) -> None:
    if set(tags) != set(dataset.splits):
        raise DataError(
            f"Tags are given for the splits {', '.join(tags) or 'none'}; {dataset.path} has "
            f"{', '.join(dataset.splits)}, and all need theirs."
        )
    for name in dataset.splits:
        split = dataset.split(name)
        if len(tags[name]) != len(split.captions):
            raise DataError(
                f"Tags are given for {len(tags[name])} captions; the split {name!r} of {dataset.path} has "
                f"{len(split.captions)}."
            )
        for caption, words, some in zip(split.caption_ids, words_of(split.captions), tags[name], strict=True):
            if len(some) != len(words):
                raise DataError(
                    f"{len(some)} tags for the {len(words)} words of the caption {caption!r} of the split "
                    f"{name!r}; each word needs one."
                )
            if any(tag.split() != [tag] for tag in some):
                raise DataError(f"The caption {caption!r} has a tag that is empty or holds white space.")


def _read_manifest(dataset: Dataset) -> dict[str, Any]:
    path = dataset.path / FOLDER
    if not path.is_dir():
        raise DataError(f"{dataset.path} has no parts of speech. Find them with `vsemb annotate --pos-tags`.")
    content = read_json(path / MANIFEST, "list of tags")
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise DataError(f"{path / MANIFEST} is no list of tags. {AGAIN}")
    if content.get("version") != VERSION:
        raise DataError(
            f"The tags at {path} have version {content.get('version')!r}; this vsemb reads version {VERSION}. {AGAIN}"
        )
    try:
        counts = {name: record["captions"] for name, record in content["splits"].items()}
        texts = [content["dataset"], content["fingerprint"]]
        texts += [record["sha256"] for record in content["splits"].values()]
        if not all(isinstance(text, str) for text in texts) or not isinstance(content["source"], dict):
            raise TypeError("no text where a checksum should be")
    except (KeyError, TypeError, AttributeError) as error:
        raise DataError(f"{path / MANIFEST} is damaged ({error!r}). {AGAIN}") from error
    if content["dataset"] != dataset.fingerprint:
        raise DataError(f"The tags at {path} are of another dataset than {dataset.path} is now. {AGAIN}")
    if counts != {name: split["captions"] for name, split in dataset.manifest["splits"].items()}:
        raise DataError(f"{path / MANIFEST} is damaged: it counts other captions. {AGAIN}")
    return content


def _verified(folder: Path, name: str, record: Mapping[str, Any]) -> list[str]:
    """Returns the lines of a split's file."""
    file = folder / _file_name(name)
    try:
        packed = file.read_bytes()
    except OSError as error:
        raise DataError(f"{file} cannot be read: {error.strerror or error}. {AGAIN}") from error
    if sha256_bytes(packed) != record["sha256"]:
        raise DataError(f"The tags are damaged: {file} has other content. {AGAIN}")
    try:
        lines = gzip.decompress(packed).decode().split("\n")[:-1]
    except (OSError, EOFError, zlib.error, ValueError) as error:
        raise DataError(f"{file} cannot be read: {error}. {AGAIN}") from error
    if len(lines) != record["captions"]:
        raise DataError(f"{file} is damaged: it has {len(lines)} captions. {AGAIN}")
    return lines
