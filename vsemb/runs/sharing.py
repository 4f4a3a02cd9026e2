"""Runs and exported models in repositories of the Hugging Face Hub: `vsemb push`, and `vsemb.load("hf://USER/NAME")`.

A repository holds what a run needs to be opened, or the newest version of an exported model, and a model card as
README.md. Checkpoints of other libraries are `vsemb.systems.presets.checkpoints`.
"""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from vsemb.console import say
from vsemb.errors import DataError, invalid_argument, needs_extra, one_line
from vsemb.exporting.card import Figures, run_card, version_card_path
from vsemb.exporting.costs import costs
from vsemb.files import cache_directory, read_text, write_json, write_text
from vsemb.results import Result
from vsemb.runs.inputs import kind_of
from vsemb.runs.run import BEST, METRICS, RECIPE, STATUS, VOCABULARY, Run
from vsemb.runs.serve import model_facts

HANDLE = "hf://"
CARD = "README.md"
_MODEL = "saved_model.pb"


@dataclass(frozen=True, repr=False)
class Pushed(Result):
    """A repository that a run or model was uploaded to.

    Attributes:
        url: its address.
        handle: its name, which stands for what was uploaded.
        files: number of files.
    """

    url: str
    handle: str
    files: int

    def to_json(self) -> dict[str, Any]:
        """Return the address, the name and the number of files."""
        return {"url": self.url, "handle": self.handle, "files": self.files}

    def __str__(self) -> str:
        return f"{self.files} files are now in {self.url}\nnext         vsemb info {self.handle}"


def repository_of(handle: str, argument: str = "repository") -> str:
    """Return USER/NAME of `hf://USER/NAME`.

    Raises:
        InvalidArgumentError: for another name.

    Example:

    >>> repository_of("hf://somebody/photos")
    'somebody/photos'
    """
    # Without names such as `..`, since the name is a folder of the cache, too.
    if not re.fullmatch(rf"{HANDLE}\w[\w.-]*/\w[\w.-]*", handle):
        raise invalid_argument(argument, handle, f"{HANDLE}USER/NAME")
    return handle.removeprefix(HANDLE)


def pulled(handle: str) -> Path | None:
    """Download a run or an exported model that `vsemb push` uploaded.

    If the repository cannot be read, the files of the last download are used, with a notice.

    Args:
        handle: `hf://USER/NAME`.

    Returns:
        The directory in the cache; None for a repository with something else, or one that cannot be read.

    Raises:
        DataError: if the download fails.
        MissingExtraError: without huggingface_hub.
    """
    name, hub = repository_of(handle, "source"), _hub()
    folder = cache_directory() / "repositories" / name
    try:
        files = hub.list_repo_files(name)
    except Exception as error:  # The library and its HTTP client raise many types.
        if kind_of(folder) is None:
            return None
        say(f"Cannot read {handle} ({one_line(error, 120)}). The files of the last download are used.")
        return folder
    if RECIPE not in files and not any(Path(file).name == _MODEL for file in files):
        return None
    with _talking(f"Cannot download {handle}"):
        hub.snapshot_download(name, local_dir=folder)
    return folder


def push_run(
    run: Run, repository: str, *, private: bool = False, licence: str | None = None, measured: Sequence[Figures] = ()
) -> Pushed:
    """Upload what a run needs to be opened.

    Its logs, indexes, training state and the path of its data stay here.

    Args:
        run: the run.
        repository: `hf://USER/NAME`.
        private: whether a new repository is private.
        licence: identifier of the licence for the card, such as `cc-by-4.0`.
        measured: figures for the card, see `vsemb.runs.measure.figures`.

    Raises:
        DataError: for a run that cannot be exported, or if the upload fails.
    """
    served = run.recipe.served(run)
    examples = {signature.name: signature.examples() for signature in served.offered}
    spent = costs(served.functions, examples, (run.path / run.weights).stat().st_size)
    facts = replace(model_facts(run, measured), costs=spent, licence=licence or "")
    # Of every task; `vsemb.load` opens models that embed.
    usage = f"import vsemb\n\nrun = vsemb.Run.open({repository!r})"
    versions = run.info.get("versions", {})
    title = repository_of(repository).rpartition("/")[2]
    card = run_card(title, usage, served.about, facts, run.fingerprint, versions)
    with tempfile.TemporaryDirectory(prefix="vsemb-push-") as temporary:
        folder = Path(temporary) / "run"
        (folder / BEST).parent.mkdir(parents=True)
        shutil.copyfile(run.path / run.weights, folder / BEST)
        # Nothing that somebody else put into the directory.
        inner_runs = {path.parent.name for path in run.path.glob(f"*/{RECIPE}")}
        own = {RECIPE, VOCABULARY, METRICS, *(Path(name).parts[0] for name in run.info.get("files", ())), *inner_runs}
        for path in (run.path / name for name in sorted(own)):
            if path.is_dir():
                shutil.copytree(path, folder / path.name)
            elif path.is_file():
                shutil.copyfile(path, folder / path.name)
        # Other epochs and the data are not uploaded.
        info = {name: value for name, value in run.info.items() if name != "kept_epochs"}
        write_json(folder / STATUS, info | {"data": None})
        write_text(folder / CARD, _front_matter(title, run.recipe.kind, licence, facts.figures) + card)
        return _upload(folder, repository, private)


def push_model(path: Path, repository: str, *, private: bool = False, licence: str | None = None) -> Pushed:
    """Upload a version of an exported model, with its contract and card.

    Args:
        path: directory of the version.
        repository: `hf://USER/NAME`.
        private: whether a new repository is private.
        licence: as in `push_run`.

    Raises:
        DataError: if the upload fails, or the model has no card.
    """
    card = read_text(version_card_path(path))
    with tempfile.TemporaryDirectory(prefix="vsemb-push-") as temporary:
        folder = Path(temporary) / "model"
        shutil.copytree(path, folder / path.name)
        title = repository_of(repository).rpartition("/")[2]
        write_text(folder / CARD, _front_matter(title, "SavedModel", licence, ()) + card)
        return _upload(folder, repository, private)


def _front_matter(name: str, kind: str, licence: str | None, figures: Sequence[Figures]) -> str:
    """Return the head of a card in the form of the Hub, with the figures as `model-index`."""
    hub = _library()
    results = [
        hub.EvalResult(
            task_type=kind,
            dataset_type=each.of,  # Results of one type become one.
            dataset_name=each.of,
            metric_type=name,
            metric_value=round(value, 4),
        )
        for each in figures
        for name, value in each.values.items()
    ]
    data = hub.ModelCardData(
        library_name="vsemb",
        license=licence,
        tags=["vsemb", "keras", kind],
        model_name=name,
        eval_results=results or None,
    )
    return f"---\n{data.to_yaml()}\n---\n\n"


def _upload(folder: Path, repository: str, private: bool) -> Pushed:
    name, hub = repository_of(repository), _hub()
    with _talking(f"Cannot upload to {repository}"):
        hub.create_repo(name, private=private, exist_ok=True)
        url = hub.upload_folder(repo_id=name, folder_path=folder, commit_message="Upload by vsemb push").repo_url
    return Pushed(str(url), repository, sum(1 for file in folder.rglob("*") if file.is_file()))


@contextmanager
def _talking(what: str) -> Iterator[None]:
    """Convert any error of the Hub to one line.

    Raises:
        DataError: for any error inside.
    """
    try:
        yield
    except Exception as error:  # The library and its HTTP client raise many types.
        fix = "Sign in with `hf auth login`, or set HF_TOKEN."
        raise DataError(f"{what} ({one_line(error, 200)}). {fix}") from error


def _library() -> Any:
    with needs_extra("huggingface_hub", "hf"):
        import huggingface_hub
    return huggingface_hub


def _hub() -> Any:
    return _library().HfApi(library_name="vsemb")
