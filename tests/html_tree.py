"""A page as a tree of elements, for tests of what it says; it fails for elements that do not end."""

from __future__ import annotations

from html.parser import HTMLParser

# Those that have no end.
VOID = {"meta", "img", "line", "polyline", "br", "link", "input"}


class Node:
    """An element of a page, with the elements and texts inside."""

    def __init__(self, tag: str, attributes: dict[str, str | None]) -> None:
        self.tag, self.attributes = tag, attributes
        self.inside: list[Node | str] = []

    def all(self, tag: str, kind: str | None = None, **wanted: str) -> list[Node]:
        """Returns the elements of a tag, of one class (`kind`) and with other attributes, at any depth."""
        found = []
        for node in self.inside:
            if isinstance(node, Node):
                kinds = (node.attributes.get("class") or "").split()
                fits = all(node.attributes.get(name) == value for name, value in wanted.items())
                if node.tag == tag and (kind is None or kind in kinds) and fits:
                    found.append(node)
                found += node.all(tag, kind, **wanted)
        return found

    def one(self, tag: str, kind: str | None = None, **wanted: str) -> Node:
        (found,) = self.all(tag, kind, **wanted)
        return found

    @property
    def text(self) -> str:
        parts = [node if isinstance(node, str) else node.text for node in self.inside]
        return " ".join(" ".join(parts).split())


class Page(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.root = Node("", {})
        self._open = [self.root]
        self.feed(text)
        self.close()
        assert self._open == [self.root], "elements that do not end"

    def handle_starttag(self, tag, attrs):
        node = Node(tag, dict(attrs))
        self._open[-1].inside.append(node)
        if tag not in VOID:
            self._open.append(node)

    def handle_startendtag(self, tag, attrs):
        self._open[-1].inside.append(Node(tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self._open.pop().tag == tag

    def handle_data(self, data):
        self._open[-1].inside.append(data)
