"""Token ids of a split's captions: computed once per dataset and tokenizer, memory-mapped afterwards."""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import numpy as np

from vsemb.console import progress, say
from vsemb.data.columns import Column
from vsemb.data.store import Split
from vsemb.errors import DataError, one_line
from vsemb.files import find_damaged, read_json, replacing_directory, sha256_file, write_json
from vsemb.ops.tensorflow import tf
from vsemb.text.tokenizers import Tokenizer

# Fewer captions than this are tokenized in memory, which takes seconds.
_MANY = 200_000
_BLOCK, _SAMPLE = 16_384, 4096
_FILES = "ids", "offsets.npy"
# Rules of reading texts that ids of an earlier version did not follow, and that a sample may not show.
_RULES = "NFC"


def encoded_captions(split: Split, tokenizer: Tokenizer) -> tuple[np.ndarray, np.ndarray]:
    """Return the token ids of a split's captions, as `Tokenizer.encode` does.

    From 200,000 captions on, the ids are written to the folder `tokens` of the dataset in bounded memory. This and
    later runs memory-map them. A read-only dataset uses temporary files. The name of the files is a hash of the
    dataset, the captions, and the tokenizer's class, vocabulary, maximum length and ids of 4,096 sampled captions.
    The sample makes other settings of the tokenizer change the hash.

    Args:
        split: the split.
        tokenizer: the tokenizer.

    Returns:
        ids: (tokens,) + `token_shape` int32.
        offsets: (captions + 1,) int64.

    Example:

        ids, offsets = encoded_captions(dataset.split("train"), tokenizer)
    """
    texts = split.captions
    if len(texts) < _MANY or split.dataset is None or not isinstance(texts, Column):
        return tokenizer.encode(texts)
    folder = split.dataset.path / "tokens" / _fingerprint(split, texts, tokenizer)
    try:
        if not _is_whole(folder):
            with replacing_directory(folder, overwrite=True) as temporary:
                _write(temporary, split, texts, tokenizer)
    except DataError as error:
        say(f"warning: token ids are not kept for later runs. {error}")
        with tempfile.TemporaryDirectory() as name:
            _write(Path(name), split, texts, tokenizer)
            return _mapped(Path(name), tokenizer)  # The files exist as long as they are mapped.
    return _mapped(folder, tokenizer)


def _mapped(folder: Path, tokenizer: Tokenizer) -> tuple[np.ndarray, np.ndarray]:
    ids = np.memmap(folder / "ids", np.int32, "r").reshape(-1, *tokenizer.token_shape)
    return ids, np.load(folder / "offsets.npy", mmap_mode="r", allow_pickle=False)


def _fingerprint(split: Split, texts: Column, tokenizer: Tokenizer) -> str:
    assert split.dataset is not None
    sample = np.linspace(0, len(texts) - 1, min(len(texts), _SAMPLE)).astype(np.int64)
    ids, offsets = tokenizer.encode(texts[sample])
    data = [split.dataset.fingerprint, split.name]
    name = f"{type(tokenizer).__module__}.{type(tokenizer).__qualname__}"
    settings = [name, tokenizer.max_length, list(tokenizer.vocabulary.words), _RULES]
    digest = hashlib.sha256(json.dumps([*data, *settings]).encode())
    for array in (ids, offsets, texts.places):
        if array is not None:
            digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()[:16]


def _is_whole(folder: Path) -> bool:
    """Return whether the files are those that were written; damaged ones are named."""
    if not folder.exists():
        return False
    try:
        stored = read_json(folder / "manifest.json")["sha256"]
        damaged = find_damaged(folder, {name: stored[name] for name in _FILES})
    except (DataError, KeyError, TypeError) as error:
        damaged = f"manifest.json ({one_line(error, 100)})"
    if damaged is not None:
        say(f"warning: token ids in {folder} are damaged and made again: {damaged} is not what was written.")
    return damaged is None


def _write(folder: Path, split: Split, texts: Column, tokenizer: Tokenizer) -> None:
    end = np.zeros(1, np.int64)
    with (
        open(folder / "ids", "wb") as file,
        # Write the file instead of mapping it: on a full disk, a write to a mapped file kills the process.
        open(folder / "offsets.npy", "wb") as offsets,
        progress(desc=f"tokens of {split.name}", total=len(texts), unit="caption") as bar,
    ):
        header = {"descr": "<i8", "fortran_order": False, "shape": (len(texts) + 1,)}
        np.lib.format.write_array_header_1_0(offsets, header)
        offsets.write(end.data)
        for ids, lengths in _tokenized(texts, tokenizer):
            file.write(np.ascontiguousarray(ids).data)
            ends = end + np.cumsum(lengths, dtype=np.int64)
            offsets.write(ends.data)
            end = ends[-1:]
            bar.update(len(lengths))
    write_json(folder / "manifest.json", {"sha256": {name: sha256_file(folder / name) for name in _FILES}})


def _tokenized(texts: Column, tokenizer: Tokenizer) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield ids and lengths of blocks of texts in order; one thread per processor tokenizes them."""

    def block(start: int) -> tuple[np.ndarray, np.ndarray]:
        ragged = tokenizer.ragged(tf.constant(texts[start : start + _BLOCK], tf.string))
        return ragged.flat_values.numpy(), ragged.row_lengths().numpy()

    workers = os.cpu_count() or 1
    waiting: deque[Future[tuple[np.ndarray, np.ndarray]]] = deque()
    with ThreadPoolExecutor(workers) as pool:
        for start in range(0, len(texts), _BLOCK):
            waiting.append(pool.submit(block, start))
            if len(waiting) > 2 * workers:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
