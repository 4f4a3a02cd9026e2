"""Protocols `captions`, `region-captions`, `perplexity`, `likelihood` and `rerank` of `vsemb.evaluate`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from vsemb.errors import DataError, invalid_argument, printable
from vsemb.parts import Count, NonNegative, PathName, Whole
from vsemb.printing import table
from vsemb.results import Table
from vsemb.runs.protocols import RETRIEVAL, Protocol

if TYPE_CHECKING:
    from vsemb.data.store import StoredDataset
    from vsemb.evaluation import RetrievalMetrics
    from vsemb.runs.run import Run
    from vsemb.systems.captions.caption_measure import CaptionTable, MeasuredCaptions
    from vsemb.systems.captions.captioner import CaptionOptions
    from vsemb.systems.captions.reranking import Reranking
    from vsemb.systems.captions.validation import PerplexityRow

_WRITES_WORDS = ("vsemb.systems.captions.task:NextWordTask",)


@dataclass(frozen=True)
class _Captions(Protocol):
    """Options of both protocols of captions.

    Attributes:
        beside: other runs to include in the table.
        beam: beam width; default: the recipe's.
        length_penalty: divide log-probabilities by length to this power; default: the recipe's.
        limit: the first images of the split, this many; default: all.
        meteor: measure METEOR, which needs Java and time.
    """

    beside: tuple[PathName, ...] = ()
    beam: Count | None = None
    length_penalty: NonNegative | None = None
    limit: Count | None = None
    meteor: bool = True

    @property
    def search(self) -> CaptionOptions:
        """How captions are searched for."""
        from vsemb.systems.captions.captioner import CaptionOptions

        return CaptionOptions(beam=self.beam, length_penalty=self.length_penalty)


@dataclass(frozen=True)
class Captions(_Captions, kind="captions"):
    """BLEU, METEOR, ROUGE-L, CIDEr-D and novelty of generated captions.

    Attributes:
        examples: images whose captions are shown.
        references: also score one reference caption against the others.
        clip_score: run by whose embeddings CLIPScore and RefCLIPScore are computed; default: none.
    """

    examples: Whole = 0
    references: bool = False
    clip_score: PathName | None = None

    tasks: ClassVar[Sequence[str]] = _WRITES_WORDS

    def measure(self, run: Run, data: StoredDataset, split: str) -> Table:
        from vsemb.runs.run import Run
        from vsemb.systems.captions.caption_measure import measure_captions
        from vsemb.systems.captions.captioning import open_captioning_run

        captions = measure_captions(
            [open_captioning_run(path) for path in (str(run.path), *self.beside)],
            data,
            split,
            options=self.search,
            meteor=self.meteor,
            clip=None if self.clip_score is None else Run.open(self.clip_score),
            limit=self.limit,
            references=self.references,
        )
        examples = [_example(captions, image) for image in range(min(self.examples, len(captions.keys)))]
        return Table("\n\n".join([captions_table(captions), *examples]), captions.to_json())


@dataclass(frozen=True)
class RegionCaptions(_Captions, kind="region-captions"):
    """Captions of annotated regions, beside human agreement and a ranking baseline.

    Attributes:
        annotations: file with texts of regions; default: phrases of captions that name objects.
        image_list: COCO annotations with names and sizes of the images.
        alignment: dvsa run that ranks training snippets, as a baseline.
    """

    annotations: PathName | None = None
    image_list: PathName | None = None
    alignment: PathName | None = None

    tasks: ClassVar[Sequence[str]] = ("vsemb.systems.captions.recipe:CaptionTask",)

    def check(self) -> None:
        if self.image_list is not None and self.annotations is None:
            raise invalid_argument("image_list", self.image_list, "omitted without annotations")

    def measure(self, run: Run, data: StoredDataset, split: str) -> Table:
        from vsemb.runs.run import Run
        from vsemb.systems.captions.captioning import open_captioning_run
        from vsemb.systems.captions.region_measure import measure_region_captions
        from vsemb.systems.captions.region_texts import named_region_texts, read_region_texts

        part = data.split(split)
        if self.annotations is None:
            texts = named_region_texts(part)
        else:
            texts = read_region_texts(self.annotations, data, part, self.image_list)
        captions = measure_region_captions(
            [run, *map(open_captioning_run, self.beside)],
            part,
            texts,
            options=self.search,
            alignment=None if self.alignment is None else Run.open(self.alignment),
            limit=self.limit,
            meteor=self.meteor,
        )
        return Table(captions_table(captions, "regions"), captions.to_json())


@dataclass(frozen=True)
class Perplexity(Protocol, kind="perplexity"):
    """Perplexity of the captions of a split.

    Attributes:
        beside: other runs to include in the table.
    """

    beside: tuple[PathName, ...] = ()

    tasks: ClassVar[Sequence[str]] = _WRITES_WORDS

    def measure(self, run: Run, data: StoredDataset, split: str) -> Table:
        from vsemb.runs.run import Run
        from vsemb.systems.captions.validation import difference_of, measure_perplexities

        runs = [run, *map(Run.open, self.beside)]
        for run in runs:
            if not self.measures(run.recipe):
                raise DataError(
                    f"{run.path} must be a run that writes words, such as one of multimodal-rnn or sc-nlm; it was "
                    f"trained with the recipe {run.recipe.name!r}, which is for {run.recipe.kind}."
                )
        rows = measure_perplexities(runs, data, split)
        difference = difference_of(rows[: len(runs)])
        values = {"split": split, "difference": difference, "measured": [row.to_json() for row in rows]}
        return Table(perplexity_table(rows, split, difference), values)


@dataclass(frozen=True)
class Likelihood(Protocol, kind="likelihood"):
    """Retrieval by the likelihood of captions, as in m-RNN.

    Every caption is scored for every image, which takes a minute for 100 images on a CPU core.

    Attributes:
        first: rank the first images of the split, this many, and their captions; default: all.
        prior: training images that give the probability of a caption.
    """

    first: Count | None = None
    prior: Count = 100

    tasks: ClassVar[Sequence[str]] = ("vsemb.systems.captions.recipe:Captioning",)

    def measure(self, run: Run, data: StoredDataset, split: str) -> RetrievalMetrics:
        from vsemb.systems.captions.likelihood_ranking import measure_ranking

        return measure_ranking(run, data, split, first=self.first, prior=self.prior)


@dataclass(frozen=True)
class Rerank(Protocol, kind="rerank"):
    """Retrieval in two stages: a caption model re-ranks the first results by the likelihood of captions.

    The weight of the log-likelihood is chosen on another split than the measured one.

    Attributes:
        captioner: run of multimodal-rnn that re-ranks.
        rerank_first: results per query that are re-ranked.
        weight: weight of the log-likelihood beside the score; default: the best on the split `tune`.
        tune: split on which the weight is chosen.
        tune_images: first images of that split on which it is chosen, this many.
        prior: training images that give the probability of a caption.
    """

    captioner: PathName | None = None
    rerank_first: Count = 20
    weight: NonNegative | None = None
    tune: str = "train"
    tune_images: Count = 500
    prior: Count = 100

    tasks: ClassVar[Sequence[str]] = (RETRIEVAL,)

    def check(self) -> None:
        if self.captioner is None:
            raise invalid_argument("captioner", None, "a run of multimodal-rnn, which re-ranks")

    def measure(self, run: Run, data: StoredDataset, split: str) -> Reranking:
        from vsemb.runs.run import Run
        from vsemb.systems.captions.reranking import measure_reranking

        assert self.captioner is not None
        captioner = Run.open(self.captioner, "captions")
        return measure_reranking(run, captioner, data, split, **self.arguments("captioner"))


def captions_table(captions: CaptionTable, unit: str = "images") -> str:
    """Format caption metrics as a table, in percent, one row per run or baseline, with notes below.

    Args:
        captions: see `vsemb.systems.captions.caption_measure.measure_captions`.
        unit: name of the captioned items, such as `images`.
    """
    scores = [_scores(row) for row in captions.rows]
    # A score that no row has is left out.
    shown = [name for name in scores[0] if any(row[name] is not None for row in scores)]
    cells = []
    for row, values in zip(captions.rows, scores, strict=True):
        percents = ["" if values[name] is None else f"{values[name]:.1f}" for name in shown]
        cells.append([row.name, *percents, str(row.metrics.vocabulary), f"{row.metrics.words:.1f}"])
    header = [f"{captions.split}: {len(captions.keys)} {unit}", *shown, "vocabulary", "words"]
    lines = [table(header, cells)]
    words = captions.rows[0].metrics.train_vocabulary
    if words is not None:
        lines.append(f"The training captions have {words:,} different words.")
    return "\n".join([*lines, *captions.notes])


def _scores(row: MeasuredCaptions) -> dict[str, float | None]:
    metrics = row.metrics
    return {
        **{f"B-{order}": value for order, value in enumerate(metrics.bleu, 1)},
        "METEOR": metrics.meteor,
        "ROUGE-L": metrics.rouge_l,
        "CIDEr": metrics.cider,
        "CLIP-S": metrics.clip_score,
        "RefCLIP-S": metrics.ref_clip_score,
        "true": row.true,
        "novel": metrics.novelty,
    }


def _example(captions: CaptionTable, image: int) -> str:
    """Format the captions of one image, each with its nearest training sentence."""
    rows = []
    for row in captions.rows:
        text = row.captions[image] or "(none)"
        if row.truths is not None:
            text += "  (true)" if row.truths[image] else "  (not true)"
        rows.append(["", row.name, text])
        nearest = captions.nearest_sentence(row, image)
        if row.recipe is not None and nearest is not None:
            rows.append(["", "  nearest training sentence", nearest])
    rows.append(["", "a reference", captions.references[image][0]])
    return printable(table([captions.keys[image], "", ""], rows, text=(0, 1, 2)))


def perplexity_table(rows: Sequence[PerplexityRow], split: str, difference: str | None) -> str:
    """Format perplexities as a table, one row per run or baseline.

    Args:
        rows: see `vsemb.systems.captions.validation.measure_perplexities`.
        split: name of the split.
        difference: the reason why the rows cannot be compared; None if they can.
    """
    cells = [
        [
            row.name,
            row.decoder,
            f"{row.perplexity:.2f}",
            f"{row.bits:.3f}",
            f"{row.words:,}",
            f"{100 * row.unknown:.1f} %",
        ]
        for row in rows
    ]
    header = [split, "model", "perplexity", "bits per word", "words", "unknown"]
    text = table(header, cells, text=(0, 1))
    return text if difference is None else f"{text}\n{difference}"
