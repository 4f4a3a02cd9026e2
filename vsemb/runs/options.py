"""Options that systems add to `vsemb.export` and `vsemb.write_report`, as parts with the options as fields."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from vsemb.parts import Part

if TYPE_CHECKING:
    from vsemb.exporting import Signature
    from vsemb.runs.run import Run


@dataclass(frozen=True)
class ExportOption(Part, family="export option"):
    """Options of an export.

    Its module imports nothing heavy outside functions, because `--help` shows its fields.
    """

    def signatures(self, run: Run) -> Sequence[Callable[[Any], Signature]]:
        """Return further signatures of the exported model, as functions of the served model.

        Raises:
            InvalidArgumentError: for a run that does not have them.
        """
        return ()

    def settings(self, run: Run) -> Mapping[str, Any]:
        """Return options for `vsemb.recipes.schema.Recipe.served`.

        Raises:
            InvalidArgumentError: for a run that does not read them.
        """
        return {}


@dataclass(frozen=True)
class ReportOption(Part, family="report option"):
    """Options of a report.

    Its module imports nothing heavy outside functions, because `--help` shows its fields.
    """

    def require(self, run: Run) -> None:
        """Refuse a run whose report does not read the options.

        Raises:
            InvalidArgumentError: for such a run.
        """
        raise NotImplementedError
