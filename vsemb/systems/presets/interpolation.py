"""Interpolate between the weights of two runs, such as a pretrained model and its adaptation.

WiSE-FT: Wortsman et al. 2022, arXiv:2109.01903, equation 1.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import keras

from vsemb.errors import invalid_argument
from vsemb.files import replacing_directory, write_json
from vsemb.runs.run import BEST, METRICS, STATUS, Run, check_out
from vsemb.training.logs import LOGS
from vsemb.weights import save_weights


def interpolated_run(start: str | os.PathLike[str], run: str | os.PathLike[str], out: Path, share: float) -> Run:
    """Write a run with weights between the weights of two runs.

    Args:
        start: the run, or the name of a preset, with the share `1 - share`.
        run: the run with `share`; the new run is a copy of it.
        out: the new run directory.
        share: share of the weights of `run`, 0 to 1.

    Raises:
        DataError: if a run cannot be opened, or `out` exists.
        InvalidArgumentError: if both have other shapes or vocabularies.
    """
    check_out(out)
    first, second = Run.open(start), Run.open(run)
    shapes = [[tuple(weight.shape) for weight in each.model.weights] for each in (first, second)]
    if shapes[0] != shapes[1] or first.info["vocabulary"] != second.info["vocabulary"]:
        fix = "Name the model that the run was adapted from."
        raise invalid_argument("start", str(start), f"a run with the weights' shapes and vocabulary of {run}", fix)
    for old, new in zip(first.model.weights, second.model.weights, strict=True):
        new.assign(_between(old, new, share))
    with replacing_directory(out) as folder:
        left_out = shutil.ignore_patterns(Path(BEST).parent.name, LOGS, METRICS)
        shutil.copytree(second.path, folder, dirs_exist_ok=True, ignore=left_out)
        (folder / BEST).parent.mkdir()
        save_weights(second.model, folder / BEST)
        mixed = {"start": str(first.path), "run": str(second.path), "share": share}
        # The validation measured other weights.
        old_figures = ("best_", "kept_", "validation")
        kept = {name: value for name, value in second.info.items() if not name.startswith(old_figures)}
        write_json(folder / STATUS, {**kept, "interpolated": mixed})
    return Run.open(out)


def _between(old: keras.Variable, new: keras.Variable, share: float) -> object:
    if "float" not in keras.backend.standardize_dtype(new.dtype):
        return new.value
    return (1.0 - share) * old.value + share * new.value
