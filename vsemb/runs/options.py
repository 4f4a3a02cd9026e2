"""Options that systems add to `vsemb.export`, `vsemb.write_report` and `vsemb.find`, as parts with them as fields."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from vsemb.parts import Part

if TYPE_CHECKING:
    from vsemb.exporting import Signature
    from vsemb.runs.inputs import Query
    from vsemb.runs.run import Run
    from vsemb.runs.searching import SearchResult, SearchSession


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


@dataclass(frozen=True)
class SearchOption(Part, family="search option"):
    """Options of a search: a second stage, which orders the first results again.

    Its module imports nothing heavy outside functions, because `--help` shows its fields.
    """

    @property
    def results_read(self) -> int:
        """Number of first results that are ordered again."""
        raise NotImplementedError

    def require(self, query: Query, kind: str) -> None:
        """Refuse a query that the second stage cannot score.

        Args:
            query: the query.
            kind: kind of the searched items, `image` or `text`.

        Raises:
            InvalidArgumentError: for such a query.
        """
        raise NotImplementedError

    def reordered(self, search: SearchSession, query: Query, results: Sequence[SearchResult]) -> list[SearchResult]:
        """Order results again.

        Args:
            search: the session that found them.
            query: the query.
            results: at most `results_read` results, best first.

        Returns:
            The same results in a new order, with new ranks from 1.

        Raises:
            VsembError: if they cannot be scored.
        """
        raise NotImplementedError
