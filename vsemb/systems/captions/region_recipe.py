"""The task of captions of regions: the multimodal RNN on snippets that an alignment cut captions into."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import keras
import numpy as np
import tensorflow as tf

from vsemb.data.batches import BatchSource
from vsemb.data.store import Dataset, Split
from vsemb.encoders.image import Affine
from vsemb.errors import invalid_argument
from vsemb.parts import NonNegative
from vsemb.runs.run import Run, read_status
from vsemb.systems.captions.cut_snippets import stored_snippets
from vsemb.systems.captions.multimodal_rnn import RecurrentDecoder
from vsemb.systems.captions.recipe import CaptionJob, CaptionTask
from vsemb.systems.captions.sentences import SentenceBatches, sentence_batches
from vsemb.systems.captions.snippets import SnippetImages, Snippets, check_same_regions, snippet_sentences
from vsemb.systems.captions.task import WordBatches
from vsemb.systems.captions.validation import PerplexityValidation
from vsemb.systems.regions.image_tower import (
    CachedRegions,
    RegionImages,
    keeps_network,
    kept_extractor,
    regions_of,
)
from vsemb.systems.regions.signature import WholeImageInput

#: Folder of the snippets in a run directory, by split.
SNIPPETS = "snippets"
# Regions whose statistics stand for those of all.
_REGIONS = 50_000


class WholeImages(RegionImages):
    """Features of a split's images: those of the first region, which is the whole image."""

    @property
    def spec(self) -> tf.TensorSpec:
        return tf.TensorSpec(super().spec.shape[1:], tf.float32)

    def gather(self, rows: np.ndarray) -> np.ndarray:
        return super().gather(rows)[:, 0]


@dataclass(frozen=True)
class SnippetRegions(CachedRegions, kind="snippet-regions"):
    """Cached regions of images, see `vsemb regions`, of which a captioner reads one at a time.

    A whole image is its first region.

    Attributes:
        projection: how a region's features become what the decoder reads.
    """

    produces: ClassVar[str] = "region"

    projection: Affine = field(default_factory=Affine)

    def images(self, split: Split, store: Any, *, training: bool = False, service: str | None = None) -> WholeImages:
        return WholeImages(store, split, 1)

    def input_shape(self, info: Mapping[str, Any]) -> tuple[int | None, ...]:
        return None, info["feature_dim"]

    def build(self, dim: int | None, info: Mapping[str, Any], *, seed: int, dtype: str) -> keras.layers.Layer:
        assert dim is not None
        size, dropout, standardize = info["feature_dim"], self.dropout, self.standardize
        return self.projection.build(size, dim, dropout=dropout, standardize=standardize, dtype=dtype)

    def image_input(self, path: Path) -> WholeImageInput | None:
        if not keeps_network(path):
            return None
        return WholeImageInput.of(kept_extractor(path, 1, source="grid", rank="objectness"))


@dataclass(frozen=True)
class RegionCaptioning(CaptionTask, kind="region-captions"):
    """A multimodal recurrent network that is trained on regions and the snippets of captions that describe them.

    Attributes:
        image: the regions.
        affinity: what two neighbouring words on one region are worth when captions are cut into snippets; null
            chooses it by the scores of the alignment.
    """

    inputs: ClassVar[tuple[str, ...]] = ("alignment",)
    made_of: ClassVar[Mapping[str, str]] = {"alignment": "snippets of another alignment"}

    batches: WordBatches = field(default_factory=WordBatches)
    image: SnippetRegions = field(default_factory=SnippetRegions)
    decoder: RecurrentDecoder = field(default_factory=RecurrentDecoder)
    affinity: NonNegative | None = None

    def prepare(self, data: Any, out: Path, inputs: Mapping[str, Any]) -> SnippetJob:
        return SnippetJob(self, data, out, inputs.get("alignment"))

    def card_facts(self, run: Any) -> dict[str, Any]:
        note = "It was trained on phrases of regions; a served caption is of the whole image."
        return {**super().card_facts(run), "notes": [note]}


class SnippetJob(CaptionJob):
    """What `RegionCaptioning` makes of a dataset.

    Args:
        recipe: the recipe.
        dataset: with splits `train` and `val`, and cached regions.
        out: the run directory, where a training that goes on finds the snippets that it kept.
        alignment: the run of `dvsa` that cuts captions into snippets; None for those that were kept.

    Raises:
        InvalidArgumentError: without an alignment where none were kept.
        DataError: if the alignment reads other regions.
    """

    unit = "snippets"

    def __init__(self, recipe: RegionCaptioning, dataset: Dataset, out: Path, alignment: Run | None) -> None:
        super().__init__(recipe, dataset)
        self._out, self._alignment = out / SNIPPETS, alignment
        if alignment is not None:
            check_same_regions(regions_of(alignment, dataset).fingerprint, self.store.fingerprint)
            self.info["alignment"] = alignment.fingerprint
        elif self._out.exists():
            self.info["alignment"] = read_status(out, ("alignment",))["alignment"]
        else:
            fix = "Name it with --alignment RUN; train one with: vsemb train dvsa"
            raise invalid_argument("alignment", None, "a run of dvsa, which cuts captions into snippets", fix)

    @cached_property
    def snippets(self) -> dict[str, Snippets]:
        """The snippets of the splits `train` and `val`, which take minutes to cut."""
        return {name: self._snippets(name) for name in ("train", "val")}

    def _snippets(self, name: str) -> Snippets:
        if self._alignment is None:
            return Snippets.load(self._out / name)
        affinity = self.recipe.affinity
        return stored_snippets(self._out / name, self._alignment, self.dataset, self.dataset.split(name), affinity)

    def keep(self, folder: Path) -> None:
        """Writes what new images are captioned with, and the snippets."""
        super().keep(folder)
        for name, snippets in self.snippets.items():
            snippets.save(folder / SNIPPETS / name)

    def texts(self) -> list[str]:
        """Returns the training snippets."""
        return self.snippets["train"].texts

    def features(self) -> np.ndarray:
        """Returns the features of some training regions."""
        train = self.snippets["train"]
        some = np.arange(0, len(train), max(1, len(train) // _REGIONS))
        return SnippetImages(train, self.store, memory=0).gather(some)

    def batches(self) -> BatchSource:
        """Returns the training batches."""
        size, seed = self.recipe.batches.size, self.recipe.training.seed
        sentences = snippet_sentences(self.snippets["train"], self.store, self.tokenizer)
        return SentenceBatches(sentences, batch_size=size, seed=seed, unit=self.unit)

    def validation(self) -> PerplexityValidation:
        """Returns the callback that measures the snippets of the split `val`."""
        sentences = snippet_sentences(self.snippets["val"], self.store, self.tokenizer)
        return PerplexityValidation(sentence_batches(sentences))
