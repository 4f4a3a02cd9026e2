"""The act on repositories: `vsemb.push`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from vsemb.acts import act
from vsemb.errors import invalid_argument
from vsemb.runs.inputs import model_version, named_run

if TYPE_CHECKING:
    from vsemb.runs.run import Run
    from vsemb.runs.sharing import Pushed


@act
def push(
    source: Run | str | os.PathLike[str],
    repository: str,
    *,
    private: bool = False,
    licence: str | None = None,
    measure: str | None = None,
) -> Pushed:
    """Upload a run or an exported model to the Hugging Face Hub, with a model card.

    `vsemb.load("hf://USER/NAME")` opens it anywhere, and so does every command that takes a run. Of a run, the selected
    weights are uploaded, and what is needed to open it: no images, captions, logs or paths. Sign in with
    `hf auth login`, or set HF_TOKEN.

    Args:
        source: a run, its directory, or the directory of an exported model.
        repository: hf://USER/NAME. It is made if it does not exist.
        private: make a new repository private.
        licence: identifier of the licence for the card, such as cc-by-4.0.
        measure: split of the training data, for a run; the card also gives its recalls, with 95 % intervals.

    Returns:
        The address of the repository.

    Raises:
        DataError: if the directory is neither, for a run that cannot be exported, or if the upload fails.
        MissingExtraError: without the extra hf.

    Example:

        vsemb.push("runs/mine", "hf://somebody/photos", licence="cc-by-4.0", measure="test")
        model = vsemb.load("hf://somebody/photos")
    """
    from vsemb.runs.measure import figures
    from vsemb.runs.run import Run
    from vsemb.runs.sharing import push_model, push_run, repository_of

    repository_of(repository)
    if not isinstance(source, Run):
        source = named_run(source) or Path(source)
    version = None if isinstance(source, Run) else model_version(source)
    if version is not None:
        if measure is not None:
            raise invalid_argument("measure", measure, "omitted for an exported model, whose card is made at export")
        return push_model(version, repository, private=private, licence=licence)
    run = Run.open(source, None if measure is None else "retrieval")
    measured = [] if measure is None else [figures(run, run.open_data(), measure)]
    return push_run(run, repository, private=private, licence=licence, measured=measured)
