"""The run whose sentence vectors a language model is conditioned on, kept in the language model's own run."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from vsemb.errors import DataError
from vsemb.files import replacing_directory
from vsemb.runs.run import Run
from vsemb.runs.stored_presets import PRESETS
from vsemb.runs.stored_run import BACKBONE, BEST, RECIPE, STATUS, VOCABULARY

#: Its folder in the run directory.
ENCODER = "encoder"


def check_encoder(encoder: Run) -> None:
    """Refuses a run that does not embed any sentence and any image as one vector.

    Raises:
        DataError: if its vectors are sets, or it reads trees, the names of classes, or parts of words.
    """
    reason = None
    if encoder.multi_vector:
        reason = "embeds sentences as sets of words"
    elif encoder.reads_trees:
        reason = "reads dependency trees"
    elif encoder.recipe.text.tokenizer == "classes":
        reason = "reads names of classes"
    elif encoder.recipe.text.tokenizer != "words":
        # What is written, word by word, is scored by the encoder without joining it to a text.
        reason = "reads parts of words"
    if reason is not None:
        raise DataError(
            f"{encoder.path}, of the recipe {encoder.recipe.name!r}, {reason}; a language model "
            "wants one vector of each caption. Name a run of kiros2014 with --encoder."
        )


def keep_encoder(encoder: Run, out: Path) -> None:
    """Copies what a run needs to be opened, without its logs and the state of its training.

    Large files are linked where the file system can: training replaces them and never writes into them.

    Args:
        encoder: the run.
        out: the run directory of the language model; where an encoder is there already, nothing happens.

    Raises:
        DataError: if a file cannot be copied.
    """
    if (out / ENCODER).exists():
        return
    names = [RECIPE, STATUS, VOCABULARY, BEST]
    for part in (BACKBONE, PRESETS):
        files = (path for path in (encoder.path / part).rglob("*") if path.is_file())
        names += sorted(path.relative_to(encoder.path).as_posix() for path in files)
    try:
        with replacing_directory(out / ENCODER) as folder:
            for name in names:
                target = folder / name
                target.parent.mkdir(parents=True, exist_ok=True)
                _link(encoder.path / name, target)
    except OSError as error:
        raise DataError(f"{encoder.path} cannot be kept in {out}: {error.strerror or error}.") from error


def _link(source: Path, target: Path) -> None:
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)
