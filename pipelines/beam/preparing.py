"""Job of `pipelines.beam_prepare`: examine blocks, plan and write shards, publish the dataset."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import os
import re
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipelines.beam import storage
from pipelines.beam.blocks import BlockSummary, BlockTask, examine_block, write_blocks
from pipelines.beam.running import run_pipeline
from pipelines.beam.sharding import ShardTask, plan_shards, write_shard
from vsemb.console import say
from vsemb.data.manifest import MANIFEST, FinishedSplit, write_index_and_manifest
from vsemb.data.readers.source import Source
from vsemb.data.store import StoredDataset
from vsemb.data.writing.prepare import described_source, open_source, write_beside
from vsemb.data.writing.shards import WorkArea
from vsemb.data.writing.writer import BadImageFound, check_prepared, description, holds_dataset
from vsemb.errors import DataError, invalid_argument
from vsemb.files import read_json

if TYPE_CHECKING:
    import apache_beam as beam

_DATASET_FILE = re.compile(r"\w+-\d{5}-of-\d{5}\.tfrecord|\w+\.index\.arrow")
_READERS = 16


@dataclasses.dataclass(frozen=True)
class Layout:
    """Folders of a job's working files until the dataset is complete.

    Attributes:
        root: folder of all working files, beside the dataset.
    """

    root: str

    @property
    def blocks(self) -> str:
        """Folder of examined blocks."""
        return storage.join(self.root, "blocks")

    @property
    def reports(self) -> str:
        """Folder of the reports of shards."""
        return storage.join(self.root, "shards")

    @property
    def dataset(self) -> str:
        """Folder that becomes the dataset."""
        return storage.join(self.root, "dataset")

    @property
    def plan(self) -> str:
        """File with the results of the examination and the list of written shards."""
        return storage.join(self.root, "beam-plan.json")


def prepare(
    source: str | Sequence[str],
    out: str,
    *,
    format: str | None = None,
    flags: Sequence[str] = (),
    name: str | None = None,
    on_bad_image: str = "skip",
    val_to_train: bool = False,
    max_side: int | None = None,
    images_per_shard: int = 1024,
    overwrite: bool = False,
    dead_letters: str | None = None,
    block: int = 256,
    threads: int = 4,
    **options: Any,
) -> dict[str, Any]:
    """Prepare a dataset like `vsemb.prepare`; a Beam pipeline examines and writes the images.

    The dataset is byte-identical for any number of workers, runner and block size, and after interruptions, if all
    workers have the same version of Pillow.

    Args:
        source: local file or folder to read, or several; their images can be stored elsewhere.
        out: directory to write, or URI of a folder in a store. A directory is written atomically. A store cannot rename
            a folder, so that a dataset in a store is complete when its manifest exists.
        format: kind of a reader; default: inferred from the source.
        flags: options of Beam.
        name: name of the dataset; default: the last part of `out`.
        on_bad_image: `"skip"` or `"fail"`; with `"fail"` a bad image prevents publication.
        val_to_train: whether to put the images of val into train.
        max_side: if given, larger images are resized to this number of pixels on their longer side.
        images_per_shard: number of images in a full shard.
        overwrite: whether to replace another dataset at `out`.
        dead_letters: path or URI of the JSON lines about skipped images; default: beside `out`.
        block: number of images per examination task.
        threads: number of threads per task for reading and decoding.
        **options: fields of the reader.

    Returns:
        The manifest.

    Raises:
        DataError: for errors of `vsemb.prepare`, or if the job fails. Finished work is kept, and
            the same call resumes.
        InvalidArgumentError: for an invalid option.
        MissingExtraError: if Beam is not installed.

    Example:

        prepare("photos.csv", "data/photos", format="table", flags=["--direct_num_workers", "4"])
    """
    for argument, value in (("block", block), ("threads", threads)):
        if value < 1:
            raise invalid_argument(argument, value, "an integer >= 1")
    storage.need_beam()
    out = os.path.realpath(out) if storage.is_local(out) else out.rstrip("/")
    folder, _, base = out.rpartition("/")
    letters = dead_letters or f"{out}-dead-letters.jsonl"
    opened = open_source(source, format, on_bad_image, options, val_to_train=val_to_train)
    described = description(name or base, described_source(opened), images_per_shard, max_side)
    layout = Layout(storage.join(folder, f".{base}.partial"))
    with _destination(out, opened) as there:
        if there is not None and not overwrite:
            check_prepared(there, described, on_bad_image)
            say(f"{out} is already prepared from this source with these options; nothing to do.")
            manifest: dict[str, Any] = read_json(there / MANIFEST)
            if storage.is_local(out) and Path(layout.root).exists():
                # Killed after publication.
                left = WorkArea(Path(out))
                with left.locked():
                    left.remove()
            return manifest
    with _working(out, layout) as area:
        tasks = list(write_blocks(opened.records, layout.blocks, block, max_side=max_side, threads=threads))
        if not tasks:
            raise DataError("The source holds no images.")
        storage.remove([layout.plan])
        run_pipeline(
            functools.partial(
                _build, tasks=tasks, per_shard=images_per_shard, layout=layout, on_bad_image=on_bad_image
            ),
            flags,
            watch=lambda: sum(name.endswith(".json") for name in storage.listing(layout.blocks)),
            total=len(tasks),
            unit="block",
            name="examine",
        )
        plan = storage.read_json(layout.plan)
        storage.write_lines(letters, plan["skipped"])
        if plan["error"] is not None:
            raise DataError(plan["error"])
        if on_bad_image == "fail" and plan["skipped"]:
            raise _bad_image(plan["skipped"][0], letters)
        _finish(layout, area, described, opened, plan)
        _publish(out, layout, area)
    manifest = storage.read_json(storage.join(out, MANIFEST))
    if plan["skipped"]:
        say(f"left out {len(plan['skipped'])} images; {letters} says which, and why")
    return manifest


def _bad_image(item: dict[str, Any], letters: str) -> BadImageFound:
    return BadImageFound(
        f"Image {item['key']!r}: {item['reason']}. Mend it, or leave such images out with "
        f"`on_bad_image=skip`. All are listed in {letters}."
    )


def _build(
    pipeline: beam.Pipeline,
    *,
    tasks: list[BlockTask],
    per_shard: int,
    layout: Layout,
    on_bad_image: str,
) -> None:
    import apache_beam as beam

    plan = functools.partial(_plan, per_shard=per_shard, layout=layout, skip=on_bad_image == "skip", blocks=len(tasks))
    shards = (
        pipeline
        | "Blocks" >> beam.Create(tasks)
        | "Spread blocks" >> beam.Reshuffle()
        | "Examine" >> beam.Map(_counted)
        | "As one" >> beam.Map(lambda summary: (0, dataclasses.asdict(summary)))
        | "Together" >> beam.GroupByKey()
        | "Plan shards" >> beam.FlatMap(lambda pair: plan(pair[1]))
    )
    shards | "Spread shards" >> beam.Reshuffle() | "Write shards" >> beam.Map(write_shard)


def _counted(task: BlockTask) -> BlockSummary:
    from apache_beam.metrics import Metrics

    summary = examine_block(task)
    Metrics.counter("vsemb", "images_kept").inc(sum(summary.kept.values()))
    Metrics.counter("vsemb", "images_left_out").inc(len(summary.skipped))
    return summary


def _plan(
    summaries: Iterable[dict[str, Any]], *, per_shard: int, layout: Layout, skip: bool, blocks: int
) -> list[ShardTask]:
    """Plan the shards and write the plan for the starting process; return [] if a bad image prevents publication."""
    ordered = sorted((BlockSummary(**fields) for fields in summaries), key=lambda summary: summary.number)
    skipped = [item for summary in ordered for item in summary.skipped]
    shards: list[ShardTask] = []
    problem = None
    try:
        if len(ordered) != blocks:
            raise RuntimeError(f"{len(ordered)} of {blocks} blocks came back")
        shards = plan_shards(ordered, per_shard, layout.dataset, layout.reports)
    except DataError as error:
        problem = str(error)
    plan = {
        "error": problem,
        "skipped": skipped,
        "dropped": sum(summary.dropped for summary in ordered),
        "shards": [[task.split, task.report] for task in shards],
    }
    storage.write_json(layout.plan, plan)
    return shards if skip or not skipped else []


@contextlib.contextmanager
def _destination(out: str, source: Source) -> Iterator[Path | None]:
    """Yield a folder with the manifest of the dataset at `out`; None without a dataset."""
    if storage.is_local(out):
        yield Path(out) if holds_dataset(Path(out)) else None
        return
    if source.knows_more:
        raise DataError(
            f"Annotations of the source {source.format} beside its captions are not written to a store; make the "
            "dataset in a folder of this machine and copy it."
        )
    names = storage.listing(out)
    if MANIFEST not in names:
        # Files of a job that was interrupted during publication may be replaced.
        other = [name for name in names if not _DATASET_FILE.fullmatch(name)]
        if other:
            raise DataError(f"{out} holds {other[0]!r} and is not a vsemb dataset; choose another --out.")
        yield None
        return
    with tempfile.TemporaryDirectory() as folder, storage.reading(storage.join(out, MANIFEST)) as file:
        (Path(folder) / MANIFEST).write_bytes(file.read())
        try:
            yield Path(folder)
        except DataError as error:
            raise DataError(str(error).replace(folder, out)) from error


@contextlib.contextmanager
def _working(out: str, layout: Layout) -> Iterator[WorkArea | None]:
    """Lock the working folder beside the dataset; finished work is kept after any error."""
    if not storage.is_local(out):
        yield None
        return
    area = WorkArea(Path(out))
    with area.locked():
        if (area.root / "plan.json").exists():  # An interrupted `vsemb prepare` has other shards.
            area.clear()
        for folder in (layout.blocks, layout.reports, layout.dataset):
            Path(folder).mkdir(exist_ok=True)
        try:
            yield area
        except BaseException:
            if area.root.exists() and not any(Path(layout.blocks).glob("*.json")):
                area.remove()
            raise


def _finish(
    layout: Layout, area: WorkArea | None, described: dict[str, Any], source: Source, plan: dict[str, Any]
) -> None:
    """Write the remaining files of the dataset beside its shards."""
    reports: dict[str, list[str]] = {}
    for split, path in plan["shards"]:
        reports.setdefault(split, []).append(path)
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory())) if area is None else Path(layout.dataset)
        splits = {split: _finished(paths) for split, paths in reports.items()}
        write_index_and_manifest(folder, described, splits, plan["skipped"], plan["dropped"])
        manifest = read_json(folder / MANIFEST)
        wanted = {MANIFEST}
        for split in manifest["splits"].values():
            wanted |= {split["index"], *split["shards"]}
        if area is None:
            for file in sorted(folder.iterdir()):
                with storage.writing(storage.join(layout.dataset, file.name)) as temporary:
                    shutil.copyfile(file, temporary)
        # Shards of an earlier attempt with other bad images and another number of shards.
        stale = [name for name in storage.listing(layout.dataset) if name not in wanted]
        storage.remove([storage.join(layout.dataset, name) for name in stale])
    if area is not None:
        for path in list(area.dataset.iterdir()):
            if path.is_dir():  # Features of an interrupted attempt.
                shutil.rmtree(path)
        write_beside(StoredDataset.open(area.dataset), source)


def _finished(paths: list[str]) -> FinishedSplit:
    """Read the reports of a split's shards twice: first the counts, then the entries during writing."""
    heads = []
    counts: Counter[str] = Counter()
    for content in _contents(paths):
        heads.append((content["bytes"], content["sha256"]))
        counts.update(images=content["images"], captions=content["captions"])
    entries = (entry for content in _contents(paths) for entry in content["entries"])
    return FinishedSplit(counts["images"], counts["captions"], heads, entries)


def _contents(paths: list[str]) -> Iterator[dict[str, Any]]:
    """Read reports in parallel, because a store has high latency."""
    with ThreadPoolExecutor(_READERS) as pool:
        for start in range(0, len(paths), _READERS):
            yield from pool.map(storage.read_json, paths[start : start + _READERS])


def _publish(out: str, layout: Layout, area: WorkArea | None) -> None:
    if area is not None:
        area.publish()
        return
    there = storage.listing(out)
    if MANIFEST in there:
        storage.remove([storage.join(out, MANIFEST)])
    made = storage.listing(layout.dataset)
    storage.remove([storage.join(out, name) for name in there if name not in made and name != MANIFEST])
    for name in sorted(made, key=lambda name: name == MANIFEST):  # The manifest last.
        storage.move(storage.join(layout.dataset, name), storage.join(out, name))
    for folder in (layout.blocks, layout.reports):
        storage.remove([storage.join(folder, name) for name in storage.listing(folder)])
    storage.remove([layout.plan])
