"""Annotation `dependencies` of `vsemb.annotate`: the dependency tree of every caption."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from vsemb.console import say
from vsemb.data.annotating import Annotation
from vsemb.errors import invalid_argument
from vsemb.parts import Count, PathName
from vsemb.results import Table

if TYPE_CHECKING:
    from vsemb.data.store import StoredDataset


@dataclass(frozen=True)
class Dependencies(Annotation, kind="dependencies"):
    """Dependency trees, for recipes that read trees.

    The trees are written to DATA/parses. They come from a spaCy pipeline, which is copied beside them for new
    sentences, or from CoNLL-U files of any parser, such as Stanza, UDPipe or CoreNLP. With both, trees come from the
    files, and the pipeline parses new sentences. A sentence is matched to its caption by sent_id. Without ids, the
    sentences must be all captions, in order. After an interruption, the same command resumes.

    Attributes:
        model: installed spaCy pipeline, or its folder.
        conllu: CoNLL-U files with trees of all captions, plain or .gz.
        processes: parsing processes, each with its own pipeline; default: 1.
    """

    model: PathName | None = None
    conllu: tuple[PathName, ...] = ()
    processes: Count | None = None

    def check(self) -> None:
        if self.model is None and not self.conllu:
            raise invalid_argument("model", None, "a spaCy pipeline, or omitted with files of trees (conllu)")
        if self.conllu and self.processes is not None:
            raise invalid_argument("processes", self.processes, "omitted with conllu, which does not parse")

    def annotate(self, dataset: StoredDataset, overwrite: bool) -> Table:
        from vsemb.systems.trees.parsers import open_parser
        from vsemb.systems.trees.parsing import describe, import_conllu, parse_dataset

        parser = None if self.model is None else open_parser(self.model, report=say)
        if self.conllu:
            done = import_conllu(dataset, self.conllu, parser=parser, overwrite=overwrite, report=say)
        else:
            assert parser is not None
            done = parse_dataset(dataset, parser, processes=self.processes or 1, overwrite=overwrite, report=say)
        values = describe(dataset, done)
        splits = ", ".join(f"{name} {count:,}" for name, count in values["splits"].items())
        lines = [
            f"trees   {values['trees']:,} ({splits})",
            f"words   {values['words_mean']:.1f} on average, {values['words_max']} at most",
            f"depth   {values['depth_mean']:.1f} on average, {values['depth_max']} at most",
            f"parser  {values['parser_name'] or 'not recorded; name a model to parse new sentences'}",
        ]
        if values["agreement"] is not None:
            lines.append(f"        gives the same tree for {100 * values['agreement']:.1f} % of sampled captions")
        if values["captions_per_second"] is not None:
            lines.append(f"speed   {values['captions_per_second']:,.0f} captions/s")
        lines += [f"where   {values['directory']}", f"next    {values['next']}"]
        return Table("\n".join(lines), values)
