"""`vsemb.Dataset`: images and captions from Python objects, written once as a dataset on disk."""

from __future__ import annotations

import itertools
import os
import secrets
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

from vsemb.api.huggingface import huggingface_splits
from vsemb.api.rows import Columns, Item, Records, assign_splits, digest, item_of, name_files
from vsemb.console import say
from vsemb.data import store
from vsemb.data.duplicates import shared_images
from vsemb.data.images import ImageLike
from vsemb.data.readers import read
from vsemb.data.readers.source import file_name, one_split_note, split_name
from vsemb.data.records import ImageRecord, check_split_name
from vsemb.data.writing.prepare import described_source, summary
from vsemb.data.writing.writer import BadImageFound, write_dataset
from vsemb.errors import DataError, counted, invalid_argument, listed, one_line, unknown_name
from vsemb.files import sha256_bytes
from vsemb.parts import Count, in_order, path_of, require
from vsemb.printing import facts, table
from vsemb.results import Result
from vsemb.runs.describe import info

if TYPE_CHECKING:
    from vsemb.api.model import Model

OnBad = Literal["fail", "skip"]
#: The images and captions of a split, or of each of several splits by name.
Rows = Iterable[Any] | Mapping[str, Iterable[Any]]

# Conditions on rows, of a table and from Python, for errors.
_TABLE = "Rows of the table must name a readable image file and have a caption"
# `tf.data.INFINITE_CARDINALITY`.
_ENDLESS = -1
_ROWS = "Images must be files, bytes, PIL images or uint8 arrays, captions strings, and splits names"
# Directories of datasets without `out`; each is removed when the process ends.
_TEMPORARY: list[tempfile.TemporaryDirectory[str]] = []


def _labels(part: Any) -> dict[str, list[str]]:
    """Return column -> names of its classes, of a `datasets.Dataset`."""
    features = getattr(part, "features", None) or {}
    return {name: feature.names for name, feature in features.items() if hasattr(feature, "int2str")}


class Dataset(store.StoredDataset, Result):
    """A dataset of images and captions on disk, in the splits `train`, `val` and `test`; input of `vsemb.train`.

    Images are stored upright, as JPEG or PNG. If the source has no splits, a hash of the image's name assigns 80 % of
    the images to train, 10 % to val and 10 % to test, as in `vsemb prepare`.

    Attributes:
        path: directory of the dataset.
        splits: names of the splits.

    Example:

        data = vsemb.Dataset.from_pairs(["dog.jpg", "cat.jpg"], ["a dog", "a cat"], "data/pets")
        data = vsemb.Dataset.open("data/pets")
    """

    def to_json(self) -> dict[str, Any]:
        """Return its place, its fingerprint, its numbers of images and captions, and images that were left out."""
        return {
            "dataset": str(self.path),
            "fingerprint": self.fingerprint,
            "splits": self._counts(),
            "skipped": self.manifest["skipped"],
            "next": info(self.path).next[0],
        }

    def __str__(self) -> str:
        rows = [[name, *map("{:,}".format, row.values())] for name, row in self._counts().items()]
        described = info(self.path)
        values = {
            "dataset": self.path,
            "fingerprint": self.fingerprint[:16],
            "caption": one_line(self.split(self.splits[0]).captions_of(0)[0], 100),
            "next": described.next[0],
        }
        if "pretrained" in described.facts:
            values["pretrained"] = described.facts["pretrained"]
        return "\n".join([table(["split", "images", "captions"], rows), *summary(self.manifest), facts(values)])

    def _counts(self) -> dict[str, dict[str, int]]:
        splits = {name: self.manifest["splits"][name] for name in self.splits}
        return {name: {kind: split[kind] for kind in ("images", "captions")} for name, split in splits.items()}

    @classmethod
    def from_pairs(
        cls,
        images: Iterable[ImageLike],
        captions: Iterable[str | Sequence[str]],
        out: str | os.PathLike[str] | None = None,
        *,
        splits: str | Iterable[str] | None = None,
        on_bad: OnBad = "fail",
        overwrite: bool = False,
    ) -> Self:
        """Make a dataset from lists of images and captions.

        Args:
            images: n images, each a path, the bytes of a file, a PIL image, or uint8 (height, width, 3). An image that
                occurs several times, as the same path or object, is stored once with all its captions.
            captions: n captions, or n lists of captions.
            out: directory to write; default: a temporary one, deleted when the process ends.
            splits: n names of splits, or one for all images; default: a hash of the file name, or of the row for images
                in memory.
            on_bad: for unusable rows: `fail` raises one error that lists all of them, `skip` omits them.
            overwrite: whether to replace another dataset at `out` and its cached features.

        Returns:
            The dataset. If `out` already contains it, nothing is written.

        Raises:
            DataError: for unusable rows, or if `out` contains something else.
            InvalidArgumentError: for images, captions and splits of different lengths.

        Example:

            files = sorted(Path("pictures").glob("*.jpg"))
            data = vsemb.Dataset.from_pairs(files, [caption_of[file.stem] for file in files], "data/mine")
        """
        columns = {"images": in_order("images", images), "captions": in_order("captions", captions)}
        count = len(columns["images"])
        stated: list[dict[str, Any]] = [{} for _ in range(count)]
        if splits is not None:
            if isinstance(splits, str):
                splits = [check_split_name(split_name(splits), "splits")] * count
            columns["splits"] = in_order("splits", splits)
            stated = [{"split": split} for split in columns["splits"]]
        for name, column in columns.items():
            if len(column) != count:
                raise invalid_argument(name, f"{len(column)} {name}", f"{count}, one per image")
        rows = list(zip(columns["images"], columns["captions"], stated, strict=True))
        return cls._of_list(rows, out, "pairs", on_bad, overwrite)

    @classmethod
    def from_csv(
        cls,
        path: str | os.PathLike[str],
        out: str | os.PathLike[str] | None = None,
        *,
        images: str | os.PathLike[str] | None = None,
        on_bad: OnBad = "fail",
        overwrite: bool = False,
        **options: Any,
    ) -> Self:
        """Make a dataset from a table: CSV, TSV or JSON lines, one row per caption.

        Args:
            path: the table; its header names the columns file, caption and, optionally, split and class.
            out: directory to write; default: a temporary one, deleted when the process ends.
            images: base folder of the file names; default: the folder of the table, or `images/` in it.
            on_bad: for unusable images: `fail` raises one error that lists all of them, `skip` omits them.
            overwrite: whether to replace another dataset at `out` and its cached features.
            **options: further fields of the reader of tables: `file_column` and `caption_column` for a header with
                other names, `split`, `disjoint_classes`, `uris`.

        Returns:
            The dataset. If `out` already contains it, nothing is written.

        Raises:
            DataError: for a malformed table, or if `out` contains something else.

        Example:

            data = vsemb.Dataset.from_csv("captions.csv", "data/mine", images="pictures")
        """
        source = read("table", path_of("path", path), images=images, **options)
        described = described_source(source)
        return cls._write(source.records, out, described, source.total, list(source.bad), on_bad, overwrite)

    @classmethod
    def from_dataframe(
        cls,
        frame: Any,
        out: str | os.PathLike[str] | None = None,
        *,
        image: str | None = None,
        caption: str | Sequence[str] | None = None,
        split: str | None = None,
        images: str | os.PathLike[str] | None = None,
        on_bad: OnBad = "fail",
        overwrite: bool = False,
    ) -> Self:
        """Make a dataset from a pandas DataFrame, or from another table whose columns are `frame[name]`.

        Args:
            frame: the table, one row per image or per caption.
            out: directory to write; default: a temporary one, deleted when the process ends.
            image: column of images, as in `from_pairs`; default: the one with a name such as image, file or path.
            caption: column of captions, or several columns; default: the one with a name such as caption or text.
            split: column of splits; default: the one named split; without one, a hash as in `from_pairs`.
            images: base folder of the file names; default: the current folder.
            on_bad: for unusable rows: `fail` raises one error that lists all of them, `skip` omits them.
            overwrite: whether to replace another dataset at `out` and its cached features.

        Returns:
            The dataset. If `out` already contains it, nothing is written.

        Raises:
            DataError: for unusable rows, or if `out` contains something else.
            InvalidArgumentError: for a missing column.

        Example:

            data = vsemb.Dataset.from_dataframe(pandas.read_parquet("pets.parquet"), "data/pets", caption="title")
        """
        # Of a table of Arrow, `columns` are the values.
        if not hasattr(frame, "columns") or hasattr(frame, "column_names"):
            fix = "Of Arrow: table.to_pandas(). For lists: Dataset.from_pairs(images, captions)."
            raise invalid_argument("frame", type(frame).__name__, "a DataFrame", fix)
        pick = Columns(list(frame.columns), image, caption, split)
        values = {name: list(frame[name]) for name in pick.names}
        rows = [
            pick(row) for row in (dict(zip(values, row, strict=True)) for row in zip(*values.values(), strict=True))
        ]
        folder = None if images is None else path_of("images", images)
        for place, (file, *rest) in enumerate(rows):
            if folder is not None and isinstance(file, str | os.PathLike):
                rows[place] = (folder / file_name(os.fspath(file), [folder]), *rest)
        missing = " Name the folder of the files with images=." if folder is None else ""
        return cls._of_list(rows, out, "dataframe", on_bad, overwrite, missing)

    @classmethod
    def from_huggingface(
        cls,
        dataset: Any,
        out: str | os.PathLike[str] | None = None,
        *,
        image: str | None = None,
        caption: str | Sequence[str] | None = None,
        on_bad: OnBad = "fail",
        overwrite: bool = False,
    ) -> Self:
        """Make a dataset from a Hugging Face dataset: one split, or a dictionary of splits.

        Args:
            dataset: a `datasets.Dataset`, `IterableDataset`, or a dictionary of them by split. A column `split` has
                precedence. Without it, a single split is split by a hash of the row, as in `from_pairs`.
            out: directory to write; default: a temporary one, deleted when the process ends.
            image: column of images; default: the one with a name such as image, file or path.
            caption: column of captions or lists of captions, or several columns; default: the one with a name such as
                caption or text.
            on_bad: for unusable rows: `fail` raises one error that lists all of them, `skip` omits them.
            overwrite: whether to replace another dataset at `out` and its cached features.

        Returns:
            The dataset. Neighbouring rows with the same image are stored as one image with several captions.

        Raises:
            DataError: for unusable rows, or if `out` contains something else.
            InvalidArgumentError: for a missing column.

        Example:

            data = vsemb.Dataset.from_huggingface(datasets.load_dataset("nlphuji/flickr8k"), "data/flickr8k")
        """
        if isinstance(dataset, str):
            fix = f"Load it first: datasets.load_dataset({dataset!r})."
            raise invalid_argument("dataset", dataset, "a Hugging Face dataset", fix)

        def rows(each: Any) -> Iterator[Any]:
            allowed = "a Hugging Face dataset, or a dictionary of them by split"
            if not isinstance(each, Iterable):
                raise invalid_argument("dataset", type(each).__name__, allowed)
            for row in each:
                if not isinstance(row, Mapping):
                    fix = "Of columns: datasets.Dataset.from_dict(columns)."
                    raise invalid_argument("dataset", f"rows of {type(row).__name__}", allowed, fix)
                yield row

        return cls._of_rows(dataset, out, "huggingface", rows, (image, caption), on_bad, overwrite)

    @classmethod
    def from_tf(
        cls,
        dataset: Any,
        out: str | os.PathLike[str] | None = None,
        *,
        image: str | None = None,
        caption: str | Sequence[str] | None = None,
        on_bad: OnBad = "fail",
        overwrite: bool = False,
    ) -> Self:
        """Make a dataset from an unbatched `tf.data.Dataset`, or from a dictionary of them by split.

        Args:
            dataset: elements are pairs (image, caption) or dictionaries. An image is the bytes of a file, or uint8
                (height, width, 3). A caption is a string or a vector of strings. The key `split` of a dictionary has
                precedence. Without it, a single dataset is split by a hash of the row, as in `from_pairs`. After
                `repeat().filter(...)` TensorFlow cannot tell that it never ends: bound it by `take(n)`.
            out: directory to write; default: a temporary one, deleted when the process ends.
            image: key of the image; default: the one with a name such as image.
            caption: key of the caption, or several keys; default: the one with a name such as caption or text.
            on_bad: for unusable rows: `fail` raises one error that lists all of them, `skip` omits them.
            overwrite: whether to replace another dataset at `out` and its cached features.

        Returns:
            The dataset. Neighbouring rows with the same image are stored as one image with several captions.

        Raises:
            DataError: for unusable rows, or if `out` contains something else.
            InvalidArgumentError: for a missing key, or a dataset that repeats without end.

        Example:

            data = vsemb.Dataset.from_tf(tf.data.Dataset.from_tensor_slices((encoded, captions)), "data/mine")
        """

        def rows(each: Any) -> Iterator[Any]:
            if not hasattr(each, "as_numpy_iterator"):
                fix = "For lists: Dataset.from_pairs(images, captions)."
                raise invalid_argument("dataset", type(each).__name__, "a tf.data.Dataset", fix)
            for row in each.as_numpy_iterator():
                if not (isinstance(row, Mapping) or (isinstance(row, tuple) and len(row) == 2)):
                    received = f"{len(row)} parts" if isinstance(row, tuple) else type(row).__name__
                    fix = "dataset.map(lambda image, caption, *others: (image, caption)), or name the parts."
                    raise invalid_argument("elements", received, "pairs (image, caption), or dictionaries", fix)
                yield row if isinstance(row, Mapping) else dict(zip(("image", "caption"), row, strict=True))

        for each in dataset.values() if isinstance(dataset, Mapping) else (dataset,):
            if hasattr(each, "cardinality") and int(each.cardinality()) == _ENDLESS:
                fix = "Leave out repeat(), or keep the first n: dataset.take(n)."
                raise invalid_argument("dataset", "one that repeats without end", "a finite tf.data.Dataset", fix)
        return cls._of_rows(dataset, out, "tf", rows, (image, caption), on_bad, overwrite)

    def to_huggingface(self, model: Model | None = None, *, batch_size: Count = 64) -> Any:
        """Return the splits as a dataset of the Hugging Face library `datasets`, with embeddings if a model is given.

        Args:
            model: a model of `vsemb.load`; None for no embeddings.
            batch_size: images that the model embeds at once.

        Returns:
            A `datasets.DatasetDict`, split -> rows with `key`, `captions` (a list of strings), `image` (the stored
            JPEG or PNG; without one for precomputed features), and `class`, if every image has one. With a model also
            `image_embedding`, float32 (dim,), and `caption_embeddings`, float32 (captions, dim); NaN for a caption
            without words. The library keeps it in its cache, and reads it from there the next time.

        Raises:
            DataError: for a model with a dataset of precomputed features.
            MissingExtraError: without the library, `pip install 'vsemb[datasets]'`.

        Example:

            rows = vsemb.Dataset.open("data/mine").to_huggingface(vsemb.load("runs/mine"))
            rows["val"].to_parquet("val.parquet")
        """
        require("batch_size", batch_size, Count)
        return huggingface_splits(self, model, batch_size)

    @classmethod
    def _of_list(
        cls,
        rows: list[tuple[Any, Any, dict[str, Any]]],
        out: Any,
        kind: str,
        on_bad: OnBad,
        overwrite: bool,
        missing: str = "",
    ) -> Self:
        """Write rows (image, caption, {"split": name} or {}) that are in memory."""
        problems: list[str] = []
        groups: dict[Any, Item] = {}
        for place, row in enumerate(rows):
            item = item_of(place, *row, problems)
            if item is not None:
                first = groups.setdefault(item.identity, item)
                if first is not item:
                    if item.split != first.split:
                        problems.append(
                            f"row {place}: split is {item.split!r}, but {first.split!r} in row {first.place}"
                        )
                    first.captions.extend(item.captions)
        items = list(groups.values())
        name_files(items)
        if items and all(item.split is None for item in items):
            assign_splits(items)
        # A temporary dataset is never compared with a later call, so its digest can be random.
        rows_digest = secrets.token_hex(8) if out is None else sha256_bytes("".join(map(digest, items)).encode())
        described = {"format": kind, "path_name": "", "sha256": {"rows": rows_digest}, "options": {}}
        records = Records(items)
        return cls._write(records, out, described, len(items), problems, on_bad, overwrite, missing)

    @classmethod
    def _of_rows(
        cls,
        dataset: Any,
        out: Any,
        kind: str,
        rows_of: Callable[[Any], Iterator[Mapping[str, Any]]],
        columns: tuple[str | None, str | Sequence[str] | None],
        on_bad: OnBad,
        overwrite: bool,
    ) -> Self:
        """Write rows that are read one by one, so that the images need not fit in memory."""
        parts: Mapping[Any, Any] = dataset if isinstance(dataset, Mapping) else {None: dataset}
        only = next(iter(parts)) if len(parts) == 1 else None
        problems: list[str] = []
        hashed = False

        def items() -> Iterator[Item]:
            nonlocal hashed
            place = itertools.count()
            for name, part in parts.items():
                of_part = None if len(parts) == 1 else check_split_name(split_name(str(name)))
                pick = None
                for row in rows_of(part):
                    if pick is None:
                        pick = Columns(list(row), *columns, labels=_labels(part))
                    item = item_of(next(place), *pick(row), problems)
                    if item is not None:
                        split = item.split or of_part
                        hashed = hashed or split is None
                        yield replace(item, image=item.encoded(), split=split)

        def images() -> Iterator[ImageRecord]:
            for _, group in itertools.groupby(items(), lambda item: (item.identity, item.split)):
                first, *others = group
                first.captions.extend(text for item in others for text in item.captions)
                yield first.record()

        # Rows of an earlier call can only be recognized by a fingerprint of the source, if it has one.
        sources = [getattr(part, "_fingerprint", None) or secrets.token_hex(8) for part in parts.values()]
        described = {"format": kind, "path_name": "", "sha256": {}, "options": {"rows": sources, "columns": columns}}
        written = cls._write(images(), out, described, None, problems, on_bad, overwrite)
        if only is not None and hashed:
            say(one_split_note("rows", only, "row", "a column `split` keeps one"))
        return written

    @classmethod
    def _write(
        cls,
        records: Iterable[ImageRecord],
        out: Any,
        described: dict[str, Any],
        total: int | None,
        problems: list[str],
        on_bad: OnBad,
        overwrite: bool,
        missing: str = "",
    ) -> Self:
        """Write records as a dataset; `missing` is a sentence for errors about files that do not exist."""
        if on_bad not in ("fail", "skip"):
            raise unknown_name("on_bad", on_bad, ("fail", "skip"))
        if out is not None:
            out = path_of("out", out)
        else:
            _TEMPORARY.append(tempfile.TemporaryDirectory(prefix="vsemb-"))
            out = Path(_TEMPORARY[-1].name) / (Path(described["path_name"]).stem or described["format"])

        def left_out(dataset: store.StoredDataset) -> list[str]:
            return [*problems, *(f"{line['key']}: {line['reason']}" for line in dataset.manifest["skipped"])]

        def folder(problems: list[str]) -> str:
            return missing if any("no such file" in problem for problem in problems) else ""

        def refusal(problems: list[str]) -> str:
            rows = counted(len(problems), "row is", "rows are")
            must = _TABLE if described["format"] == "table" else _ROWS
            return f"{must}; {rows} not: {listed(problems)}. Correct them, or pass on_bad='skip'.{folder(problems)}"

        def check(dataset: store.StoredDataset) -> None:
            if on_bad == "fail" and left_out(dataset):
                raise BadImageFound(refusal(left_out(dataset)))

        name = Path(os.path.abspath(out)).name
        options: dict[str, Any] = {"total": total, "overwrite": overwrite, "before_publish": check}
        try:
            dataset = write_dataset(records, out, name=name, source=described, **options)
        except DataError as error:
            if problems and not isinstance(error, BadImageFound):
                # Report unusable rows first, since they may be the cause of the other error.
                raise DataError(refusal(problems)) from error
            if hint := "" if isinstance(error, BadImageFound) else folder([str(error)]):
                raise DataError(f"{error}{hint}") from error
            raise
        # Check again, because a dataset from an earlier call was not checked by `before_publish`.
        check(dataset)
        if bad := left_out(dataset):
            say(f"Left out: {listed(bad)}.")
        for line in shared_images(dataset):
            say(line)
        return cls.open(dataset.path)
