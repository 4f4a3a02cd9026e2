"""Runs of the language task: Kiros' language models, trained on text alone.

The run directory is that of `vsemb.runs.stored_run`, and beside it

encoder/             a run of the retrieval task, complete but for its logs: it embeds the sentences that the
                     model is conditioned on, and later the images
generation/          what captions are written with, see `vsemb.systems.language.generation`
"""

from __future__ import annotations

import functools
import json
import os
import sys
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import keras

from vsemb.data.sources import ImageSource
from vsemb.data.store import Dataset, Split
from vsemb.errors import DataError, invalid_argument, unknown_name
from vsemb.files import sha256_bytes
from vsemb.recipes.reading import check_read
from vsemb.recipes.schema import Recipe
from vsemb.runs import optimizers, texts
from vsemb.runs.loop import fit_run
from vsemb.runs.precision import check_precision, settled
from vsemb.runs.run import Run
from vsemb.runs.run_directory import check_out, enter_run
from vsemb.runs.stored_run import RECIPE, StoredRun
from vsemb.systems.captions.next_word import NextWordModel
from vsemb.systems.captions.next_word_loss import NextWordCrossEntropy
from vsemb.systems.captions.validation import PerplexityValidation
from vsemb.systems.language.conditioning_encoder import ENCODER, check_encoder, keep_encoder
from vsemb.systems.language.generation import check_generation, prepare_generation
from vsemb.systems.language.language_batches import LanguageBatches, sentence_batches
from vsemb.systems.language.language_data import need_tags, read_sentences, tag_names
from vsemb.systems.language.log_bilinear import LogBilinear
from vsemb.systems.language.structure_content import Multiplicative, StructureContent
from vsemb.training.strategies import DistributionContext, as_distribution

#: Name of a decoder -> its model, and the fields of a recipe that it reads beside those that all read.
DECODERS: dict[str, tuple[type[NextWordModel], tuple[str, ...]]] = {
    "log-bilinear": (LogBilinear, ()),
    "multiplicative": (Multiplicative, ("factors",)),
    "sc-nlm": (StructureContent, ("factors", "structure")),
}
#: Fields of the models that write captions.
_WRITING = ("beam", "candidates", "neighbours", "stopwords")
_READ = (
    *("name", "variant", "paper", "task", "optimizer.", "loss.l2"),
    *("text.min_count", "text.max_words", "text.max_length", "text.word_dim", "text.word_init_scale"),
    *("text.word_dropout", "caption.decoder", "caption.context", "caption.dropout", "caption.frequency_bias"),
    *("batches.size", "batches.captions_per_image"),
    *("training.epochs", "training.select", "training.patience", "training.seed", "training.precision"),
)


@dataclass(frozen=True)
class LanguageRun(StoredRun):
    """A trained language model.

    Example:

        run = LanguageRun.open("runs/sc-nlm")
        content = run.encoder.model.encode_images(features)
        state = run.model.start({"content": content, "tags": tags})
    """

    task: ClassVar[str] = "language"
    fields: ClassVar[tuple[str, ...]] = (*StoredRun.fields, "content_dim", "tag_names")

    @property
    def decoder(self) -> str:
        """Name of the model, a key of `DECODERS`."""
        return self.recipe.caption.decoder

    @property
    def tags(self) -> tuple[str, ...]:
        """The parts of speech that the model knows, ids from 1 on, the unknown one last; () for none."""
        return tuple(self.info["tag_names"] or ())

    @cached_property
    def model(self) -> NextWordModel:
        """The model with the selected weights."""
        model = build_language_model(self.recipe, len(self.vocabulary), self.info["content_dim"], len(self.tags))
        self._load_best(model)
        return model

    @cached_property
    def encoder(self) -> Run | None:
        """The run that embeds sentences and images; None for the log-bilinear model, which has none.

        Raises:
            DataError: if it is not the one that the model was trained with.
        """
        if not reads_content(self.recipe):
            return None
        encoder = Run.open(self.path / ENCODER)
        if encoder.fingerprint != self.info["encoder"]:
            raise DataError(
                f"{encoder.path} is not the encoder that {self.path} was trained with "
                f"({encoder.fingerprint[:12]}, not {self.info['encoder'][:12]}). Restore it."
            )
        return encoder

    @cached_property
    def fingerprint(self) -> str:
        """Hex that changes with what `StoredRun.fingerprint` says, and with the encoder and the tags."""
        parts = [super().fingerprint, self.info.get("encoder"), self.info["tag_names"]]
        return sha256_bytes(json.dumps(parts).encode())

    def need_encoder(self) -> Run:
        """Returns the encoder.

        Raises:
            DataError: if the model has none.
        """
        if self.encoder is None:
            raise DataError(
                f"{self.path} is a log-bilinear model, which sees no image and no content. Train the recipe "
                "sc-nlm, which does: vsemb train sc-nlm"
            )
        return self.encoder

    def images_of(self, dataset: Dataset, split: Split) -> ImageSource:
        """Returns a split's images as the encoder wants them.

        Raises:
            DataError: if there is no encoder, or the dataset's features are not of its backbone.
        """
        return self.need_encoder().images_of(dataset, split)


def reads_content(recipe: Recipe) -> bool:
    """Whether the recipe's model is conditioned on vectors of an encoder."""
    return recipe.caption.decoder != "log-bilinear"


def reads_tags(recipe: Recipe) -> bool:
    """Whether the recipe's model is conditioned on parts of speech."""
    return recipe.caption.decoder == "sc-nlm"


def check_language(recipe: Recipe) -> None:
    """Refuses what the recipe's model does not read or does not know.

    Raises:
        InvalidArgumentError: naming the field.
    """
    decoder = recipe.caption.decoder
    if decoder not in DECODERS:
        raise unknown_name("caption.decoder", decoder, DECODERS)
    names = (*DECODERS[decoder][1], *(_WRITING if reads_content(recipe) else ()))
    check_read(recipe, (*_READ, *(f"caption.{name}" for name in names)))
    if recipe.training.select != "perplexity":
        raise invalid_argument("training.select", recipe.training.select, "perplexity")
    check_precision(recipe)


def build_language_model(recipe: Recipe, vocabulary_size: int, content_dim: int | None, tags: int) -> NextWordModel:
    """Builds the recipe's model, its weights drawn from the recipe's seed.

    Args:
        recipe: the recipe.
        vocabulary_size: number of word ids.
        content_dim: size of a content vector; None for the log-bilinear model.
        tags: number of parts of speech, for `sc-nlm`.

    Raises:
        InvalidArgumentError: for a field with a value that is not allowed.
    """
    check_language(recipe)
    kind, names = DECODERS[recipe.caption.decoder]
    options: dict[str, Any] = {name: getattr(recipe.caption, name) for name in names}
    if reads_content(recipe):
        options["content_dim"] = content_dim
    if reads_tags(recipe):
        options["tags"] = tags
    keras.utils.set_random_seed(recipe.training.seed)
    model = kind(
        vocabulary_size,
        dim=recipe.text.word_dim,
        context=recipe.caption.context,
        dropout=recipe.caption.dropout,
        word_dropout=recipe.text.word_dropout,
        init_scale=recipe.text.word_init_scale,
        l2=recipe.loss.l2,
        dtype=recipe.training.dtype,
        **options,
    )
    model.build()
    return model


def train_language(
    recipe: Recipe,
    dataset: Dataset,
    out: str | os.PathLike[str],
    *,
    encoder: Run | None = None,
    checkpoint_seconds: float = 60.0,
    checkpoint_steps: int | None = None,
    strategy: str | DistributionContext = "none",
) -> LanguageRun:
    """Trains a language model; a training that was stopped goes on where it stopped.

    Args:
        recipe: what to train.
        dataset: with splits `train` and `val`; for `sc-nlm` with parts of speech, see `vsemb tag`.
        out: the run directory.
        encoder: for `multiplicative` and `sc-nlm`: the run that embeds each sentence. It is kept with the
            run, so that one that goes on needs none.
        checkpoint_seconds: time between stored states.
        checkpoint_steps: store after so many steps instead.
        strategy: `none`, `mirrored`, `multiworker`, or devices, see `vsemb.training.open_distribution`.

    Returns:
        The run, with the weights selected on validation.

    Raises:
        VsembError: for bad recipes, data or directories; nothing written before is lost.

    Example:

        dataset, encoder = Dataset.open("data/flickr8k"), Run.open("runs/kiros2014")
        run = train_language(recipes.get("sc-nlm"), dataset, "runs/sc-nlm", encoder=encoder)
    """
    out, devices = Path(out), as_distribution(strategy)
    check_language(recipe)
    devices.check_batch_size(recipe.batches.size)
    if not (out / RECIPE).exists():
        check_out(out)
    encoder = _find_encoder(recipe, out, encoder)
    if reads_tags(recipe):
        need_tags(dataset)
    if reads_content(recipe):
        # What captions will be written with is looked for before hours of training.
        check_generation(recipe, dataset, encoder)
    train_split = texts.read_texts(recipe, dataset.split("train"), training=True)
    vocabulary = texts.build_vocabulary(recipe, train_split.captions)
    names = tag_names(dataset.tags.of(train_split)) if reads_tags(recipe) and dataset.tags else None
    info: dict[str, Any] = {
        "dataset": dataset.fingerprint,
        "dataset_name": dataset.name,
        "data": str(dataset.path.resolve()),
        "encoder": None if encoder is None else encoder.fingerprint,
        "content_dim": None if encoder is None else encoder.recipe.embedding_dim,
        "tags": None if names is None or dataset.tags is None else dataset.tags.fingerprint,
        "tag_names": None if names is None else list(names),
    }
    enter = functools.partial(enter_run, recipe, info, out, vocabulary)
    if not (out / RECIPE).exists() or enter()["status"] != "finished":
        tokenizer = texts.build_tokenizer(recipe, vocabulary)
        sentences = {
            split.name: read_sentences(split, tokenizer, encoder=encoder, names=names)
            for split in (train_split, dataset.split("val"))
        }
        with devices.scope():
            size, content = len(vocabulary), info["content_dim"]
            model = build_language_model(settled(recipe), size, content, len(names or ()))
            if recipe.caption.frequency_bias:
                model.set_frequencies(sentences["train"].word_counts(len(vocabulary)))
            batches = LanguageBatches(sentences["train"], batch_size=recipe.batches.size, seed=recipe.training.seed)
            model.compile(
                optimizer=optimizers.build_optimizer(recipe, batches.steps_per_epoch),
                loss=NextWordCrossEntropy(),
                jit_compile=False,
            )
        # Only now, so that a recipe that does not work leaves no run behind.
        status = devices.first_worker_first(enter)
        if encoder is not None and devices.writes:
            keep_encoder(encoder, out)
        fit_run(
            recipe,
            model,
            batches,
            out,
            status,
            validation=PerplexityValidation(sentence_batches(sentences["val"])),
            monitor="val_log2_likelihood",
            unit="captions",
            devices=devices,
            checkpoint_seconds=checkpoint_seconds,
            checkpoint_steps=checkpoint_steps,
        )
    else:
        print(f"{out} is trained already.", file=sys.stderr)
    run = LanguageRun.open(out)
    if reads_content(recipe) and devices.writes:
        prepare_generation(run, dataset)
    return run


def _find_encoder(recipe: Recipe, out: Path, encoder: Run | None) -> Run | None:
    """Returns the encoder that was given, or the one that an interrupted training kept."""
    if not reads_content(recipe):
        if encoder is not None:
            raise invalid_argument("encoder", str(encoder.path), "none for a log-bilinear model")
        return None
    if encoder is None and (out / ENCODER).exists():
        encoder = Run.open(out / ENCODER)
    if encoder is None:
        fix = "Train one with `vsemb train kiros2014` and name it with --encoder RUN."
        raise invalid_argument("encoder", None, f"a run of kiros2014 for {recipe.name}", fix)
    check_encoder(encoder)
    return encoder
