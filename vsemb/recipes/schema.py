"""Base class of recipes: all settings of a training run, as a tree of typed parts.

Each task has a subclass of `Recipe`: `vsemb.recipes.retrieval.Retrieval` in the base, and others in systems. It builds
the model and makes batches from data. `vsemb.runs.train` trains the recipes of all tasks.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

import keras

from vsemb.data.batches import BatchSource
from vsemb.errors import VsembError, invalid_argument
from vsemb.ops.backend import multiplies_bfloat16
from vsemb.parts import Count, Part, Seed, walk
from vsemb.text.coverage import coverage
from vsemb.text.tokenizers import Tokenizer
from vsemb.text.vocabulary import Vocabulary
from vsemb.training.optimizers import Adam, OptimizerPart

if TYPE_CHECKING:
    from vsemb.exporting import Corpus, Exportable, ServedModel, Signature
    from vsemb.recipes.info import RunInfo
    from vsemb.runs.run import Run


@dataclass(frozen=True)
class Training(Part):
    """The training loop.

    Attributes:
        epochs: maximum number of passes over the training data.
        patience: training stops after this many epochs without a better validation value; null for no limit.
        keep: number of best epochs whose weights are kept, for `vsemb evaluate --kept`.
        seed: seed of all random numbers.
        precision: `float32`, `mixed_bfloat16`, or `auto`: train in `mixed_bfloat16` if the processor multiplies
            bfloat16 faster, and use `float32` after training.
        nonfinite: what to do if the loss of a batch is not finite: `stop` with an error, or `skip` the batch.
    """

    epochs: Count = 30
    patience: Count | None = None
    keep: Count = 1
    seed: Seed = 0
    precision: Literal["auto", "float32", "mixed_bfloat16"] = "float32"
    nonfinite: Literal["stop", "skip"] = "stop"

    @property
    def dtype(self) -> str:
        """The precision after training."""
        return "float32" if self.precision == "auto" else self.precision

    @property
    def training_dtype(self) -> str:
        """The precision of training on this machine."""
        if self.precision == "auto":
            return "mixed_bfloat16" if multiplies_bfloat16() else "float32"
        return self.precision


class Job:
    """A recipe applied to its data: model, loss, batches and validation of a training.

    Attributes:
        recipe: the recipe.
        vocabulary: vocabulary of the training texts.
        info: the facts about the data in `run.json`. When a run is resumed, the fingerprints that the recipe's parts
            name in `made_of` must be the same.
        unit: name of a row in a batch, for the progress bar.
        monitor: name in the logs that selects the best epoch; higher is better.
        data_service: address of a tf.data service whose workers decode images; None to decode in this process.
    """

    recipe: Any
    vocabulary: Vocabulary
    info: RunInfo
    unit: str = "captions"
    monitor: str
    data_service: str | None = None

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """The recipe's tokenizer."""
        return self.recipe.text.tokenizer.build(self.vocabulary)

    def training_texts(self) -> Iterable[str]:
        """Return the training texts, as the tokenizer reads them."""
        return ()

    def unknown_words(self, batches: BatchSource) -> list[str]:
        """Count the words of the training texts that are not in the vocabulary, and add the numbers to `info`.

        Args:
            batches: the result of `batches`.

        Returns:
            Lines to print: the numbers, and how to change them; empty if all words are known.
        """
        if batches.tokens is None:
            return []
        counts = coverage(self.tokenizer, *batches.tokens, self.training_texts()).counts
        known, seen = len(self.vocabulary.words), self.vocabulary.seen
        words = {} if seen is None else {"words_known": known, "words_seen": seen}
        self.info["training_texts"] = {**words, **asdict(counts)}
        lines = counts.warnings("training texts")
        if counts.all_known:
            return lines
        of_seen = "" if seen is None else f"{known:,} of {seen:,} known; "
        lines.append(f"{counts.unit:<12} {of_seen}{counts.described('training texts')}")
        if effects := self.recipe.word_remedies:
            lines.append(f"{'':12} {'; '.join(effects)} (--set, or keywords of vsemb.train)")
        return lines

    def keep(self, folder: Path) -> None:
        """Write further files of the run, besides weights and vocabulary, to a new run directory."""

    def batches(self) -> BatchSource:
        """Return the training batches."""
        raise NotImplementedError

    def model(self, recipe: Any, dtype: str) -> keras.Model:
        """Build and initialize the model; called in the scope of the strategy.

        Args:
            recipe: the recipe of the job, with initial weights as files.
            dtype: dtype policy.
        """
        raise NotImplementedError

    def loss(self, steps_per_epoch: int) -> keras.losses.Loss:
        """Return the loss to compile the model with."""
        raise NotImplementedError

    def validation(self) -> keras.callbacks.Callback:
        """Return the callback that adds `monitor` to the logs of an epoch."""
        raise NotImplementedError

    def checks(self, batch_size: int) -> Sequence[keras.callbacks.Callback]:
        """Return further callbacks."""
        return ()


@dataclass(frozen=True)
class Recipe(Part, family="task"):
    """A named configuration of a model and its training; base of the family `task`.

    Attributes:
        name: the recipe's name.
        variant: name of the variant.
        paper: the paper that it reproduces.
        optimizer: the optimizer and its schedule.
        training: the training loop.

    Class attributes:
        inputs: names of other runs that training accepts, such as `encoder`.
        evaluation: kind of the default protocol of `vsemb evaluate RUN`.
        run_fields: required fields of `run.json` for a run of this task.
        added_dim: coordinates that the model appends to an encoder's vector.
        rounds: whether a trained run may compute in another precision, see `vsemb.runs.run.Run.computed_in`.

    Example:

        recipe = vsemb.recipes.get("vsepp", "paper").with_overrides(["training.epochs=5"])
    """

    inputs: ClassVar[tuple[str, ...]] = ()
    evaluation: ClassVar[str] = "retrieval"
    run_fields: ClassVar[tuple[str, ...]] = ()
    added_dim: ClassVar[int] = 0
    rounds: ClassVar[bool] = True
    made_of: ClassVar[Mapping[str, str]] = {
        "dataset": "another dataset",
        "features": "other features",
        "vocabulary": "another vocabulary",
    }

    name: str = "mine"
    variant: str = "default"
    paper: str = ""
    optimizer: OptimizerPart = field(default_factory=Adam)
    training: Training = field(default_factory=Training)

    def check(self) -> None:
        """Check conditions on several parts; subclasses extend this method.

        Raises:
            InvalidArgumentError: for an invalid value; the message names the field.
        """
        sparse = getattr(self.optimizer, "sparse_embedding_updates", False)
        if sparse and any(getattr(part, "dense_gradient", False) for part in walk(self)):
            raise invalid_argument("optimizer.sparse_embedding_updates", True, "false with words.dense_gradient=true")

    def fields_listed(self) -> str | None:
        return f"`vsemb recipes {self.name}` lists all fields."

    @property
    def batch_size(self) -> int:
        """Rows per batch, over all devices."""
        return self.batches.size  # type: ignore[attr-defined]

    def open_data(self, path: str | os.PathLike[str]) -> Any:
        """Open the training data of the recipe.

        Returns:
            An object with the attributes `path` and `fingerprint`, such as a `vsemb.data.store.StoredDataset`.

        Raises:
            DataError: if the data is not of this kind.
        """
        raise NotImplementedError

    @property
    def splits(self) -> tuple[str, ...]:
        """Splits that a training dataset must have."""
        return "train", "val"

    @property
    def image_tower(self) -> Any:
        """The image tower; None for a recipe without images."""
        return getattr(self, "image", None)

    @property
    def word_remedies(self) -> list[str]:
        """Assignments to fields of the recipe that make more words of texts known, each with its effect."""
        recipe: Any = self
        return [
            f"{change} {effect}" for change, effect in recipe.text.tokenizer.remedies.items() if self._allows(change)
        ]

    def _allows(self, change: str) -> bool:
        try:
            self.with_overrides([change])
        except VsembError:
            return False
        return True

    def suited_to(self, data: Any) -> tuple[Sequence[str], str]:
        """Return the changes of the recipe that suit the size of training data, for a training that names the recipe.

        Args:
            data: result of `open_data`.

        Returns:
            The changes, see `with_overrides`, and a line that says what they are and how to keep the recipe.
        """
        return (), ""

    def with_pixels(self, image: Any) -> Self:
        """Return the recipe with an image tower from pixels, a `vsemb.recipes.towers.Pixels`."""
        recipe: Any = self
        return replace(recipe, image=image)

    def prepare(self, data: Any, out: Path, inputs: Mapping[str, Run]) -> Job:
        """Read the data and check that the recipe can be trained on it.

        Args:
            data: result of `open_data`.
            out: the run directory, with the files of an interrupted training.
            inputs: runs by name, see `inputs`.

        Raises:
            VsembError: if recipe, data and inputs do not match.
        """
        raise NotImplementedError

    def build(self, vocabulary_size: int, info: RunInfo, dtype: str) -> keras.Model:
        """Build the model with random weights from the recipe's seed.

        Args:
            vocabulary_size: number of token ids.
            info: contents of `run.json`, with the sizes of inputs.
            dtype: dtype policy.
        """
        raise NotImplementedError

    def fingerprints(self, info: RunInfo) -> list[Any]:
        """Return further values of `run.json` that are part of a run's fingerprint."""
        return []

    def served(
        self,
        run: Run,
        *,
        images: bool = True,
        corpus: Corpus | None = None,
        extras: Sequence[Callable[[ServedModel], Signature]] = (),
        **options: Any,
    ) -> Exportable:
        """Return the functions for search and export; here the embeddings.

        Args:
            run: the run.
            images: whether images will be embedded; if false, no backbone is built.
            corpus: items to search in the graph.
            extras: further signatures, see `vsemb.exporting.ServedModel`.
            **options: options of this task only.

        Raises:
            DataError: if runs of this task cannot be exported.
            InvalidArgumentError: for options that this task does not support.
        """
        if options:
            raise invalid_argument("options", sorted(options), f"options of the task {self.kind}")
        from vsemb.exporting.served_model import ServedModel

        text_input = run.recipe.text.tokenizer.text_input(run.tokenizer, run.reader)
        return ServedModel(run.model, text_input, run.image_input if images else None, corpus=corpus, extras=extras)

    def card_facts(self, run: Run) -> dict[str, Any]:
        """Return the task's fields of `vsemb.exporting.ModelFacts`: `images`, `features_fingerprint`, `notes`.

        Args:
            run: the run.
        """
        if self.image_tower is None:
            return {"images": "none, sentences alone"}
        return {
            "images": run.recipe.image.facts(run.path),
            "features_fingerprint": run.info.get("features") or "",
        }

    def finish(self, run: Run, data: Any) -> None:
        """Run final steps after training, such as tuning on validation; may be called again.

        Args:
            run: the finished run.
            data: the training data.
        """

    def summary(self, info: RunInfo, out: str) -> list[str]:
        """Return lines about a training: the best epoch, and last the command that usually follows.

        Args:
            info: contents of `run.json`.
            out: the run directory, or the directory of runs with several seeds.
        """
        return [f"best epoch   {info['best_epoch'] + 1}", f"next         vsemb evaluate {out}"]
