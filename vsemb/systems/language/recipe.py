"""The task of language models: Kiros' models of the next word, trained on text alone.

Beside what every run directory has stands

encoder/             a run of the retrieval task, complete but for its logs: it embeds the sentences that the model is
                     conditioned on, and later the images
generation/          what captions are written with, see `vsemb.systems.language.generation`
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import keras

from vsemb.data.batches import BatchSource
from vsemb.data.store import Dataset, Split
from vsemb.errors import invalid_argument
from vsemb.runs.run import Run
from vsemb.systems.captions.decoding import Captioner, CaptionOptions
from vsemb.systems.captions.sentences import SentenceBatches, Sentences, sentence_batches
from vsemb.systems.captions.task import CaptionBatches, NextWordJob, NextWordTask
from vsemb.systems.captions.validation import Likelihood, LikelihoodMeasure, PerplexityValidation
from vsemb.systems.language.conditioning import (
    ENCODER,
    check_encoder,
    encoder_of,
    keep_encoder,
    read_sentences,
    require_encoder,
    require_tags,
    tag_names,
    tags_of,
)
from vsemb.systems.language.generation import check_generation, load_captioner, prepare_generation
from vsemb.systems.language.log_bilinear import ContextModel, LanguageModel, LogBilinearPart

_OPTIONS = ("beam", "n_best", "candidates")


@dataclass(frozen=True)
class Language(NextWordTask, kind="language"):
    """A language model that is trained on text alone, and may be conditioned on vectors of the text itself.

    Attributes:
        model: the model.
    """

    inputs: ClassVar[tuple[str, ...]] = ("encoder",)
    evaluation: ClassVar[str] = "perplexity"
    run_fields: ClassVar[tuple[str, ...]] = ("encoder", "content_dim", "tag_names")
    ranks_candidates: ClassVar[bool] = True
    made_of: ClassVar[Mapping[str, str]] = {"encoder": "another encoder", "tags": "other parts of speech"}

    batches: CaptionBatches = field(default_factory=CaptionBatches)
    model: LanguageModel = field(default_factory=LogBilinearPart)

    @property
    def model_name(self) -> str:
        assert self.model.kind is not None
        return self.model.kind

    @property
    def how_written(self) -> str:
        return self.model.how_written

    def prepare(self, data: Any, out: Path, inputs: Mapping[str, Any]) -> LanguageJob:
        return LanguageJob(self, data, _find_encoder(self, out, inputs.get("encoder")))

    def build(self, vocabulary_size: int, info: Mapping[str, Any], dtype: str) -> ContextModel:
        keras.utils.set_random_seed(self.training.seed)
        model = self.model.build(vocabulary_size, info, self.l2, dtype)
        model.build()
        return model

    def fingerprints(self, info: Mapping[str, Any]) -> list[Any]:
        return [info["encoder"], info["tag_names"]]

    def finish(self, run: Run, data: Any) -> None:
        if self.model.reads_content:
            prepare_generation(run, data)

    def refusal(self) -> str | None:
        return None if self.model.reads_content else "sees no image"

    def captioner(self, run: Run, options: CaptionOptions) -> Captioner:
        options.check_only(_OPTIONS, f"nothing for a run of the recipe {self.name!r}")
        given = {name: getattr(options, name) for name in _OPTIONS}
        return load_captioner(run, **{name: value for name, value in given.items() if value is not None})

    def image_run(self, run: Run) -> Run:
        return require_encoder(run)

    def card_facts(self, run: Any) -> dict[str, Any]:
        encoder = encoder_of(run)
        facts = super().card_facts(run) if encoder is None else encoder.recipe.card_facts(encoder)
        note = "Its language model read sentences alone; images are looked at by their encoder."
        return {**facts, "notes": [note]}

    def likelihood(self, run: Run, dataset: Dataset, split: str) -> tuple[Sentences, Likelihood]:
        encoder, names = encoder_of(run), tags_of(run)
        sentences = read_sentences(dataset.split(split), run.tokenizer, encoder=encoder, names=names)
        return sentences, LikelihoodMeasure(run.model)(sentence_batches(sentences))


def _find_encoder(recipe: Language, out: Path, encoder: Run | None) -> Run | None:
    """Returns the encoder that was given, or the one that an interrupted training kept."""
    if not recipe.model.reads_content:
        if encoder is not None:
            raise invalid_argument("encoder", str(encoder.path), f"nothing for {recipe.model.kind} models")
        return None
    if encoder is None and (out / ENCODER).exists():
        encoder = Run.open(out / ENCODER)
    if encoder is None:
        fix = "Train one with `vsemb train kiros2014` and name it with --encoder RUN."
        raise invalid_argument("encoder", None, f"a run of kiros2014 for {recipe.name}", fix)
    check_encoder(encoder)
    return encoder


class LanguageJob(NextWordJob):
    """What `Language` makes of a dataset.

    Args:
        recipe: the recipe.
        dataset: with splits `train` and `val`; for `sc-nlm` with parts of speech.
        encoder: the run that embeds each sentence; None for a model that reads no content.

    Raises:
        VsembError: if the dataset lacks what the model reads, or captions could not be written.
    """

    def __init__(self, recipe: Language, dataset: Dataset, encoder: Run | None) -> None:
        tags = require_tags(dataset) if recipe.model.reads_tags else None
        if encoder is not None:
            # What captions will be written with is looked for before hours of training.
            check_generation(recipe, dataset, encoder)
        super().__init__(recipe, dataset)
        self._encoder = encoder
        self._names = () if tags is None else tag_names(tags.of(self.train))
        self.info |= {
            "encoder": None if encoder is None else encoder.fingerprint,
            "content_dim": None if encoder is None else encoder.embedding_dim,
            "tags": None if tags is None else tags.fingerprint,
            "tag_names": list(self._names) or None,
        }

    def keep(self, folder: Path) -> None:
        """Copies the encoder."""
        if self._encoder is not None:
            keep_encoder(self._encoder, folder)

    def _sentences(self, split: Split) -> Sentences:
        return read_sentences(split, self.tokenizer, encoder=self._encoder, names=self._names)

    @cached_property
    def sentences(self) -> Sentences:
        """Those of the training split."""
        return self._sentences(self.train)

    def batches(self) -> BatchSource:
        """Returns the training batches."""
        return SentenceBatches(self.sentences, batch_size=self.recipe.batches.size, seed=self.recipe.training.seed)

    def model(self, recipe: Any, dtype: str) -> ContextModel:
        """Builds the model and sets the words' frequencies."""
        size = len(self.vocabulary)
        model = recipe.build(size, self.info, dtype)
        if recipe.model.frequency_bias:
            model.set_frequencies(self.sentences.word_counts(size))
        return model

    def validation(self) -> PerplexityValidation:
        """Returns the callback that measures the split `val`."""
        return PerplexityValidation(sentence_batches(self._sentences(self.val)))
