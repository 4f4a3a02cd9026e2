"""Tasks of captions: multimodal recurrent networks for captions of images, or of regions.

The task of regions is trained on snippets, which an alignment cuts from captions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import keras
import numpy as np

from vsemb.data.batches import BatchSource, PairBatches
from vsemb.data.sources import ImageSource
from vsemb.data.store import Split, StoredDataset
from vsemb.data.tokens import encoded_captions
from vsemb.encoders.image import Affine
from vsemb.encoders.text_encoder import TextCorpus, TextSpec, WordVectors
from vsemb.errors import invalid_argument
from vsemb.ops.tensorflow import tf
from vsemb.parts import NonNegative, Part, between
from vsemb.recipes.info import feature_dim, untyped
from vsemb.recipes.towers import Features, ImageTower
from vsemb.runs.run import Run, read_status
from vsemb.systems.captions.captioner import Captioner, CaptionOptions, NeuralCaptioner
from vsemb.systems.captions.decoding import Sampler, SearchOptions
from vsemb.systems.captions.multimodal_rnn import Decoder, MultimodalRNN, RecurrentDecoder
from vsemb.systems.captions.sentences import SentenceBatches, Sentences, sentence_batches
from vsemb.systems.captions.snippets import (
    SideBySide,
    SnippetImages,
    Snippets,
    check_same_regions,
    snippet_sentences,
    stored_snippets,
)
from vsemb.systems.captions.task import CaptionBatches, NextWordJob, NextWordTask, WordBatches, WordText
from vsemb.systems.captions.validation import (
    CaptionValidation,
    Likelihood,
    LikelihoodMeasure,
    Perplexity,
    PerplexityValidation,
)
from vsemb.systems.regions.image_tower import CachedRegions, RegionImages, keeps_network, kept_extractor, regions_of
from vsemb.systems.regions.region_store import RegionStore
from vsemb.systems.regions.signature import WholeImageInput

if TYPE_CHECKING:
    from vsemb.recipes.info import RunInfo
    from vsemb.runs.run import Run

# Supported options for beam search and for sampling; other options are rejected.
_SEARCH = ("beam", "n_best", "length_penalty", "max_words")
_DRAWS = ("n_best", "max_words", "sample", "temperature", "seed")
N_BEST = 5


@dataclass(frozen=True)
class CaptionText(WordText):
    """The texts and their word vectors.

    Attributes:
        words: the word vectors.
    """

    words: WordVectors = field(default_factory=WordVectors)


@dataclass(frozen=True)
class BeamSearch(Part):
    """Options of the beam search.

    Attributes:
        beam: hypotheses of the beam search; 1 for greedy search.
        length_penalty: exponent p of the score, log-probability / words ** p, which orders captions of different
            lengths; 0 for no penalty.
        max_words: maximum number of words per caption.
    """

    beam: Annotated[int, between(1, 1024)] = 7
    length_penalty: NonNegative = 0.0
    max_words: Annotated[int, between(1, 512)] = 20


@dataclass(frozen=True)
class PairBatchesOfCaptions(CaptionBatches):
    """Batches of pairs of an image and one of its captions.

    Attributes:
        captions: captions per image and epoch: `all`, or `one`, drawn at random in each epoch.
    """

    captions: Literal["all", "one"] = "all"


@dataclass(frozen=True)
class CaptionTask(NextWordTask):
    """A multimodal recurrent network; base of the tasks that train one.

    Attributes:
        text: the texts and their word vectors.
        image: the image tower.
        decoder: the network that writes captions.
        search: options of the beam search.
    """

    evaluation: ClassVar[str] = "captions"
    run_fields: ClassVar[tuple[str, ...]] = ("features", "feature_dim")

    text: CaptionText = field(default_factory=CaptionText)
    image: ImageTower = field(default_factory=Features)
    decoder: Decoder = field(default_factory=RecurrentDecoder)
    search: BeamSearch = field(default_factory=BeamSearch)

    @property
    def model_name(self) -> str:
        return self.decoder.cell

    @property
    def how_written(self) -> str:
        return f"a beam of {self.search.beam}"

    def build(self, vocabulary_size: int, info: RunInfo, dtype: str) -> MultimodalRNN:
        keras.utils.set_random_seed(self.training.seed)
        image_encoder = self.decoder.image_encoder(self.image, info, self.training.seed, dtype)
        words = self.text.words.build(TextSpec(vocabulary_size, self.text.tokenizer.length, info), dtype)
        model = self.decoder.build(image_encoder, words, self.l2)
        model.build({"image": self.image.input_shape(info), "text": (None, None)})
        return model

    def image_run(self, run: Run) -> Run:
        return run

    def captioner(self, run: Run, options: CaptionOptions) -> Captioner:
        search = self.search.arguments() | options.chosen(_SEARCH)
        sampler = None
        if options.sample is not None:
            options.check_only(_DRAWS, "omitted when words are sampled")
            sampler = Sampler.parse(options.sample, temperature=options.temperature, seed=options.seed)
            # Greedy sampling always returns the same caption.
            search.setdefault("n_best", 1 if options.sample == "greedy" else N_BEST)
            search |= {"beam": search["n_best"], "length_penalty": 0.0}
        else:
            reason = "omitted where a beam is searched; name a way to draw words as `sample`"
            if options.candidates is not None:
                reason = f"omitted for a run of the recipe {self.name!r}"
            options.check_only(_SEARCH, reason)
            search.setdefault("n_best", min(N_BEST, search["beam"]))
        return NeuralCaptioner(run.model, run.vocabulary, SearchOptions(**search), sampler)

    def likelihood(self, run: Run, dataset: StoredDataset, split: str) -> tuple[Sentences, Likelihood]:
        part = dataset.split(split)
        images = run.images_of(dataset, part)
        sentences = Sentences(*encoded_captions(part, run.tokenizer), images=images, image_rows=part.caption_rows)
        return sentences, LikelihoodMeasure(run.model)(sentence_batches(sentences))


@dataclass(frozen=True)
class Captioning(CaptionTask, kind="captions"):
    """A multimodal recurrent network that is trained on images and their captions.

    Attributes:
        validation: validation measure that selects the best epoch.
    """

    batches: PairBatchesOfCaptions = field(default_factory=PairBatchesOfCaptions)
    validation: CaptionValidation = field(default_factory=Perplexity)

    def check(self) -> None:
        super().check()
        if self.image.produces != "vector":
            raise invalid_argument("image", self.image.kind, "a part that makes one vector per image")
        self.decoder.check_image(self.image)

    def prepare(self, data: Any, out: Path, inputs: Mapping[str, Run]) -> ImageJob:
        return ImageJob(self, data)

    def best(self, info: RunInfo) -> str:
        return self.validation.describe(info)


class CaptionJob(NextWordJob):
    """Training job of a captions task; base of the jobs for images and for regions.

    Args:
        recipe: the recipe.
        dataset: a dataset with splits `train` and `val`.
    """

    def __init__(self, recipe: CaptionTask, dataset: StoredDataset) -> None:
        super().__init__(recipe, dataset)
        self.store = recipe.image.open(dataset)
        untyped(self.info).update(recipe.image.describe(self.store))

    def keep(self, folder: Path) -> None:
        """Write the files needed to caption new images."""
        self.recipe.image.keep(self.store, folder)

    def encoded(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the token ids of the training texts, see `encoded_captions`."""
        return encoded_captions(self.train, self.tokenizer)

    def features(self) -> np.ndarray | None:
        """Return features for the image statistics, (n, dim) float32; None without stored features."""
        return None if self.store is None else self.recipe.image.features(self.store, self.train)

    def model(self, recipe: Any, dtype: str) -> MultimodalRNN:
        """Build the model and set feature statistics, word vectors and word frequencies."""
        model = recipe.build(len(self.vocabulary), self.info, dtype)
        recipe.image.initialize(model.image_encoder, self.features(), self.store)
        ids, offsets = self.encoded()
        seed, words = recipe.training.seed, recipe.text.words
        words.initialize(model.words, TextCorpus(self.vocabulary, ids, offsets, True, seed, self.dataset))
        if recipe.decoder.frequency_bias:
            model.set_frequencies(Sentences(ids, offsets).word_counts(len(self.vocabulary)))
        return model


class ImageJob(CaptionJob):
    """Training job of `Captioning`.

    Args:
        recipe: the recipe.
        dataset: a dataset with splits `train` and `val`.
    """

    def __init__(self, recipe: Captioning, dataset: StoredDataset) -> None:
        super().__init__(recipe, dataset)
        self.monitor = recipe.validation.monitor

    def batches(self) -> BatchSource:
        """Return the training batches."""
        recipe = self.recipe
        images = recipe.image.images(self.train, self.store, training=True, service=self.data_service)
        return PairBatches(
            self.train,
            images,
            self.tokenizer,
            batch_size=recipe.batches.size,
            captions=recipe.batches.captions,
            seed=recipe.training.seed,
        )

    def validation(self) -> PerplexityValidation:
        """Return the callback that measures the validation split."""
        images = self.recipe.image.images(self.val, self.store)
        encoded = encoded_captions(self.val, self.tokenizer)
        batches = sentence_batches(Sentences(*encoded, images=images, image_rows=self.val.caption_rows))
        return self.recipe.validation.build(batches, self.val, images, self.tokenizer, self.recipe.search.max_words)


#: Folder of the snippets in a run directory, by split.
SNIPPETS = "snippets"
# Number of regions for the feature statistics.
_REGIONS = 50_000


class WholeImages(RegionImages):
    """Features of the images of a split, from their first region, the whole image."""

    @property
    def spec(self) -> tf.TensorSpec:
        return tf.TensorSpec(super().spec.shape[1:], tf.float32)

    def gather(self, rows: np.ndarray) -> np.ndarray:
        return super().gather(rows)[:, 0]


@dataclass(frozen=True)
class SnippetRegions(CachedRegions, kind="snippet-regions"):
    """Cached regions of images, see `vsemb regions`, as single inputs of a captioner.

    The whole image is the first region.

    Attributes:
        projection: the map from region features to the input of the decoder.
    """

    produces: ClassVar[str] = "region"

    projection: Affine = field(default_factory=Affine)

    def images(self, split: Split, store: Any, *, training: bool = False, service: str | None = None) -> ImageSource:
        return WholeImages(store, split, 1)

    def snippet_images(self, snippets: Snippets, store: RegionStore, *, memory: int = 4 << 30) -> ImageSource:
        """Return the inputs of the regions of snippets, one row per snippet; see `SnippetImages`."""
        return SnippetImages(snippets, store, memory=memory)

    def inputs(self, regions: np.ndarray) -> np.ndarray:
        """Return the inputs of the regions of one image, see `NextWordTask.region_inputs`."""
        return regions

    def input_shape(self, info: RunInfo) -> tuple[int | None, ...]:
        return None, feature_dim(info)

    def build(self, dim: int | None, info: RunInfo, *, seed: int, dtype: str) -> keras.layers.Layer:
        assert dim is not None
        size, dropout, standardize = self.input_shape(info)[-1], self.dropout, self.standardize
        return self.projection.build(size, dim, dropout=dropout, standardize=standardize, dtype=dtype)

    def image_input(self, path: Path) -> WholeImageInput | None:
        if not keeps_network(path):
            return None
        return WholeImageInput.of(kept_extractor(path, 1, source="grid", rank="objectness"))


class WholeImageTwice(WholeImageInput):
    """Image bytes to the features of the whole image, in place of a region and beside it."""

    def __call__(self, encoded: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        features, valid = super().__call__(encoded)
        return tf.concat([features, features], axis=-1), valid


@dataclass(frozen=True)
class RegionsInContext(SnippetRegions, kind="regions-in-context"):
    """Cached regions, each with the whole image as its context: [CNN(region); CNN(image)] is the input of the decoder.

    Karpathy and Fei-Fei 2015, section 6.4: "concatenate the fullframe feature CNN vector to the vector of the region
    of interest, giving 8192-dimensional input vector". The whole image has itself as context.
    """

    def images(self, split: Split, store: Any, *, training: bool = False, service: str | None = None) -> ImageSource:
        whole = super().images(split, store)
        return SideBySide(whole, whole)

    def snippet_images(self, snippets: Snippets, store: RegionStore, *, memory: int = 4 << 30) -> ImageSource:
        regions = super().snippet_images(snippets, store, memory=memory)
        of_whole_images = replace(snippets, regions=np.zeros_like(snippets.regions))
        return SideBySide(regions, super().snippet_images(of_whole_images, store, memory=memory))

    def inputs(self, regions: np.ndarray) -> np.ndarray:
        return np.concatenate([regions, np.broadcast_to(regions[:1], regions.shape)], axis=-1)

    def input_shape(self, info: RunInfo) -> tuple[int | None, ...]:
        return None, 2 * feature_dim(info)

    def image_input(self, path: Path) -> WholeImageTwice | None:
        whole = super().image_input(path)
        return None if whole is None else WholeImageTwice.of(whole.extractor)


@dataclass(frozen=True)
class RegionCaptioning(CaptionTask, kind="region-captions"):
    """A multimodal recurrent network that is trained on regions and the snippets of captions that describe them.

    Attributes:
        image: the regions.
        affinity: score of two adjacent words on one region, used when captions are cut into snippets; null to choose
            it from the scores of the alignment.
    """

    inputs: ClassVar[tuple[str, ...]] = ("alignment",)
    made_of: ClassVar[Mapping[str, str]] = {"alignment": "snippets of another alignment"}

    batches: WordBatches = field(default_factory=WordBatches)
    image: SnippetRegions = field(default_factory=SnippetRegions)
    decoder: RecurrentDecoder = field(default_factory=RecurrentDecoder)
    affinity: NonNegative | None = None

    def prepare(self, data: Any, out: Path, inputs: Mapping[str, Run]) -> SnippetJob:
        return SnippetJob(self, data, out, inputs.get("alignment"))

    def region_inputs(self, regions: np.ndarray) -> np.ndarray:
        return self.image.inputs(regions)

    def card_facts(self, run: Run) -> dict[str, Any]:
        note = "It was trained on phrases of regions; a served caption is of the whole image."
        return {**super().card_facts(run), "notes": [note]}


class SnippetJob(CaptionJob):
    """Training job of `RegionCaptioning`.

    Args:
        recipe: the recipe.
        dataset: a dataset with splits `train` and `val`, and cached regions.
        out: the run directory; a resumed training reads its stored snippets.
        alignment: the run of `dvsa` that cuts captions into snippets; None for the stored snippets.

    Raises:
        InvalidArgumentError: if there are neither an alignment nor stored snippets.
        DataError: if the alignment reads other regions.
    """

    unit = "snippets"

    def __init__(self, recipe: RegionCaptioning, dataset: StoredDataset, out: Path, alignment: Run | None) -> None:
        super().__init__(recipe, dataset)
        self._out, self._alignment = out / SNIPPETS, alignment
        if alignment is not None:
            check_same_regions(regions_of(alignment, dataset).fingerprint, self.store.fingerprint)
            untyped(self.info)["alignment"] = alignment.fingerprint
        elif self._out.exists():
            untyped(self.info)["alignment"] = read_status(out, ("alignment",))["alignment"]
        else:
            fix = "Train one with: vsemb train dvsa --data DATA --out RUN"
            raise invalid_argument("inputs.alignment", None, "a run of dvsa, which cuts captions into snippets", fix)

    @cached_property
    def snippets(self) -> dict[str, Snippets]:
        """Snippets of the splits `train` and `val`; cutting takes minutes."""
        return {name: self._snippets(name) for name in ("train", "val")}

    def _snippets(self, name: str) -> Snippets:
        if self._alignment is None:
            return Snippets.load(self._out / name)
        affinity = self.recipe.affinity
        return stored_snippets(self._out / name, self._alignment, self.dataset, self.dataset.split(name), affinity)

    def keep(self, folder: Path) -> None:
        """Write the files needed to caption new images, and the snippets."""
        super().keep(folder)
        for name, snippets in self.snippets.items():
            snippets.save(folder / SNIPPETS / name)

    def encoded(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the token ids of the training snippets."""
        return self.tokenizer.encode(self.snippets["train"].texts)

    def features(self) -> np.ndarray:
        """Return the features of some training regions."""
        train = self.snippets["train"]
        some = np.arange(0, len(train), max(1, len(train) // _REGIONS))
        return self.recipe.image.snippet_images(train, self.store, memory=0).gather(some)

    def batches(self) -> BatchSource:
        """Return the training batches."""
        size, seed = self.recipe.batches.size, self.recipe.training.seed
        return SentenceBatches(self._sentences("train"), batch_size=size, seed=seed, unit=self.unit)

    def validation(self) -> PerplexityValidation:
        """Return the callback that measures the snippets of the validation split."""
        return PerplexityValidation(sentence_batches(self._sentences("val")))

    def _sentences(self, name: str) -> Sentences:
        snippets = self.snippets[name]
        return snippet_sentences(snippets, self.recipe.image.snippet_images(snippets, self.store), self.tokenizer)
