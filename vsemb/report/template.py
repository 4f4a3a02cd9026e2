"""The templates of the pages, which lie beside this file."""

from __future__ import annotations

from importlib.resources import files
from typing import Any

from vsemb.errors import missing_extra


def page_template(name: str) -> Any:
    """Returns a template of a page; whatever is filled in is escaped.

    Args:
        name: its file.

    Raises:
        MissingExtraError: without jinja2.

    Example:

        page_template("page.html.jinja").render(name="vsepp")
    """
    try:
        import jinja2
    except ImportError as error:
        raise missing_extra("jinja2", "report") from error
    folder = files(__package__)
    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(lambda each: (folder / each).read_text(encoding="utf-8")),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template(name)
