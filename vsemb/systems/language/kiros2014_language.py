"""Kiros, Salakhutdinov, Zemel 2014 (arXiv:1411.2539): the neural language models, sections 2.3 to 2.5.

| equation | content | code |
| --- | --- | --- |
| 7, 8 | log-bilinear model | `vsemb.systems.language.log_bilinear.LogBilinear` |
| "additive variant", section 2.4 | MLBL-B: a content vector is added | `vsemb.systems.language.additive.Additive` |
| 9, 10 | multiplicative model with a factored tensor | `vsemb.systems.language.multiplicative.Multiplicative` |
| 11 | SC-NLM: parts of speech and content | `vsemb.systems.language.structure_content.StructureContent` |
| u | embedding of the sentence itself, so that training requires text only | `--inputs encoder=RUN`, of `kiros2014` |
| supplement | candidates, their scores, the five best | `vsemb.systems.language.candidates.StructureContentCaptioner` |

K = G = 300 (`model.dim`) and F = 100, as in the paper. The multiplicative model reads u directly, so that G is the
dimension of the encoder's space. In SC-NLM, T^(u) maps u to G. Deviations from the paper and missing details:

- Context size, look-ahead k, batch size, word threshold and learning rate are not in the paper. Here: 5 words, 3 tags,
  100 captions, words seen at least five times.
- The paper uses "stochastic gradient descent" without a learning rate. The default variant `adam` is faster: the
  perplexity of SC-NLM on Flickr8k after 50 steps is 33, and 83 with SGD at 0.1 (variant `paper`). Both clip gradients
  to norm 5.
- START fills the context before a sentence. END is predicted after the last word and has the same vector as START. The
  part of speech at this position is a tag for END.
- Word vectors are initialized uniformly in +- 0.1 and matrices by Glorot. The matrix of the content vector, which has
  unit length, is initialized with standard deviation 1.
- The softmax bias is initialized with log word frequencies, or with 0 by `--set model.frequency_bias=false`.
- Parts of speech come from `vsemb annotate DATA pos-tags`.
- The paper has "2 sets" of content vectors: the image, and means of its nearest words and sentences. Here the mean of
  the words and the mean of the sentences are two vectors.
- The paper samples a content vector and a sequence of parts of speech for each candidate. Variant `paper` of `sc-nlm`
  does so (`--set model.writing.sampled=true`). By default, each sequence is used with all three vectors, so that no
  candidate is written twice. With `sampled`, the same pairs are drawn for all images. In both, sequences come from at
  most 4,096 distinct ones, drawn by their frequency.
- A candidate is "a MAP estimate" in the paper. Here it is found by greedy search, or by beam search with
  `--set model.writing.beam=7`.
- The models and the trigram model are trained on the training captions. In the paper, the trigram model is trained on
  "a large corpus", and the SC-NLM could be trained on any text. `--set sentences=DATA` adds the sentences of a dataset
  of plain text (`vsemb prepare --format sentences`) to both.
- The paper has no formula for the penalty of repeated words, see
  `vsemb.systems.language.candidates.repetition_penalty`.
- The weights of the score maximize CIDEr-D on validation images; the paper tunes them by hand.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import keras

from vsemb.data.batches import BatchSource
from vsemb.data.store import Split, StoredDataset
from vsemb.errors import invalid_argument
from vsemb.recipes.info import untyped
from vsemb.recipes.schema import Training
from vsemb.runs.run import Run
from vsemb.systems.captions.captioner import Captioner, CaptionOptions
from vsemb.systems.captions.sentences import SentenceBatches, Sentences, sentence_batches
from vsemb.systems.captions.task import CaptionBatches, NextWordJob, NextWordTask, WordText
from vsemb.systems.captions.validation import Likelihood, LikelihoodMeasure, PerplexityValidation
from vsemb.systems.language.additive import AdditivePart
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
from vsemb.systems.language.multiplicative import MultiplicativePart, Writing
from vsemb.systems.language.structure_content import StructureContentPart
from vsemb.text.tokenizers import Words
from vsemb.training.optimizers import SGD, Adam

if TYPE_CHECKING:
    from vsemb.recipes.info import RunInfo

_OPTIONS = ("beam", "n_best", "candidates")


@dataclass(frozen=True)
class Language(NextWordTask, kind="language"):
    """Language model trained on text only, optionally conditioned on embeddings of the text.

    Attributes:
        model: the language model.
        sentences: dataset of plain text, from `vsemb prepare --format sentences`. Training uses the texts of its split
            `train` in addition to the captions. Null for captions only.
    """

    inputs: ClassVar[tuple[str, ...]] = ("encoder",)
    evaluation: ClassVar[str] = "perplexity"
    run_fields: ClassVar[tuple[str, ...]] = ("encoder", "content_dim", "tag_names")
    ranks_candidates: ClassVar[bool] = True
    made_of: ClassVar[Mapping[str, str]] = {
        "encoder": "another encoder",
        "tags": "other parts of speech",
        "sentences": "other sentences",
    }

    batches: CaptionBatches = field(default_factory=CaptionBatches)
    model: LanguageModel = field(default_factory=LogBilinearPart)
    sentences: str | None = None

    def training_splits(self, dataset: StoredDataset) -> list[Split]:
        """Return the training splits of a dataset and of the plain text, if any."""
        plain = [] if self.sentences is None else [StoredDataset.open(self.sentences).split("train")]
        return [self.batches.training_split(dataset), *plain]

    @property
    def model_name(self) -> str:
        assert self.model.kind is not None
        return self.model.kind

    @property
    def how_written(self) -> str:
        return self.model.how_written

    def prepare(self, data: Any, out: Path, inputs: Mapping[str, Run]) -> LanguageJob:
        return LanguageJob(self, data, _find_encoder(self, out, inputs.get("encoder")))

    def build(self, vocabulary_size: int, info: RunInfo, dtype: str) -> ContextModel:
        keras.utils.set_random_seed(self.training.seed)
        model = self.model.build(vocabulary_size, info, self.l2, dtype)
        model.build()
        return model

    def fingerprints(self, info: RunInfo) -> list[Any]:
        return [untyped(info)["encoder"], untyped(info)["tag_names"]]

    def finish(self, run: Run, data: Any) -> None:
        if self.model.reads_content:
            prepare_generation(run, data)

    def refusal(self) -> str | None:
        return None if self.model.reads_content else "sees no image"

    def captioner(self, run: Run, options: CaptionOptions) -> Captioner:
        options.check_only(_OPTIONS, f"omitted for a run of the recipe {self.name!r}")
        return load_captioner(run, **options.chosen(_OPTIONS))

    def image_run(self, run: Run) -> Run:
        return require_encoder(run)

    def card_facts(self, run: Run) -> dict[str, Any]:
        encoder = encoder_of(run)
        facts = super().card_facts(run) if encoder is None else encoder.recipe.card_facts(encoder)
        note = "Its language model read sentences alone; images are looked at by their encoder."
        return {**facts, "notes": [note]}

    def likelihood(self, run: Run, dataset: StoredDataset, split: str) -> tuple[Sentences, Likelihood]:
        encoder, names = encoder_of(run), tags_of(run)
        sentences = read_sentences(dataset.split(split), run.tokenizer, encoder=encoder, names=names)
        return sentences, LikelihoodMeasure(run.model)(sentence_batches(sentences))


def _find_encoder(recipe: Language, out: Path, encoder: Run | None) -> Run | None:
    """Return the given encoder, or the encoder stored by an interrupted training."""
    if not recipe.model.reads_content:
        if encoder is not None:
            raise invalid_argument("inputs.encoder", str(encoder.path), f"omitted for {recipe.model.kind} models")
        return None
    if encoder is None and (out / ENCODER).exists():
        encoder = Run.open(out / ENCODER)
    if encoder is None:
        fix = "Train one with: vsemb train kiros2014 --data DATA --out RUN"
        raise invalid_argument("inputs.encoder", None, f"a run of kiros2014 for {recipe.name}", fix)
    check_encoder(encoder)
    return encoder


class LanguageJob(NextWordJob):
    """Training job of a `Language` recipe.

    Args:
        recipe: the recipe.
        dataset: dataset with splits `train` and `val`; for `sc-nlm` with parts of speech.
        encoder: run that embeds each sentence; None for a model without content vectors.

    Raises:
        VsembError: if the dataset lacks inputs of the model or of caption generation.
    """

    def __init__(self, recipe: Language, dataset: StoredDataset, encoder: Run | None) -> None:
        self._splits = recipe.training_splits(dataset)
        sources = [split.dataset for split in self._splits if split.dataset is not None]
        tags = [require_tags(source) for source in sources] if recipe.model.reads_tags else []
        if encoder is not None:
            # Requirements of caption generation are checked before hours of training.
            check_generation(recipe, dataset, encoder)
        super().__init__(recipe, dataset)
        self._encoder = encoder
        self._names: tuple[str, ...] = ()
        if tags:
            pairs = zip(tags, self._splits, strict=True)
            self._names = tag_names([of_caption for own, split in pairs for of_caption in own.of(split)])
        untyped(self.info).update(
            encoder=None if encoder is None else encoder.fingerprint,
            content_dim=None if encoder is None else encoder.embedding_dim,
            tags="+".join(own.fingerprint for own in tags) or None,
            sentences="+".join(source.fingerprint for source in sources[1:]) or None,
            tag_names=list(self._names) or None,
        )

    def keep(self, folder: Path) -> None:
        """Copy the encoder into the run directory."""
        if self._encoder is not None:
            keep_encoder(self._encoder, folder)

    def _sentences(self, split: Split) -> Sentences:
        return read_sentences(split, self.tokenizer, encoder=self._encoder, names=self._names)

    @cached_property
    def sentences(self) -> Sentences:
        """Sentences of the training splits."""
        return Sentences.joined([self._sentences(split) for split in self._splits])

    def training_texts(self) -> Iterator[str]:
        """Yield the captions of the training split, and the plain text."""
        return itertools.chain.from_iterable(split.captions for split in self._splits)

    def batches(self) -> BatchSource:
        """Return the training batches."""
        return SentenceBatches(self.sentences, batch_size=self.recipe.batches.size, seed=self.recipe.training.seed)

    def model(self, recipe: Any, dtype: str) -> ContextModel:
        """Build the model and set the word frequencies."""
        size = len(self.vocabulary)
        model = recipe.build(size, self.info, dtype)
        if recipe.model.frequency_bias:
            model.set_frequencies(self.sentences.word_counts(size))
        return model

    def validation(self) -> PerplexityValidation:
        """Return the callback that measures perplexity on the split `val`."""
        return PerplexityValidation(sentence_batches(self._sentences(self.val)))


def _variants(model: LanguageModel, paper: LanguageModel | None = None) -> dict[str, Language]:
    assert model.kind is not None
    recipe = Language(
        name=model.kind,
        variant="adam",
        paper="Kiros, Salakhutdinov, Zemel 2014, arXiv:1411.2539",
        text=WordText(tokenizer=Words(min_count=5, max_length=40)),
        model=model,
        optimizer=Adam(learning_rate=1e-3, global_clipnorm=5.0),
        batches=CaptionBatches(size=100),
        training=Training(epochs=20, patience=2),
    )
    sgd = SGD(learning_rate=0.1, global_clipnorm=5.0)
    return {"adam": recipe, "paper": replace(recipe, variant="paper", model=paper or model, optimizer=sgd)}


LOG_BILINEAR = _variants(LogBilinearPart())
ADDITIVE = _variants(AdditivePart())
MULTIPLICATIVE = _variants(MultiplicativePart())
SC_NLM = _variants(StructureContentPart(), paper=StructureContentPart(writing=Writing(sampled=True)))
