"""A directory of converted towers, checked before it is published.

The directory holds the towers `image.onnx` and `text.onnx`, or `image.tflite` and `text.tflite`. `model.json` has facts
about their inputs and outputs. `tokenizer.json` is read by the library tokenizers. `encode.py` is a program that embeds
texts and image files with these files. `README.md` is the model card.
"""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from vsemb.console import progress
from vsemb.errors import DataError, VsembError, invalid_argument, one_line
from vsemb.exporting.formats import encode
from vsemb.exporting.formats.towers import TOWERS, Tower
from vsemb.exporting.reference_outputs import Arrays, compare
from vsemb.exporting.signatures import Exportable
from vsemb.files import replacing_directory, sha256_file, write_json, write_text
from vsemb.ops.tensorflow import tf

#: Name of the file of facts, and the formats that it names.
FACTS, FORMAT, VERSION = "model.json", "vsemb-towers", 1

#: Maximum difference of an output from the model's, relative to the largest entry (1 for unit vectors).
TOLERANCE = 1e-4


@dataclass(frozen=True)
class Conversion:
    """A conversion of towers to files.

    Attributes:
        name: name of the format, for messages.
        ending: ending of its files.
        convert: function that writes a tower to a file; it raises any exception.
        fixed: whether a file takes one row of a fixed number of steps.
        tolerance: maximum difference of an output from the model's, relative to the largest entry.
        limits: sentences for the model card.
    """

    name: str
    ending: str
    convert: Callable[[Tower, Path], None]
    fixed: bool = False
    tolerance: float = TOLERANCE
    limits: tuple[str, ...] = ()


def export_towers(
    served: Exportable,
    out: str | os.PathLike[str],
    conversion: Conversion,
    *,
    only: str | None = None,
    facts: Mapping[str, Any] | None = None,
    card: Callable[[Mapping[str, Any]], str] = lambda facts: "",
) -> dict[str, Any]:
    """Write the towers of a model into a directory, atomically.

    Each file is opened by its runtime and compared with the model before the directory takes its place.

    Args:
        served: the model.
        out: the directory; it must not exist, or be empty.
        conversion: the conversion.
        only: name of the only tower to write; None for all.
        facts: further JSON values for `model.json`.
        card: function from the facts to the model card.

    Returns:
        The content of `model.json`.

    Raises:
        InvalidArgumentError: for a model without towers, or without the tower `only`.
        DataError: if no tower exists, one cannot be converted, or its outputs differ; nothing is written.
    """
    if not served.towers:
        raise invalid_argument("format", conversion.name, "savedmodel for a run without embeddings")
    chosen = _chosen(served.towers, only)
    absent = {name: reason for name, reason in served.towers.items() if isinstance(reason, str)}
    with replacing_directory(out) as folder:
        towers = {}
        for tower in progress(chosen, desc="export", unit="tower", leave=False):
            path = folder / f"{tower.name}{conversion.ending}"
            towers[tower.name] = _written(tower, path, conversion)
        about: dict[str, Any] = {
            "format": FORMAT,
            "version": VERSION,
            **(facts or {}),
            **served.promises,
            "towers": towers,
            "absent": absent if only is None else {},
            **{tower.name: dict(tower.facts) for tower in chosen},
        }
        for tower in chosen:
            for name, content in tower.files().items():
                write_text(folder / name, content)
        shutil.copyfile(encode.__file__, folder / "encode.py")
        about["sha256"] = {path.name: sha256_file(path) for path in sorted(folder.iterdir())}
        write_json(folder / FACTS, about)
        write_text(folder / "README.md", card(about))
    return about


def _chosen(offered: Mapping[str, Tower | str], only: str | None) -> list[Tower]:
    towers = [offered[name] for name in TOWERS if only in (None, name)]
    chosen = [tower for tower in towers if isinstance(tower, Tower)]
    if only is not None and not chosen:
        other = next(name for name in TOWERS if name != only)
        raise invalid_argument("tower", only, other, f"The {only} tower is missing: {offered[only]}.")
    if not chosen:
        reasons = "; ".join(f"none for {name}: {reason}" for name, reason in offered.items())
        raise DataError(f"The model must have a tower for images or texts; it has {reasons}. Export a SavedModel.")
    return chosen


def _written(tower: Tower, path: Path, conversion: Conversion) -> dict[str, Any]:
    """Convert a tower and compare it with the model; return its entry in `model.json`."""
    logger = tf.get_logger()
    level = logger.level
    # Conversion traces and saves, with warnings about tables of the tokenizer, which no tower needs.
    logger.setLevel(logging.ERROR)
    try:
        conversion.convert(tower, path)
        function = encode.RUNTIMES[conversion.ending](path)
        difference = _compared(tower, function, conversion)
    except VsembError:
        raise
    except Exception as error:  # Converters and runtimes raise many types.
        other = next(name for name in TOWERS if name != tower.name)
        raise DataError(
            f"The {tower.name} tower must consist of operations that {conversion.name} has; it does not: "
            f"{one_line(error, 200)} Nothing was written. Choose another format, or tower={other}."
        ) from error
    finally:
        logger.setLevel(level)
    outputs = function(tower.examples()[:1])
    open_batch = None if not conversion.fixed else 1
    return {
        "file": path.name,
        "bytes": path.stat().st_size,
        "input": {
            "name": tower.spec.name,
            "dtype": tower.spec.dtype.name,
            "shape": tower.shape(open_batch, conversion.fixed),
        },
        "outputs": {
            name: {"dtype": values.dtype.name, "shape": [open_batch, *values.shape[1:]]}
            for name, values in outputs.items()
        },
        "difference": difference,
    }


def _compared(tower: Tower, function: Callable[[np.ndarray], Arrays], conversion: Conversion) -> float:
    """Compare golden rows, all at once and each alone; return the largest difference.

    Raises:
        DataError: if an output differs by more than the tolerance.
    """
    rows = tower.examples()
    wanted, largest = tower.outputs(rows), 0.0
    batches = [slice(None), *(slice(row, row + 1) for row in range(len(rows)))]
    for batch in batches:
        difference, problem = compare(
            {name: values[batch] for name, values in wanted.items()}, function(rows[batch]), conversion.tolerance
        )
        if problem:
            raise DataError(
                f"The {tower.name} tower must give the same in {conversion.name} as in the model; it {problem}. "
                "Nothing was written."
            )
        largest = max(largest, difference)
    return largest
