"""Create, resume and open run directories: a trained recipe with its vocabulary, weights and backbone.

    RUN/
        recipe.json                    the complete recipe
        run.json                       dataset, features, versions, status, selected epoch
        vocabulary.txt                 one token per line; the line number is the id
        metrics.jsonl                  one line per epoch
        logs/                          logs for TensorBoard
        checkpoints/best.weights.h5    weights selected on validation
        checkpoints/epoch-N.weights.h5 weights of several best epochs, with training.keep above 1
        checkpoints/state.npz          training state for resuming
        checkpoints/lock               empty; locked while a process trains the run
        backbone/                      configuration and weights of the feature backbone, so that the run can embed
                                       images without the training dataset
        presets/                       files of keras-hub presets that the towers read, without weights

Parts of systems store further files there, such as `parser/` for dependency trees.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from importlib.metadata import version
from operator import methodcaller
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, cast

import keras
import numpy as np

from vsemb import registry
from vsemb.console import say
from vsemb.data.sources import ImageSource
from vsemb.data.store import Split, StoredDataset
from vsemb.data.tokens import encoded_captions
from vsemb.errors import DataError, VsembError, invalid_argument, one_line, unknown_name
from vsemb.files import read_json, replacing_directory, require_contained, sha256_bytes, sha256_file, write_json
from vsemb.ops.backend import outside_graphs
from vsemb.parts import rebuilt, walk
from vsemb.recipes.info import RunInfo, mistyped, untyped
from vsemb.recipes.schema import Recipe
from vsemb.results import Result
from vsemb.runs.inputs import named_run
from vsemb.tables import html_table
from vsemb.text.coverage import Coverage, coverage
from vsemb.text.tokenizers import TextReader, Tokenizer
from vsemb.text.vocabulary import Vocabulary
from vsemb.training.callbacks import kept_weights
from vsemb.weights import load_weights

if TYPE_CHECKING:
    from vsemb.exporting.served_inputs import ImageInput
    from vsemb.exporting.served_model import ServedModel

RECIPE, STATUS, VOCABULARY, METRICS = "recipe.json", "run.json", "vocabulary.txt", "metrics.jsonl"
BEST, STATE = "checkpoints/best.weights.h5", "checkpoints/state.npz"
#: Required fields of every `run.json`.
FIELDS = ("dataset", "data", "vocabulary", "status")
# `auto` is only for training, which resolves it at the start, because results of a run must not depend on the machine.
_PRECISIONS = ("float32", "mixed_bfloat16")


def read_recipe(path: Path) -> Recipe:
    """Return the recipe of a run directory.

    Raises:
        DataError: if it is not a run directory.
    """
    if not (path / RECIPE).exists():
        raise DataError(f"{path} must be a run directory; it has no {RECIPE}. Make one with: vsemb train")
    try:
        return Recipe.from_json(read_json(path / RECIPE, "recipe"))
    except DataError as error:
        raise DataError(f"{path} cannot be opened. {error}") from error


def read_status(path: Path, needed: Collection[str]) -> dict[str, Any]:
    """Return the contents of `run.json` in a run directory.

    Raises:
        DataError: if a field of `needed` is missing, or a field has another type than in `RunInfo`.
    """
    info = read_json(path / STATUS, "run status")
    if lacking := set(needed) - set(info if isinstance(info, dict) else ()):
        raise DataError(f"{path / STATUS} must be the status of a run; it lacks {', '.join(sorted(lacking))}.")
    if wrong := mistyped(info):
        raise DataError(f"{path / STATUS} must be the status of a run; {', '.join(wrong)} is damaged. Restore it.")
    return info


def _require_task(recipe: Recipe, path: Path, task: str | None) -> None:
    if task is not None and not isinstance(recipe, registry.find_part("task", task, "task")):
        raise DataError(
            f"{path} must be a run for {task}; it was trained with the recipe {recipe.name!r}, which is for "
            f"{recipe.kind}."
        )


@dataclass(frozen=True)
class Run(Result):
    """A trained recipe of any task.

    Attributes:
        path: the run directory.
        recipe: the trained recipe.
        info: contents of `run.json`.
        weights: the file of the weights in the run directory.

    Example:

        run = Run.open("runs/vsepp")
        embeddings = run.model.encode_texts(run.tokenizer(["a dog on a beach"]))
    """

    path: Path
    recipe: Any
    info: RunInfo
    weights: str = BEST
    _encoders: dict[bool, ServedModel] = field(default_factory=dict, init=False, repr=False, compare=False)

    @property
    def _facts(self) -> dict[str, object]:
        best = {
            name: round(untyped(self.info)[name], 4)
            for name in self.info
            if name.startswith("best_") and name != "best_epoch"
        }
        epoch = {"best epoch": self.info["best_epoch"] + 1} if "best_epoch" in self.info else {}
        trained = {"recipe": f"{self.recipe.name} ({self.recipe.variant})", "data": self.info.get("dataset_name")}
        return {**trained, "status": self.info["status"], **epoch, **{f"validation {n[5:]}": best[n] for n in best}}

    def __repr__(self) -> str:
        return f"Run({str(self.path)!r}, {', '.join(f'{name}: {value}' for name, value in self._facts.items())})"

    def __str__(self) -> str:
        following = self.recipe.summary(self.info, str(self.path)) if "best_epoch" in self.info else []
        return "\n".join([f"run          {self.path}", *following])

    def to_json(self) -> dict[str, Any]:
        """Return the path and the contents of `run.json`."""
        return {"run": str(self.path), **self.info}

    def _repr_html_(self) -> str:
        return html_table([], list(self._facts.items()), str(self.path))

    @classmethod
    def open(cls, path: Run | str | os.PathLike[str], task: str | None = None) -> Self:
        """Open a run directory.

        Args:
            path: the directory; an opened run, which is returned; or the name of a pretrained dual encoder, such as
                `hub:clip_vit_base_patch32` or `hf://openai/clip-vit-base-patch32`, which becomes a run in the cache.
            task: required kind of recipe; derived kinds are accepted too. None accepts any kind.

        Raises:
            DataError: if it is not a run directory, is a run of another task, lacks selected weights, or a file is
                damaged.

        Example:

            run = Run.open("runs/vsepp")
        """
        if isinstance(path, Run):
            _require_task(path.recipe, path.path, task)
            return cast(Self, path)
        path = named_run(path) or Path(path)
        recipe = read_recipe(path)
        require_contained(path, "run")
        _require_task(recipe, path, task)
        info = cast(RunInfo, read_status(path, (*FIELDS, *recipe.run_fields)))
        if not (path / BEST).exists():
            if "best_epoch" in info:
                raise DataError(f"{path} lacks {BEST}, its weights. Restore the file, or train into another directory.")
            raise DataError(f"{path} has no selected weights yet; let `vsemb train` finish an epoch.")
        _check_kept(path, info.get("files", {}))
        if info["status"] != "finished":
            say(f"The training of {path} is not finished. The best weights so far are used.")
        return cls(path, rebuilt(recipe, methodcaller("localized", path)), info)

    @property
    def kept(self) -> list[Self]:
        """The run with the weights of each epoch that `training.keep` kept, best first.

        Raises:
            DataError: if only the best epoch was kept.
        """
        epochs = self.info.get("kept_epochs", ())
        if len(epochs) < 2:
            raise DataError(f"{self.path} kept one epoch. Train with training.keep=5 to keep more.")
        return [replace(self, weights=str(kept_weights(BEST, epoch))) for epoch in epochs]

    @property
    def label(self) -> str:
        """Name of the run's directory, with the epoch of `kept`."""
        epoch = Path(self.weights).name.split(".")[0]
        return self.path.name if self.weights == BEST else f"{self.path.name} {epoch}"

    def computed_in(self, precision: str) -> Self:
        """Return the run with a model that computes in another precision, from the same weights.

        The precision applies to the text tower and to the layers behind an image network. The network itself stays in
        float32. In bfloat16, large batches of texts take less time if the processor supports it; single texts take
        more time. Embeddings then have two digits.

        Args:
            precision: `float32` or `mixed_bfloat16`.

        Raises:
            InvalidArgumentError: for any other precision, or a run whose task has one precision only.
        """
        if precision not in _PRECISIONS:
            raise unknown_name("precision", precision, _PRECISIONS)
        if not self.recipe.rounds:
            raise invalid_argument("precision", precision, f"omitted for a run for {self.recipe.kind}")
        if self.recipe.training.dtype == precision:
            return self
        training = replace(self.recipe.training, precision=precision)
        other = replace(self, recipe=replace(self.recipe, training=training))
        # Keep everything else that is already loaded, such as a parser.
        vars(other).update({name: vars(self)[name] for name in vars(self).keys() - vars(other) - {"model"}})
        return other

    @cached_property
    def model(self) -> Any:
        """Keras model with the selected weights."""
        with outside_graphs():
            recipe = rebuilt(self.recipe, methodcaller("without_downloads"))
            model = recipe.build(len(self.vocabulary), self.info, self.recipe.training.dtype)
            self._load_best(model)
            return model

    def _load_best(self, model: keras.Model) -> None:
        try:
            load_weights(model, self.path / self.weights)
        except ValueError as error:
            reason = one_line(error, 120)
            raise DataError(
                f"{self.path / self.weights} must fit the run's {RECIPE}; it does not ({reason} …). One of the two was "
                "changed; restore it."
            ) from error

    def encoders(self, images: bool = True) -> ServedModel:
        """Return the functions for search and serving, which are traced once.

        Args:
            images: whether images will be embedded; if not, the backbone need not be built.

        Raises:
            DataError: for a task without embeddings.
            VsembError: on another backend of Keras than TensorFlow.

        Example:

            encoders = Run.open("runs/vsepp").encoders()
            encoders.encode_text(tf.constant(["a dog on a beach"]))["embedding"]
        """
        if keras.backend.backend() != "tensorflow":
            raise VsembError(
                f"Search and serving must run on the TensorFlow backend of Keras; got {keras.backend.backend()}. Set "
                "KERAS_BACKEND=tensorflow; runs of other backends open there."
            )
        if images not in self._encoders:
            self._encoders[images] = self.recipe.served(self, images=images)
            # Functions with images also embed texts.
            self._encoders.setdefault(False, self._encoders[images])
        return self._encoders[images]

    @cached_property
    def vocabulary(self) -> Vocabulary:
        """Vocabulary of the run, verified against `run.json`."""
        vocabulary = Vocabulary.load(self.path / VOCABULARY)
        if vocabulary.fingerprint != self.info["vocabulary"]:
            raise DataError(
                f"{self.path / VOCABULARY} must be the vocabulary that the run was trained with; it is "
                f"{vocabulary.fingerprint[:12]}, expected {self.info['vocabulary'][:12]}. Restore it."
            )
        return vocabulary

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """Tokenizer of the run."""
        with outside_graphs():
            return self.recipe.text.tokenizer.build(self.vocabulary)

    @cached_property
    def reader(self) -> TextReader:
        """Reader that converts raw texts to inputs of the tokenizer."""
        return self.recipe.text.tokenizer.reader(self.vocabulary, self.path)

    @cached_property
    def fingerprint(self) -> str:
        """Hex digest of the selected weights, the recipe, the vocabulary, the features and other runs in it."""
        # The recipe file as written, not as parsed.
        parts: list[Any] = [sha256_file(self.path / name) for name in (self.weights, RECIPE)]
        parts += [self.info["vocabulary"], self.info.get("features"), *self.recipe.fingerprints(self.info)]
        return sha256_bytes(json.dumps(parts).encode())

    @property
    def data_path(self) -> Path:
        """Path of the training data."""
        if self.info["data"] is None:
            raise DataError(f"{self.path} was trained on no dataset of yours. Name one as `data`.")
        path = Path(self.info["data"])
        if not path.exists():
            raise DataError(f"The dataset of {self.path} is no longer at {path}. Name it as `data`.")
        return path

    def open_data(self, path: Any = None) -> Any:
        """Open data of the run's task.

        Named data may be other data than that of the training, with a notice.

        Args:
            path: path of the data, or the opened data; None for the training data.

        Raises:
            DataError: if the training data is missing or has changed.
        """
        named = path is not None
        data = path
        if path is None or isinstance(path, str | os.PathLike):
            data = self.recipe.open_data(self.data_path if path is None else path)
        if not hasattr(data, "fingerprint"):
            raise invalid_argument("data", path, "a dataset or other data of the run's task, or its path")
        trained_on, received = self.info["dataset"][:12], data.fingerprint[:12]
        if not named:
            self._check_unchanged(data)
        elif trained_on and received != trained_on:
            fingerprints = f"fingerprint {received}, not {trained_on}"
            say(f"{data.path} is other data than {self.path} was trained on ({fingerprints}).")
        return data

    def _check_unchanged(self, data: Any) -> None:
        """Check that the data at the recorded path is still the training data.

        Features and annotations may be added. Annotations that the run was trained on must be the same.

        Raises:
            DataError: if it is not.
        """
        recorded = {"dataset": (self.info["dataset"], data.fingerprint)}
        annotated = _made_of(self.recipe).keys() & registry.entries("annotations").keys() & self.info.keys()
        for name in sorted(annotated) if isinstance(data, StoredDataset) else ():
            annotation = data.annotation(name)
            if annotation is not None and untyped(self.info)[name]:
                # Of several sources, the fingerprint of the dataset's own annotation is first.
                recorded[name] = untyped(self.info)[name].split("+")[0], annotation.fingerprint
        for name, (expected, received) in recorded.items():
            if received != expected:
                raise DataError(
                    f"The {name} of {self.path} at {data.path} must be unchanged since training (fingerprint "
                    f"{expected[:12]}); got {received[:12]}. Restore it, or name it on purpose as `data`."
                )

    @property
    def multi_vector(self) -> bool:
        """Whether an image is embedded as a set of vectors."""
        return self.recipe.image.produces == "multi_vector"

    @cached_property
    def embedding_dim(self) -> int:
        """Size of an embedding."""
        dim = self.recipe.embedding_dim or self.info["feature_dim"] or self.model.image_encoder.dim
        return dim + self.recipe.added_dim

    @property
    def sees_images(self) -> bool:
        """Whether the run embeds images with an image tower."""
        return self.recipe.image_tower is not None

    @cached_property
    def image_input(self) -> ImageInput | None:
        """Conversion of image bytes to inputs of the model; None if the run cannot convert them."""
        with outside_graphs():
            return self.recipe.image.image_input(self.path) if self.sees_images else None

    def features_of(self, dataset: StoredDataset) -> Any:
        """Open the cached image features of a dataset that the run reads; None if the run decodes images.

        Raises:
            DataError: if the dataset lacks these features, or has other features.
        """
        opened: dict[Path, Any] = vars(self).setdefault("_opened_features", {})
        if dataset.path not in opened:
            try:
                opened[dataset.path] = self.recipe.image.open_for(dataset, self.info, self.path)
            except DataError as error:
                raise DataError(f"{error} The run {self.path} reads them.") from error
        return opened[dataset.path]

    def has_features(self, dataset: StoredDataset) -> bool:
        """Whether the run reads images from the dataset's cached features instead of their bytes."""
        return self.recipe.image.has_cache(dataset, self.info, self.path)

    def images_of(self, dataset: StoredDataset, split: Split) -> ImageSource:
        """Return a split's images as inputs of the model.

        Raises:
            DataError: if the dataset's features are not from the backbone of the training.
        """
        return self.recipe.image.images(split, self.features_of(dataset))

    def encode(self, raw: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        """Tokenize raw texts, or texts from `texts_of`.

        Returns:
            ids and offsets, as `vsemb.text.tokenizers.Tokenizer.encode`.

        Raises:
            DataError: if a text cannot be converted to inputs of the tokenizer.
        """
        return self.tokenizer.encode(self.reader(raw))

    def texts_of(self, split: Split) -> tuple[Sequence[str], np.ndarray]:
        """Return a split's texts as the model reads them: captions, or the texts that replace them.

        Returns:
            texts: m texts.
            rows: (m,) int64, row of the image that each text describes.

        Raises:
            DataError: if the dataset lacks these texts.
        """
        read = self.recipe.text.tokenizer.select(split)
        self.reader.check(read.captions, self.path)
        return read.captions, read.caption_rows

    def encoded_texts_of(self, split: Split) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the token ids of `texts_of`; for many captions, they are computed once, see `encoded_captions`.

        Returns:
            ids and offsets, as `encode`, and the rows of `texts_of`.

        Raises:
            DataError: if the dataset lacks these texts.
        """
        read = self.recipe.text.tokenizer.select(split)
        self.reader.check(read.captions, self.path)
        return *encoded_captions(read, self.tokenizer), read.caption_rows

    def coverage(self, split: Split, ids: np.ndarray, offsets: np.ndarray) -> Coverage:
        """Count the known words of a split's texts.

        Args:
            split: the split.
            ids: token ids of its texts, as `encoded_texts_of` returns them.
            offsets: likewise.
        """
        return coverage(self.tokenizer, ids, offsets, split.captions)

    def shown_texts_of(self, split: Split) -> Sequence[str]:
        """Return the texts of `texts_of` in readable form: captions instead of their parses."""
        return split.captions if self.recipe.text.tokenizer.per_caption else self.texts_of(split)[0]


def check_out(out: Path) -> None:
    """Check that a new run directory does not exist yet or is empty.

    Raises:
        DataError: if it holds something else.
    """
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise DataError(
            f"{out} must be a run directory or not exist; it holds something else. Choose another directory."
        )


def enter_run(
    recipe: Recipe, info: RunInfo, out: Path, vocabulary: Vocabulary, keep: Callable[[Path], None]
) -> RunInfo:
    """Create a run directory, or resume an existing run, also to train a finished run for more epochs.

    Args:
        recipe: the recipe.
        info: fields of `run.json` about the data; fingerprints in them must not change.
        out: the directory.
        vocabulary: vocabulary of the training texts.
        keep: function that writes files other than weights that the run needs into the new directory.

    Returns:
        Contents of `run.json`.

    Raises:
        DataError: if `out` holds something else, or a run of another recipe or dataset.
    """
    if (out / RECIPE).exists():
        status = check_same(recipe, info | {"vocabulary": vocabulary.fingerprint}, out)
        if read_recipe(out).training.epochs != recipe.training.epochs:
            write_json(out / STATUS, status)
            write_json(out / RECIPE, recipe.to_json())
        return status
    info = info | {
        "vocabulary": vocabulary.fingerprint,
        "vocabulary_size": len(vocabulary),
        "versions": {name: version(name) for name in ("vsemb", keras.backend.backend(), "keras", "numpy")},
        "status": "running",
    }
    check_out(out)
    # Atomic, because the same command would reject a partial directory.
    with replacing_directory(out) as folder:
        (folder / "checkpoints").mkdir()
        vocabulary.save(folder / VOCABULARY)
        for part in walk(recipe):
            part.keep_files(folder)
        keep(folder)
        info["files"] = _kept_digests(folder)
        write_json(folder / STATUS, info)
        write_json(folder / RECIPE, recipe.to_json())
    return info


def _kept_digests(folder: Path) -> dict[str, str]:
    """Return the SHA-256 of the files that a new run keeps, except those with a digest of their own."""
    # The fingerprint of a run inside this one covers its recipe.
    recognized = (VOCABULARY, RECIPE, STATUS)
    files = (path for path in sorted(folder.rglob("*")) if path.is_file() and path.name not in recognized)
    return {path.relative_to(folder).as_posix(): sha256_file(path) for path in files if path.suffix != ".h5"}


@contextmanager
def replacing_kept(run: Path, name: str) -> Iterator[Path]:
    """Yield a temporary directory that replaces a folder of files that a run keeps, and record them in `run.json`.

    Args:
        run: the run directory.
        name: the folder in it.

    Raises:
        DataError: if writing fails.
    """
    status = read_json(run / STATUS)
    others = {file: digest for file, digest in status.get("files", {}).items() if not file.startswith(f"{name}/")}
    # The old digests go first: after an interruption, the files are not recorded, and the run opens.
    write_json(run / STATUS, status | {"files": others})
    with replacing_directory(run / name, overwrite=True) as folder:
        yield folder
    written = {f"{name}/{file}": digest for file, digest in _kept_digests(run / name).items()}
    write_json(run / STATUS, status | {"files": others | written})


def _check_kept(folder: Path, digests: Any) -> None:
    """Check the files of `_kept_digests`. A file may be missing: a run opens without its parser, for example.

    Raises:
        DataError: if a file is not what was written.
    """
    for name, digest in digests.items() if isinstance(digests, dict) else ():
        # The list may be a stranger's, so it leads to no file outside the folder.
        inside = not Path(name).is_absolute() and ".." not in Path(name).parts
        if inside and (folder / name).is_file() and sha256_file(folder / name) != digest:
            raise DataError(f"The file {folder / name} must be what the training wrote; it has changed. Restore it.")


def check_same(recipe: Recipe, info: RunInfo, out: Path) -> RunInfo:
    """Check that a run directory holds a run of a recipe. The number of epochs may differ.

    Args:
        recipe: the recipe.
        info: fields of `run.json` about the data, as far as they are known.
        out: the directory.

    Returns:
        Contents of `run.json`. The status is `running` if the recipe trains a finished run for more epochs.

    Raises:
        DataError: for a run of another recipe or dataset, or a finished run with more epochs.
    """
    there = read_recipe(out)
    epochs, before = recipe.training.epochs, there.training.epochs
    differences = _differences(there.to_json(), recipe.to_json())
    differences = [each for each in differences if each[0] != "training.epochs"]
    if differences:
        path, old, new = differences[0]
        raise DataError(
            f"{out} holds a run of another recipe: {path} is {old!r} there and {new!r} now"
            f"{f' ({len(differences) - 1} more differ)' if len(differences) > 1 else ''}. "
            "Choose another directory, or remove it."
        )
    made_of = {name: other for name, other in _made_of(recipe).items() if name in info}
    status = read_status(out, (*made_of, "status"))
    for name, other in made_of.items():
        if status[name] != untyped(info)[name]:
            raise DataError(
                f"{out} was trained on {other} ({str(status[name])[:12]} there, "
                f"{str(untyped(info)[name])[:12]} now). Choose another directory."
            )
    if status["status"] != "finished" or epochs == before:
        return cast(RunInfo, status)
    if epochs < before:
        raise DataError(f"`epochs` must be at least {before}, for which {out} was trained; got {epochs}.")
    return cast(RunInfo, {**status, "status": "running"})


def _made_of(recipe: Recipe) -> dict[str, str]:
    """Return names of fingerprints in `run.json` -> phrases for other values, for errors."""
    phrases: dict[str, str] = {}
    for part in walk(recipe):
        for cls in reversed(type(part).__mro__):
            phrases |= vars(cls).get("made_of", {})
    return phrases


def _differences(old: Any, new: Any, path: str = "") -> list[tuple[str, Any, Any]]:
    if isinstance(old, dict) and isinstance(new, dict):
        differences = []
        for name in sorted({*old, *new}):
            differences += _differences(old.get(name), new.get(name), f"{path}.{name}".lstrip("."))
        return differences
    return [] if old == new else [(path, old, new)]
