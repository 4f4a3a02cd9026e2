"""Options that captions bring to acts of the base: export, report, demonstration and search."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from vsemb import registry
from vsemb.demo.options import DemoOption
from vsemb.errors import invalid_argument
from vsemb.parts import Count, NonNegative, PathName
from vsemb.runs.options import ExportOption, ReportOption, SearchOption

if TYPE_CHECKING:
    from vsemb.runs.inputs import Query
    from vsemb.runs.run import Run
    from vsemb.runs.searching import SearchResult, SearchSession
    from vsemb.systems.captions.reranking import ImageReranker


def _require_captions(run: Run, options: Mapping[str, Any]) -> None:
    if isinstance(run.recipe, registry.load("vsemb.systems.captions.task:NextWordTask")):
        return
    for name, value in options.items():
        if value is not None:
            raise invalid_argument(name, value, "omitted for a run that writes no captions")


@dataclass(frozen=True)
class CaptionSearch(ExportOption, kind="captions"):
    """Set how a run that writes captions searches for them.

    Attributes:
        beam: beam width; default: the recipe's.
        n_best: captions per image; default: 5, at most the beam.
        length_penalty: divide log-probabilities by length to this power; default: the recipe's.
        max_words: maximum words per caption; default: the recipe's.
        candidates: candidate captions of sc-nlm; default: the recipe's.
    """

    beam: Count | None = None
    n_best: Count | None = None
    length_penalty: NonNegative | None = None
    max_words: Count | None = None
    candidates: Count | None = None

    def settings(self, run: Run) -> Mapping[str, Any]:
        from vsemb.systems.captions.captioner import CaptionOptions

        _require_captions(run, self.arguments())
        return {"options": CaptionOptions(**self.arguments())}


@dataclass(frozen=True)
class ReportedImages(ReportOption, kind="captions"):
    """Set which images a run that writes captions captions.

    Attributes:
        limit: images to caption, drawn at random; default: all, or 100 for slow captioners.
    """

    limit: Count | None = None

    def require(self, run: Run) -> None:
        _require_captions(run, self.arguments())


@dataclass(frozen=True)
class CaptionQueries(DemoOption, kind="captions"):
    """Captions of query images, by another run.

    Attributes:
        captions: directory of a run that writes captions; default: none.
    """

    captions: str | os.PathLike[str] | None = None

    def captioning(self) -> Run | None:
        if self.captions is None:
            return None
        from vsemb.systems.captions.captioning import open_captioning_run

        return open_captioning_run(self.captions)


@dataclass(frozen=True)
class RerankedSearch(SearchOption, kind="captions"):
    """Re-rank the first images of a text by the likelihood of the text as their caption.

    Attributes:
        rerank: run of multimodal-rnn that re-ranks; default: none.
        rerank_first: images that are re-ranked.
        rerank_weight: weight of the log-likelihood beside the score; `vsemb evaluate --protocol rerank` chooses one.
    """

    rerank: PathName | None = None
    rerank_first: Count = 20
    rerank_weight: NonNegative = 0.0156

    def check(self) -> None:
        if self.rerank is None:
            raise invalid_argument("rerank", None, "a run of multimodal-rnn, which re-ranks")

    @property
    def results_read(self) -> int:
        return self.rerank_first

    def require(self, query: Query, kind: str) -> None:
        if query.text is None or query.minus or query.plus or kind != "image":
            raise invalid_argument("rerank", self.rerank, "omitted unless a text alone searches images")

    def reordered(self, search: SearchSession, query: Query, results: Sequence[SearchResult]) -> list[SearchResult]:
        assert query.text is not None
        return self._reranker.reordered(search, query.text, results)

    @cached_property
    def _reranker(self) -> ImageReranker:
        from vsemb.runs.run import Run
        from vsemb.systems.captions.reranking import ImageReranker

        assert self.rerank is not None
        return ImageReranker(Run.open(self.rerank, "captions"), self.rerank_weight)
