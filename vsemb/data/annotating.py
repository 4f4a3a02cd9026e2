"""Annotations that `vsemb.annotate` makes, as parts; systems bring them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from vsemb.parts import Part
from vsemb.results import Result

if TYPE_CHECKING:
    from vsemb.data.store import StoredDataset


@dataclass(frozen=True)
class Annotation(Part, family="annotation"):
    """Data about the captions of a dataset, computed or read from files.

    Its module imports nothing heavy outside functions, because `--help` shows its fields.
    """

    def annotate(self, dataset: StoredDataset, overwrite: bool) -> Result:
        """Annotate the captions of a dataset.

        Args:
            dataset: the dataset.
            overwrite: replace an existing annotation.

        Raises:
            VsembError: if the annotation cannot be made.
        """
        raise NotImplementedError
