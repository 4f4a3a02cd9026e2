"""Embed image files and texts outside a dataset. An interrupted command resumes where it stopped."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from vsemb.console import progress
from vsemb.data.features.files import FeatureWriter
from vsemb.errors import DataError, VsembError, counted, printable, reason_of
from vsemb.evaluation import Embedder
from vsemb.files import read_json, refuse_foreign, replacing, require_regular, sha256_bytes, sha256_file, write_json
from vsemb.ops.tensorflow import tf
from vsemb.printing import facts
from vsemb.quantization import Precision, check_quantizable, dequantize, quantize
from vsemb.results import Result
from vsemb.runs.images import image_encoder, read_image_file
from vsemb.runs.inputs import check_vectors_path
from vsemb.runs.run import Run
from vsemb.unicode import has_surrogate

_IMAGES, _TEXTS = 64, 4096
# Columns of the stamps of files.
_STAMP = "bytes", "modified"
#: Embeddings (rows, dim) of consecutive rows, and a mask (rows,) of the valid rows.
Block = tuple[np.ndarray, np.ndarray]
#: Absolute path, size in bytes and modification time in nanoseconds of a file -> its embedding (dim,).
Known = Mapping[tuple[str, int, int], np.ndarray]


@dataclass(frozen=True, eq=False)
class Embedded:
    """Embeddings of image files or texts.

    Attributes:
        run: fingerprint of the run.
        names: n files or texts.
        embeddings: (n, dim) float32.
        fingerprint: hex digest of the files with their sizes and modification times, or of the texts.
        skipped: omitted file or text -> reason.
        stamps: (n, 2) int64, sizes in bytes and modification times in nanoseconds of the files; (n, 0) for texts.
        kept: number of embeddings that were already known.
    """

    run: str
    names: list[str]
    embeddings: np.ndarray
    fingerprint: str
    skipped: dict[str, str]
    stamps: np.ndarray
    kept: int

    def write(self, path: str | os.PathLike[str], kind: str, precision: Precision = "float32") -> None:
        """Write a `.parquet` file, or a `.npy` array with its row names beside it.

        A `.parquet` file has the columns `kind` and `embedding`, and `bytes` and `modified` of files. The row names of
        an array are in a JSON file of the same name. Both name the run, so that `known_in` can read them.

        Args:
            path: the file.
            kind: kind of the names, `image` or `text`.
            precision: precision of the embeddings, see `vsemb.quantization.quantize`.

        Raises:
            InvalidArgumentError: if the embeddings do not have the precision, or for another ending.
            DataError: if the file cannot be written.
        """
        made: dict[str, Any] = {"run": self.run, "folder": os.getcwd(), "precision": precision}
        embeddings = quantize(self.embeddings, precision)
        if check_vectors_path(path) == ".npy":
            with replacing(path) as temporary:
                with open(temporary, "wb") as file:
                    np.save(file, embeddings, allow_pickle=False)
                if self.stamps.size:
                    # `known_in` compares the digest, to detect an array that was changed or damaged after the names.
                    made = {**made, "sha256": sha256_file(temporary), "stamps": self.stamps.tolist()}
                # First, so that a kill leaves no array without names: such an array would be another program's.
                write_json(_names_of(path), {f"{kind}s": self.names, "skipped": self.skipped, **made})
            return
        import pyarrow
        from pyarrow import parquet

        flat = pyarrow.array(embeddings.ravel())
        vectors = pyarrow.FixedSizeListArray.from_arrays(flat, embeddings.shape[1])
        stamps = dict(zip(_STAMP, self.stamps.T, strict=False))
        table = pyarrow.table({kind: self.names, **stamps, "embedding": vectors}, metadata=made)
        with replacing(path) as temporary:
            parquet.write_table(table, temporary, write_page_checksum=True)


@dataclass(frozen=True, eq=False, repr=False)
class VectorFile(Result):
    """A file of vectors.

    Attributes:
        where: the file.
        kind: kind of its rows, `image` or `text`.
        items: number of rows.
        dim: size of a vector.
        precision: precision of the vectors.
        kept: number of vectors of unchanged image files.
        skipped: omitted file or text -> reason.
        blank_lines: numbers of the blank lines of a file of texts, from 1.
    """

    where: str
    kind: str
    items: int
    dim: int
    precision: Precision
    kept: int
    skipped: Mapping[str, str]
    blank_lines: tuple[int, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        counts = {
            "items": self.items,
            "kept": self.kept,
            "kind": self.kind,
            "dim": self.dim,
            "precision": self.precision,
        }
        return {**counts, "skipped": dict(self.skipped), "blank_lines": list(self.blank_lines)}

    def __str__(self) -> str:
        kept = {"kept": f"{self.kept:,} unchanged"} if self.kept else {}
        items = {"items": counted(self.items, self.kind)}
        return facts({**items, **kept, "dim": self.dim, "precision": self.precision, "where": self.where})


def write_vectors(
    run: Run,
    kind: str,
    names: Sequence[str],
    out: str | os.PathLike[str],
    blank_lines: Sequence[int] = (),
    precision: Precision = "float32",
) -> VectorFile:
    """Embed image files or texts into a file of vectors.

    Args:
        run: a run with one vector per item.
        kind: `image` for image files, `text` for texts.
        names: the files or texts.
        out: the file, `.npy` or `.parquet`.
        blank_lines: numbers of the blank lines of the file of texts, for the result.
        precision: precision of the vectors.

    Raises:
        InvalidArgumentError: as `check_quantizable`, or if `out` is an existing file of anything else than vectors of
            this kind.
        DataError: as `embed_files` and `embed_lines`.
    """
    check_quantizable(precision, run.recipe.similarity, run.embedding_dim)
    for file in (out, _names_of(out)):
        refuse_foreign(file, lambda _: _is_ours(out, kind))
    if kind == "image":
        embedded = embed_files(run, names, out, known_in(run, out, precision))
    else:
        embedded = embed_lines(run, names, out)
    embedded.write(out, kind, precision)
    discard_work(out)
    count, dim = embedded.embeddings.shape
    return VectorFile(os.fspath(out), kind, count, dim, precision, embedded.kept, embedded.skipped, tuple(blank_lines))


def embed_files(
    run: Run,
    files: Sequence[str],
    out: str | os.PathLike[str],
    known: Known = MappingProxyType({}),
    contents: Mapping[str, np.ndarray] = MappingProxyType({}),
) -> Embedded:
    """Embed image files; unreadable files are omitted.

    Args:
        run: a run with one vector per image.
        files: paths of images in any format that a dataset accepts.
        out: path of the final output. The work folder `.NAME.partial` lies beside it until all images are embedded.
            After an interruption, the same call resumes.
        known: embeddings by the same run, from `known_in`. A file in it is not read.
        contents: hex SHA-256 of an image as a dataset stores it -> its embedding by the same run. Files with such a
            digest are read, but not embedded.

    Raises:
        DataError: if no image can be read, the run does not embed images, or a file cannot be written.
    """
    encode = image_encoder(run)

    def blocks(files: Sequence[str]) -> Iterator[Block]:
        batches = [files[first : first + _IMAGES] for first in range(0, len(files), _IMAGES)]
        with ThreadPoolExecutor() as pool:
            reading = pool.map(_readable, batches[0])
            for following in [*batches[1:], []]:
                encoded = [data for data, _ in reading]
                reading = pool.map(_readable, following)
                found = [contents.get(sha256_bytes(data)) if contents else None for data in encoded]
                new = [data for data, embedding in zip(encoded, found, strict=True) if embedding is None]
                outputs = encode(image_bytes=tf.constant(new, tf.string))
                rows = zip(outputs["embedding"].numpy(), outputs["valid"].numpy(), strict=True)
                pairs = [next(rows) if embedding is None else (embedding, True) for embedding in found]
                embeddings, valid = zip(*pairs, strict=True)
                yield np.array(embeddings), np.array(valid)

    def reason(file: str) -> str:
        return _readable(file)[1] or "not a JPEG or PNG"

    stamps = [file_stamp(file) for file in files]
    kept = [known.get((os.path.abspath(file), *stamp)) for file, stamp in zip(files, stamps, strict=True)]
    return _embedded(run, files, stamps, kept, out, "image", blocks, reason)


def embed_lines(run: Run, texts: Sequence[str], out: str | os.PathLike[str]) -> Embedded:
    """Embed texts; texts without a known word are omitted.

    Args:
        run: a run with one vector per text.
        texts: the texts.
        out: see `embed_files`.

    Raises:
        DataError: if no text has a known word, a text cannot be parsed, or a file cannot be written.
    """
    embedder, tokenizer = Embedder(run.model), run.tokenizer

    def blocks(texts: Sequence[str]) -> Iterator[Block]:
        for first in range(0, len(texts), _TEXTS):
            ids, offsets = run.encode(list(texts[first : first + _TEXTS]))
            known = np.append(0, np.cumsum(tokenizer.is_known(ids)))[offsets]
            yield embedder.texts(ids, offsets), np.diff(known) > 0

    unit, _ = tokenizer.unit
    nothing = [()] * len(texts), [None] * len(texts)
    return _embedded(run, texts, *nothing, out, "text", blocks, lambda text: f"no known {unit}")


def _readable(file: str) -> tuple[bytes, str]:
    """Return an image's bytes as a dataset would store them; for an unreadable file, empty bytes and the reason."""
    if has_surrogate(file):  # No index or file of vectors can hold such a name.
        return b"", "its name is not UTF-8; rename the file"
    try:
        return read_image_file(file, None).encoded, ""
    except DataError as error:
        # Keep the cause, without the name of the file.
        return b"", reason_of(error.__cause__)


def known_files(folder: str | os.PathLike[str], names: Sequence[str], stamps: Any, embeddings: np.ndarray) -> Known:
    """Return the embeddings of files, for `embed_files`.

    Args:
        folder: working directory of the names.
        names: n paths.
        stamps: (n, 2) ints, see `Embedded`.
        embeddings: (n, dim) float32.
    """
    paths = [os.path.abspath(Path(folder) / name) for name in names]
    return {(path, *stamp): row for path, stamp, row in zip(paths, np.array(stamps).tolist(), embeddings, strict=True)}


def known_in(run: Run, path: str | os.PathLike[str], precision: Precision = "float32") -> Known:
    """Return the embeddings of image files in a file of vectors that `Embedded.write` wrote.

    Args:
        run: the run. Vectors of another run are not returned.
        path: the file. If it is missing, or has no images, or was changed since, nothing is returned.
        precision: precision in which the embeddings are needed. Others than it and float32 are not returned.
    """
    try:
        if check_vectors_path(path) == ".npy":
            made = read_json(_names_of(path))
            names, stamps = made["images"], made["stamps"]
            embeddings = np.load(require_regular(path), mmap_mode="r", allow_pickle=False)
            fresh = made["sha256"] == sha256_file(path)
        else:
            from pyarrow import parquet

            table = parquet.read_table(require_regular(path), page_checksum_verification=True)
            names, fresh = table["image"].to_pylist(), True
            stamps = np.stack([table[name].to_numpy() for name in _STAMP], axis=1)
            embeddings = table["embedding"].combine_chunks().flatten().to_numpy().reshape(len(names), -1)
            made = {key.decode(): value.decode() for key, value in table.schema.metadata.items()}
        usable = fresh and made["run"] == run.fingerprint and made["precision"] in ("float32", precision)
        # Quantizing again gives the same codes.
        return known_files(made["folder"], names, stamps, dequantize(embeddings)) if usable else {}
    except (OSError, VsembError, AttributeError, KeyError, TypeError, ValueError):
        return {}


def _names_of(path: str | os.PathLike[str]) -> Path:
    """Return the file of the row names of vectors: beside a .npy file, or the .parquet file itself."""
    return Path(path).with_suffix(".json") if check_vectors_path(path) == ".npy" else Path(path)


def _is_ours(path: str | os.PathLike[str], kind: str) -> bool:
    """Return whether a file holds vectors of `kind` that `Embedded.write` wrote."""
    try:
        if check_vectors_path(path) == ".npy":
            return {"run", "precision", f"{kind}s"} <= set(read_json(_names_of(path)))
        from pyarrow import parquet

        schema = parquet.read_schema(path)
        return {b"run", b"precision"} <= set(schema.metadata or {}) and kind in schema.names
    except (OSError, VsembError, TypeError, ValueError):  # pyarrow's errors are ValueErrors.
        return False


def file_stamp(file: str | os.PathLike[str]) -> tuple[int, int]:
    """Return the size in bytes and the modification time in nanoseconds of a file; zeros if it is missing."""
    try:
        status = os.stat(file)
    except (OSError, ValueError):  # The name has a null character.
        return 0, 0
    return status.st_size, status.st_mtime_ns


def _embedded(
    run: Run,
    names: Sequence[str],
    stamps: Sequence[tuple[int, ...]],
    known: Sequence[np.ndarray | None],
    out: str | os.PathLike[str],
    kind: str,
    blocks: Callable[[Sequence[str]], Iterator[Block]],
    reason: Callable[[str], str],
) -> Embedded:
    new = [row for row, embedding in enumerate(known) if embedding is None]
    missing = [names[row] for row in new]
    rows = np.arange(len(new), dtype=np.int64)
    states = [[name, *stamp] for name, stamp in zip(names, stamps, strict=True)]
    made_of: dict[str, Any] = {"run": run.fingerprint, kind: _digest([states[row] for row in new])}
    with FeatureWriter(Path(out), rows, (run.embedding_dim,), made_of, beside={"valid": ()}) as writer:
        with progress(total=len(new), initial=writer.done, desc=f"{kind}s", unit=kind) as bar:
            for vectors, valid in blocks(missing[writer.done :]) if writer.done < len(new) else ():
                writer.write(rows[writer.done : writer.done + len(vectors)], vectors, valid=valid)
                bar.update(len(vectors))
        writer.commit()
        valid = writer.array("valid") > 0
        computed = np.array(writer.array("features"))
    embeddings = {**dict(enumerate(known)), **dict(zip(new, computed, strict=True))}
    skipped = {name: reason(name) for name, embedded in zip(missing, valid, strict=True) if not embedded}
    kept = [row for row, name in enumerate(names) if name not in skipped]
    if not kept:
        discard_work(out)
        name, why = next(iter(skipped.items()))
        raise DataError(f"None of {len(names):,} {kind}s can be embedded. The first, {printable(name)}: {why}")
    return Embedded(
        run.fingerprint,
        [names[row] for row in kept],
        np.array([embeddings[row] for row in kept], np.float32),
        _digest(states),
        {printable(name): why for name, why in skipped.items()},
        np.array([stamps[row] for row in kept], np.int64),
        len(names) - len(new),
    )


def files_fingerprint(files: Sequence[str]) -> str:
    """Return the hex digest of files with their sizes and modification times, as in `Embedded`."""
    return _digest([[file, *file_stamp(file)] for file in files])


def _digest(states: list[Any]) -> str:
    return sha256_bytes(json.dumps(states).encode())


def discard_work(out: str | os.PathLike[str]) -> None:
    """Remove the work folder of `embed_files` and `embed_lines`, after the output is written."""
    shutil.rmtree(Path(out).parent / f".{Path(out).name}.partial", ignore_errors=True)
