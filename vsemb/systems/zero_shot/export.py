"""Options of `vsemb.export` for classes: a signature that classifies images."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from vsemb.parts import PathName
from vsemb.runs.options import ExportOption
from vsemb.systems.zero_shot.api import open_prompts

if TYPE_CHECKING:
    from vsemb.exporting import Signature
    from vsemb.runs.run import Run


@dataclass(frozen=True)
class ClassNames(ExportOption, kind="classes"):
    """Add the signature `classify`, which scores images against classes.

    Attributes:
        classes: names of the classes.
        classes_file: file with one class name per line.
        template: prompts, each with {} for the name; default: the name alone.
    """

    classes: tuple[str, ...] | None = None
    classes_file: PathName | None = None
    template: tuple[str, ...] = ()

    def signatures(self, run: Run) -> Sequence[Callable[[Any], Signature]]:
        _, prompts = open_prompts(run, self.classes, self.classes_file, self.template)
        return (prompts.signature,)
