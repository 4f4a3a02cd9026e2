"""Annotation `pos-tags` of `vsemb.annotate`: the part of speech of every word of a caption."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from vsemb.console import say
from vsemb.data.annotating import Annotation
from vsemb.parts import PathName
from vsemb.results import Table

if TYPE_CHECKING:
    from vsemb.data.store import StoredDataset

# Tags that are shown, the most frequent first.
_SHOWN = 5


@dataclass(frozen=True)
class PosTags(Annotation, kind="pos-tags"):
    """Parts of speech, for recipes that plan sentences.

    Penn Treebank tags, one per word, are written to DATA/tags. NLTK's perceptron tagger computes them with the model
    averaged_perceptron_tagger_eng in NLTK_DATA.

    Attributes:
        file: file with the tags of all captions, plain or .gz, in place of the tagger: a line ID<TAB>word/TAG word/TAG
            per caption.
    """

    file: PathName | None = None

    def annotate(self, dataset: StoredDataset, overwrite: bool) -> Table:
        from vsemb.systems.language.tags import describe_tags, import_tags, open_tagger, tag_captions

        began = time.monotonic()
        if self.file is None:
            tags = tag_captions(dataset, open_tagger(), overwrite=overwrite)
        else:
            tags = import_tags(dataset, self.file, overwrite=overwrite, report=say)
        values = describe_tags(dataset, tags) | {"seconds": round(time.monotonic() - began, 2)}
        splits = ", ".join(f"{name} {count:,}" for name, count in values["splits"].items())
        shares = [f"{tag} {100 * count / values['words']:.0f} %" for tag, count in values["tags"].items()]
        most = ", ".join(shares[:_SHOWN]) + (", ..." if len(shares) > _SHOWN else "")
        lines = [
            f"captions  {values['captions']:,} ({splits}), {values['words']:,} words",
            f"tags      {len(shares)} kinds: {most}",
            f"from      {values['source'].get('tagger') or values['source'].get('file')}",
            f"time      {values['seconds']:.1f} s",
            f"where     {values['directory']}",
        ]
        return Table("\n".join(lines), values)
