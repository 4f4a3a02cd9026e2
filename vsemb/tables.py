"""Tables as HTML, for notebooks: what `_repr_html_` of runs, datasets, metrics and search results return."""

from __future__ import annotations

import html
from collections.abc import Sequence


class Markup(str):
    """HTML that stands in a cell as it is; other cells are escaped."""

    __slots__ = ()


def html_table(header: Sequence[object], rows: Sequence[Sequence[object]], title: str = "") -> str:
    """Lay out an HTML table without styles of its own, so that the notebook styles it.

    Args:
        header: names of the columns; empty for none.
        rows: cells, escaped unless they are `Markup`.
        title: caption of the table.

    Example:

    >>> html_table(["R@1"], [["<5"]])
    '<table><thead><tr><th>R@1</th></tr></thead><tbody><tr><td>&lt;5</td></tr></tbody></table>'
    """
    caption = f"<caption>{_cell(title)}</caption>" if title else ""
    head = f"<thead><tr>{''.join(f'<th>{_cell(each)}</th>' for each in header)}</tr></thead>" if header else ""
    body = "".join(f"<tr>{''.join(f'<td>{_cell(each)}</td>' for each in row)}</tr>" for row in rows)
    return f"<table>{caption}{head}<tbody>{body}</tbody></table>"


def _cell(value: object) -> str:
    return value if isinstance(value, Markup) else html.escape(str(value))
