"""The pictures of a page: a dataset, an index of a dataset, or image files without captions.

Each class says which pictures there are, how they are searched and shown, and what the page says about them.
"""

from __future__ import annotations

import functools
import itertools
import os
from collections.abc import Callable, Iterable, Sequence
from typing import ClassVar

import numpy as np
from PIL import Image

from vsemb.data.images import BadImage, preview
from vsemb.data.store import Split, StoredDataset
from vsemb.drawing.pictures import read_picture
from vsemb.errors import DataError, InvalidArgumentError, counted, invalid_argument
from vsemb.files import read_bytes, sha256_bytes
from vsemb.runs.images import read_image_file, stored_image
from vsemb.runs.indexing import (
    ALL,
    DatasetItems,
    check_indexable,
    file_problem,
    files_directory,
    indexed_file,
    open_files,
    open_indexed,
    split_names,
)
from vsemb.runs.inputs import check_source, image_files, kind_of
from vsemb.runs.run import Run
from vsemb.runs.searching import SearchedItems, search_method_of
from vsemb.searching.index import Item, SearchIndex

# Maximum bytes of embeddings in memory for runs without an index, for images and captions each. Larger embeddings are
# computed again for each query.
_KEPT = 2 << 30
# Number of example sentences, and their maximum length in characters, if enough sentences are that short.
_EXAMPLES, _SHORT = 4, 40
# What happened to an image file since it was indexed -> text in place of its picture.
_PROBLEMS = {"gone": "The file is gone", "changed": "The file has changed since it was indexed"}


class Pictures:
    """Pictures that a page searches and shows.

    Args:
        name: name of the dataset or folder.
        items: the pictures, in order.
        keys: their keys, which are faster to read than the items.
        dataset: the dataset; None for image files.

    Attributes:
        name, items, dataset: the arguments.

    Class attributes:
        one: what the page calls one of them.
    """

    one: ClassVar[str]

    def __init__(
        self, name: str, items: Sequence[Item], keys: Iterable[str], dataset: StoredDataset | None = None
    ) -> None:
        self.name, self.items, self.dataset = name, items, dataset
        self._by_key: dict[str, int] = {}
        for place, key in enumerate(keys):
            self._by_key.setdefault(key, place)

    def __len__(self) -> int:
        return len(self.items)

    @property
    def described(self) -> str:
        """Number and place of the pictures, as a phrase."""
        raise NotImplementedError

    def search(self, run: Run, kind: str, report: Callable[[str], None]) -> SearchedItems | None:
        """Open the pictures or their captions for search; None if they have no captions to search.

        Args:
            run: the run that embedded them, or embeds them now.
            kind: `image` or `text`.
            report: called with messages.

        Raises:
            VsembError: if run and pictures do not match.
        """
        raise NotImplementedError

    def encoded(self, place: int) -> bytes:
        """Return a picture as JPEG or PNG, upright.

        Raises:
            DataError: if it is missing or damaged.
        """
        raise NotImplementedError

    def lacks(self, place: int) -> str | None:
        """Return the reason why a picture cannot be shown, as a phrase; None if it can be."""
        raise NotImplementedError

    def in_dataset(self, place: int) -> tuple[StoredDataset, Split, int] | None:
        """Return dataset, split and row of a picture, whose features may be cached; None for an image file."""
        return None

    def examples(self) -> list[str]:
        """Return a few sentences to search for."""
        return []

    def same_as(self, encoded: bytes) -> list[int]:
        """Return the places of pictures that are stored as these bytes, as far as this is known.

        Args:
            encoded: bytes of an image file.
        """
        return []

    def picture(self, place: int, side: int) -> Image.Image:
        """Return a picture in RGB.

        Args:
            place: its place in `items`.
            side: side in pixels to which it is shrunk later.

        Raises:
            DataError: if it is missing or damaged.
        """
        return read_picture(self.encoded(place), self.items[place].key, side)

    def drawn(self, count: int, generator: np.random.Generator) -> list[int]:
        """Draw places of pictures that can be shown at random; fewer than `count` if many cannot be shown.

        Args:
            count: their number.
            generator: source of randomness.
        """
        drawn = generator.choice(len(self), min(4 * count, len(self)), replace=False).tolist()
        shown = (place for place in drawn if self.lacks(place) is None)
        return [place for place, _ in zip(shown, range(count), strict=False)]

    def place_of(self, key: str) -> int:
        """Return the place in `items` of the picture with a key.

        Args:
            key: the key.

        Raises:
            InvalidArgumentError: if the key is unknown.
        """
        if key not in self._by_key:
            raise InvalidArgumentError(
                f"{self.name} has no image named {key!r}. Choose a name from the list, such as {self.items[0].key!r}."
            )
        return self._by_key[key]

    def stored(self, image: bytes) -> bytes:
        """Return a dropped image as it would be stored with these pictures.

        Args:
            image: bytes of the file.

        Raises:
            DataError: if the file is not an image; the message is shown on the page.
        """
        try:
            return stored_image(image, self.dataset).encoded
        except DataError as error:
            raise DataError(f"{error} Drop another file, such as a JPEG or PNG.") from error


class _OfDataset(Pictures):
    """Pictures of splits of a dataset.

    Args:
        dataset: the dataset.
        splits: their names.

    Attributes:
        places: split and row of each picture.
    """

    one = "Image of the dataset"

    def __init__(self, dataset: StoredDataset, splits: Sequence[str]) -> None:
        self._dataset = dataset
        self._parts = [dataset.split(name) for name in splits]
        self.places = [(part, row) for part in self._parts for row in range(len(part))]
        keys = itertools.chain.from_iterable(part.keys for part in self._parts)
        super().__init__(dataset.name, DatasetItems(dataset, splits, "image"), keys, dataset)

    @property
    def described(self) -> str:
        return f"{counted(len(self), 'image')} of {self.name}"

    def encoded(self, place: int) -> bytes:
        part, row = self.places[place]
        return part.read_image(row)

    def lacks(self, place: int) -> str | None:
        return None if self.places[place][0].has_images else "No picture"

    def in_dataset(self, place: int) -> tuple[StoredDataset, Split, int] | None:
        return self._dataset, *self.places[place]

    def examples(self) -> list[str]:
        return examples([min(captions, key=len) for part in self._parts for captions in part.caption_lists()])

    def same_as(self, encoded: bytes) -> list[int]:
        return self._by_digest.get(sha256_bytes(encoded), [])

    @functools.cached_property
    def _by_digest(self) -> dict[str, list[int]]:
        places: dict[str, list[int]] = {}
        digests = itertools.chain.from_iterable(part.digests for part in self._parts)
        for place, digest in enumerate(digests):
            places.setdefault(digest or "", []).append(place)
        return places


class DatasetPictures(_OfDataset):
    """Pictures of a dataset, with captions. Their indexes are built where they are missing.

    Args:
        dataset: the dataset.
        split: its split, or `all`.

    Raises:
        VsembError: if the split is missing.

    Example:

        DatasetPictures(Dataset.open("data/flickr8k"), "val")
    """

    def __init__(self, dataset: StoredDataset, split: str = ALL) -> None:
        super().__init__(dataset, split_names(dataset, split))
        self._split = split

    def search(self, run: Run, kind: str, report: Callable[[str], None]) -> SearchedItems | None:
        if kind == "text" and not run.recipe.text.tokenizer.per_caption:
            return None
        return search_method_of(run).open(run, self._dataset, self._split, kind, report=report, keep=_KEPT)


class IndexedPictures(_OfDataset):
    """Pictures of a dataset that are searched in an index; their captions are shown and not searched.

    Args:
        index: index of images of the dataset.
        dataset: the dataset.
    """

    def __init__(self, index: SearchIndex, dataset: StoredDataset) -> None:
        super().__init__(dataset, index.source.splits)
        self._index = index

    def search(self, run: Run, kind: str, report: Callable[[str], None]) -> SearchedItems | None:
        return self._index if kind == "image" else None


class FilePictures(Pictures):
    """Image files without captions, in an index.

    Only files of the index are read, and only as long as they are as they were indexed.

    Args:
        index: index of image files, which names its items.

    Example:

        FilePictures(read_index("indexes/photos"))
    """

    one = "Picture of the folder"

    def __init__(self, index: SearchIndex) -> None:
        super().__init__(_folder_of(index), index.items or (), index.keys)
        self._index = index

    @property
    def described(self) -> str:
        return f"{counted(len(self), 'picture')} in {self.name}"

    def search(self, run: Run, kind: str, report: Callable[[str], None]) -> SearchedItems | None:
        return self._index if kind == "image" else None

    def encoded(self, place: int) -> bytes:
        return read_image_file(self._file(place), None).encoded

    def lacks(self, place: int) -> str | None:
        return _PROBLEMS.get(file_problem(self._index, self.items[place]) or "")

    def picture(self, place: int, side: int) -> Image.Image:
        file = self._file(place)
        try:
            return preview(read_bytes(file), side)
        except (OSError, BadImage) as error:
            raise DataError(f"The image {file!r} cannot be shown: {error}.") from error

    def _file(self, place: int) -> str:
        key = self.items[place].key
        problem = self.lacks(place)
        if problem is not None:
            raise DataError(f"{problem}: {key}. Run `vsemb index` again.")
        return str(indexed_file(self._index, key))


def _folder_of(index: SearchIndex) -> str:
    """Return the name of the folder that the files of an index have in common."""
    try:
        common = os.path.commonpath({os.path.dirname(key) for key in index.keys})
    except ValueError:  # Absolute and relative paths.
        common = ""
    return common or os.path.basename(index.recorded["folder"])


#: Opens the pictures of a page when the page is ready to be built.
Opener = Callable[[], Pictures]


def open_source(
    source: Run | str | os.PathLike[str],
    *,
    run: str | os.PathLike[str] | None = None,
    data: StoredDataset | str | os.PathLike[str] | None = None,
    split: str | None = None,
    images: Sequence[str | os.PathLike[str]] | None = None,
    report: Callable[[str], None] = print,
) -> tuple[Run, Opener]:
    """Open a run, and say which pictures a page searches with it.

    Args:
        source: anything that `Run.open` takes, or the directory of an index of images.
        run: run of the index, if it is no longer in its recorded directory.
        data: dataset to search; None for the training dataset, or that of the index.
        split: its split, or `all`; None for all.
        images: image files to search in place of a dataset, see `image_files`.
        report: called with messages.

    Returns:
        The run, and a function that opens the pictures. It embeds image files that are not in the index beside the run.

    Raises:
        InvalidArgumentError: for arguments that do not fit each other or the source.
        DataError: if nothing can be shown: a folder without images, an index of captions, a missing run or dataset.

    Example:

        run, opener = open_source("runs/mine", images=["photos"])
    """
    if not isinstance(source, Run) and kind_of(source) == "index":
        if images is not None:
            fix = f"Add them to the index with `vsemb index RUN --images … --out {source}`."
            raise invalid_argument("images", images, "omitted for an index", fix)
        return _open_index(source, run, data, split)
    if run is not None:
        raise invalid_argument("run", run, "omitted unless the source is an index")
    if images is None:
        opened = Run.open(source)
        try:
            dataset = opened.open_data(data)
        except DataError as error:
            fix = "" if data is not None else " Or name image files without captions as `images`."
            raise DataError(f"{error}{fix}") from error
        return opened, functools.partial(DatasetPictures, dataset, split or ALL)
    if not images:
        raise invalid_argument("images", images, "at least one file, directory or pattern")
    for name, value in {"data": data, "split": split}.items():
        if value is not None:
            raise invalid_argument(name, value, "omitted with `images`, which have no captions")
    files = image_files(images)
    opened = Run.open(source, "retrieval")
    check_indexable(opened)
    return opened, lambda: FilePictures(open_files(opened, files, files_directory(opened, images), report))


def _open_index(
    source: str | os.PathLike[str],
    run: str | os.PathLike[str] | None,
    data: StoredDataset | str | os.PathLike[str] | None,
    split: str | None,
) -> tuple[Run, Opener]:
    check_source(source, split=split)
    index, opened, dataset = open_indexed(source, run, data)
    problem = None
    if index.source.kind != "image":
        problem = f"holds captions. Make one of images with: vsemb index {opened.path}"
    elif index.items is None:
        problem = f"lacks the names of its items. Make it again with: vsemb index {opened.path}"
    elif dataset is None and "data" in index.recorded:
        problem = "is of a dataset that is no longer at its recorded place. Name it as `data`."
    if problem is not None:
        index.close()
        raise DataError(f"The page must have pictures to show; the index {source} {problem}")
    if dataset is None:
        return opened, functools.partial(FilePictures, index)
    return opened, functools.partial(IndexedPictures, index, dataset)


def examples(captions: Sequence[str]) -> list[str]:
    """Return a few short captions as examples, spread over the list.

    Args:
        captions: captions of the dataset.

    Example:

    >>> examples(["a dog", "a cat", "a dog", "a very long sentence about many different things"])
    ['a dog', 'a cat', 'a very long sentence about many different things']
    """
    distinct = sorted(dict.fromkeys(captions), key=len)
    short = [caption for caption in dict.fromkeys(captions) if len(caption) <= _SHORT]
    picked = short if len(short) >= _EXAMPLES else distinct[:_EXAMPLES]
    return picked[:: max(1, len(picked) // _EXAMPLES)][:_EXAMPLES]
