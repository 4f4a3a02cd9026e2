"""Writing datasets: from records to the files of a dataset; continues after an interrupted run."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

import PIL

from vsemb.console import progress
from vsemb.data.manifest import MANIFEST, VERSION, FinishedSplit, read_manifest, shard_name, write_index_and_manifest
from vsemb.data.records import ImageRecord, repeated_key
from vsemb.data.store import StoredDataset
from vsemb.data.writing.shards import SplitWriter, WorkArea
from vsemb.data.writing.validate import examine_all, signature
from vsemb.errors import DataError, VsembError, counted, reason_of
from vsemb.parts import Count, require

OnBadImage = Literal["skip", "fail"]

_CHANGED = "changed since the interrupted run: starting afresh."


class SourceChanged(Exception):
    """A record differs from the one that the interrupted run read."""


class BadImageFound(DataError):
    """An unusable image in a dataset that must have all images."""


def write_dataset(
    records: Iterable[ImageRecord],
    out: str | os.PathLike[str],
    *,
    name: str,
    source: dict[str, Any],
    total: int | None = None,
    images_per_shard: int = 1024,
    on_bad_image: OnBadImage = "skip",
    max_side: int | None = None,
    overwrite: bool = False,
    report: Callable[[str], None] | None = None,
    before_publish: Callable[[StoredDataset], None] | None = None,
) -> StoredDataset:
    """Write records as a dataset: TFRecord shards, an index per split, and a manifest, written last.

    `out` is published in one step. Finished shards of an interrupted call are kept beside it, in `.NAME.partial`, and
    the same call continues after them. The result has the same bytes as after an uninterrupted call. If `out` is
    already this dataset (same name, source and options), nothing is written. Files of a list of records that are newer
    than the dataset are compared with it.

    Args:
        records: the images, in source order. If every iteration gives the same records (as a list does), and the
            source changed since an interrupted call, the call starts again by itself.
        out: the directory to create.
        name: the dataset's name.
        source: JSON-serializable `{"format", "path_name", "sha256", "options"}`, compared with the source of an
            existing or interrupted dataset.
        total: the number of records, for the progress bar.
        images_per_shard: images in a full shard.
        on_bad_image: `"skip"` leaves out unreadable images and images without a caption; `"fail"` raises an error.
        max_side: longer side in pixels to which larger images are shrunk; None for no limit.
        overwrite: whether to replace another dataset at `out`, including its cached features and parses.
        report: called with each line of progress.
        before_publish: called with the finished dataset before it moves to `out`; files that it adds to the
            dataset's directory move with it.

    Returns:
        The dataset, opened.

    Raises:
        DataError: for a malformed record, a duplicate key, a bad image with `on_bad_image="fail"`, no usable
            image at all, other content at `out`, images that changed since, or an error of the file system.

    Example:

    ```python
    records = [ImageRecord("dog.jpg", ("A dog .",), "train", Path("images/dog.jpg"))]
    source = {"format": "mine", "path_name": "images", "sha256": {}, "options": {}}
    dataset = write_dataset(records, "data/dogs", name="dogs", source=source)
    ```
    """
    require("on_bad_image", on_bad_image, OnBadImage)
    described = description(name, source, images_per_shard, max_side)
    area = WorkArea(Path(os.path.realpath(out)))
    # Other versions of Pillow may encode or reject images differently, so their shards are not continued.
    plan = described | {"version": VERSION, "pillow": PIL.__version__}
    say = report or (lambda line: None)
    with _disk_errors(area):
        if holds_dataset(area.out) and not overwrite:
            check_prepared(area.out, described, on_bad_image)
            if isinstance(records, list):
                _check_images(records, StoredDataset.open(area.out), max_side)
            if area.root.exists():
                with area.locked():
                    area.remove()
            say(f"{out} is already prepared from this source with these options; nothing to do.")
            return StoredDataset.open(out)
        with area.locked():
            try:
                if area.begin(plan):
                    say(f"The source or the options {_CHANGED}")
                try:
                    _complete(area, records, described, total, on_bad_image, say)
                except SourceChanged:
                    area.clear()
                    if iter(records) is records:
                        raise DataError(
                            f"The source changed since the interrupted run of {out}. The same command again "
                            "starts afresh."
                        ) from None
                    say(f"The source {_CHANGED}")
                    area.begin(plan)
                    _complete(area, records, described, total, on_bad_image, say)
                if before_publish is not None:
                    before_publish(StoredDataset.open(area.dataset))
            except Exception as error:
                # An error in the source makes its finished shards useless.
                at_fault = isinstance(error, VsembError) and not isinstance(error.__cause__, OSError)
                area.tidy(keep=isinstance(error, BadImageFound) or not at_fault)
                raise
            area.publish()
    return StoredDataset.open(out)


def _complete(
    area: WorkArea,
    records: Iterable[ImageRecord],
    described: dict[str, Any],
    total: int | None,
    on_bad_image: str,
    say: Callable[[str], None],
) -> None:
    """Write the files of the dataset to the work area."""
    per_shard = described["writing"]["images_per_shard"]
    writers = {split: SplitWriter(split, area, per_shard, shards) for split, shards in area.finished().items()}
    if writers:
        done = sum(1 for writer in writers.values() for _ in writer.records())
        say(f"Continuing an interrupted run: {counted(done, 'image is', 'images are')} done.")
    try:
        _write_shards(area, records, writers, described["writing"], total, on_bad_image)
    finally:
        for writer in writers.values():
            writer.close()
    _write_index(area, writers, described)


def _write_shards(
    area: WorkArea,
    records: Iterable[ImageRecord],
    writers: dict[str, SplitWriter],
    writing: Mapping[str, Any],
    total: int | None,
    on_bad_image: str,
) -> None:
    known = {record["position"]: record for writer in writers.values() for record in writer.records()}
    covered = {split: writer.covered for split, writer in writers.items()}
    seen: set[str] = set()
    number = 0
    position = -1
    images: bool | None = None
    with contextlib.closing(examine_all(records, known, writing["max_side"])) as examined:
        for position, record, outcome in progress(examined, desc="prepare", total=total, unit="image"):
            if record.key in seen:
                raise repeated_key(records, position, record)
            seen.add(record.key)
            if outcome is not None:
                if position <= covered.get(record.split, -1):
                    raise SourceChanged
                line = {"position": position, **outcome[0]}
            else:
                line = known[position]
                renumbered = line["entry"] is not None and line["entry"]["id"] != number
                if signature(record) != line["signature"] or renumbered:
                    raise SourceChanged
            if line["entry"] is not None:
                line["entry"]["id"] = number
                number += 1
                has_image = line["entry"]["width"] is not None
                if images not in (None, has_image):
                    raise DataError(f"Image {record.key!r}: some records have image bytes and others do not.")
                images = has_image
            elif on_bad_image == "fail":
                raise BadImageFound(
                    f"Image {record.key!r}: {line['reason']}. Mend it, or leave such images out "
                    "with `on_bad_image=skip`."
                )
            if outcome is not None:
                if record.split not in writers:
                    writers[record.split] = SplitWriter(record.split, area, writing["images_per_shard"], [])
                writers[record.split].add(line, outcome[1])
    if any(last > position for last in covered.values()):
        raise SourceChanged
    if position < 0:
        raise DataError("The source holds no images.")
    if not number:
        skipped = (record for writer in writers.values() for record in writer.records())
        first = min(skipped, key=lambda record: record["position"])
        raise DataError(f"None of {position + 1} images can be used. The first, {first['key']!r}: {first['reason']}.")
    for writer in writers.values():
        writer.finish_shard()


def _write_index(area: WorkArea, writers: dict[str, SplitWriter], described: dict[str, Any]) -> None:
    """Give the shards their final names and write the index files and the manifest."""
    splits: dict[str, FinishedSplit] = {}
    skipped: list[dict[str, Any]] = []
    dropped = 0
    for split, writer in writers.items():
        images = captions = 0
        for record in writer.records():
            dropped += record["dropped"]
            if record["entry"] is None:
                skipped.append(record)
            else:
                images, captions = images + 1, captions + len(record["entry"]["captions"])
        if not images:
            continue
        for shard in writer.finished:
            file = area.shard_file(split, shard["number"])
            final = area.dataset / shard_name(split, shard["number"], len(writer.finished))
            if file is not None and file != final:
                os.replace(file, final)
        splits[split] = FinishedSplit(
            images=images,
            captions=captions,
            shards=[(shard["bytes"], shard["sha256"]) for shard in writer.finished],
            entries=(record["entry"] for record in writer.records() if record["entry"] is not None),
        )
    skipped.sort(key=lambda line: line["position"])
    write_index_and_manifest(area.dataset, described, splits, skipped, dropped)


def check_prepared(out: Path, described: dict[str, Any], on_bad_image: str = "skip") -> None:
    """Check that the dataset at `out` is the requested one.

    Args:
        out: the directory of a dataset, see `holds_dataset`.
        described: name, source and writing options of the requested dataset, as in a manifest.
        on_bad_image: with `"fail"`, a dataset that left images out is an error.

    Raises:
        DataError: if another dataset is at `out`, or one with images left out although none may be.
    """
    manifest = read_manifest(out)
    differing = [part for part in described if _comparable(part, manifest) != _comparable(part, described)]
    if differing:
        raise DataError(
            f"{out} already holds the dataset {manifest['name']!r}, made with another "
            f"{', '.join(differing)}; choose another `out`, or replace it with `overwrite`."
        )
    if on_bad_image == "fail" and manifest["skipped"]:
        first = manifest["skipped"][0]
        raise DataError(
            f"{out} was prepared without {counted(len(manifest['skipped']), 'bad image')}, first {first['key']!r}: "
            f"{first['reason']}. Mend them and prepare it again with `overwrite`."
        )


def _check_images(records: list[ImageRecord], dataset: StoredDataset, max_side: int | None) -> None:
    """Check that a dataset holds the images of its source.

    A source is described by names and sizes. Files that are newer than the dataset, replaced or copied, are read again.

    Raises:
        DataError: if an image changed; the message names the first.
    """
    written = (dataset.path / MANIFEST).stat().st_mtime_ns
    newer = [record for record in records if isinstance(record.image, Path) and _changed_at(record.image) >= written]
    if not newer:
        return
    # None stands for an image that was left out.
    held: dict[str, str | None] = {line["key"]: None for line in dataset.manifest["skipped"]}
    for name in dataset.splits:
        split = dataset.split(name)
        held.update(zip(split.keys, split.digests, strict=True))
    changed = []
    with contextlib.closing(examine_all(newer, (), max_side)) as examined:
        for _, record, outcome in progress(examined, desc="compare", total=len(newer), unit="image"):
            entry = outcome and outcome[0]["entry"]
            if held.get(record.key, "") != (entry and entry["sha256"]):
                changed.append(record.key)
    if changed:
        raise DataError(
            f"{dataset.path} holds earlier pixels of {counted(len(changed), 'image')}, first {changed[0]!r}, whose "
            "file changed since; choose another `out`, or replace it with `overwrite`."
        )


def _changed_at(file: Path) -> int:
    """Return when a file was written or put in its place, in nanoseconds; 0 if it is missing."""
    try:
        status = file.stat()
    except OSError:
        return 0
    return max(status.st_mtime_ns, status.st_ctime_ns)


def holds_dataset(out: Path) -> bool:
    """Return whether there is a dataset at `out`; False if it is missing or an empty directory.

    Raises:
        DataError: if `out` has other content, which is never replaced.
    """
    if not out.exists() or (out.is_dir() and not any(out.iterdir())):
        return False
    if not out.is_dir() or not (out / MANIFEST).exists():
        raise DataError(f"{out} exists and is not a vsemb dataset; choose another `out`.")
    return True


def _comparable(part: str, described: dict[str, Any]) -> Any:
    value = described.get(part)
    if isinstance(value, dict):
        return {name: entry for name, entry in value.items() if name != "path_name"}
    return value


def description(name: str, source: dict[str, Any], images_per_shard: int, max_side: int | None) -> dict[str, Any]:
    """Return the entries of a manifest by which two datasets are compared: name, source and writing options.

    Args:
        name: the dataset's name.
        source: see `write_dataset`.
        images_per_shard: images in a full shard.
        max_side: maximum longer side in pixels, or None.

    Raises:
        InvalidArgumentError: for an option below 1.

    Example:

    >>> description("dogs", {}, 1024, None)["writing"]
    {'images_per_shard': 1024, 'max_side': None}
    """
    require("images_per_shard", images_per_shard, Count)
    require("max_side", max_side, Count | None)
    writing = {"images_per_shard": images_per_shard, "max_side": max_side}
    # The round trip through JSON converts tuples to lists, as in a manifest that is read.
    return json.loads(json.dumps({"name": name, "source": source, "writing": writing}))


@contextlib.contextmanager
def _disk_errors(area: WorkArea) -> Iterator[None]:
    """Convert errors of the file system and of TensorFlow's writer to one `DataError`."""
    try:
        yield
    except Exception as error:
        # Compare tf.errors.OpError and its subclasses by name, to avoid an import of TensorFlow.
        if "OpError" in [base.__name__ for base in type(error).__mro__]:
            reason = str(error).split("\n")[0]
        elif isinstance(error, OSError):
            reason = reason_of(error)
        else:
            raise
        kept = f" What is finished is kept in {area.root}; the same command continues." if area.root.exists() else ""
        raise DataError(f"Cannot write {area.out}: {reason}.{kept}") from error
