"""Plain English, as far as rules can check it: pages, public docstrings, help texts and messages of errors."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
ROOMS = (("docs", "md"), ("vsemb", "py"), ("pipelines", "py"))

_NUMBER = r"(?:\d[\d,.]*|one|two|three|four|five|six|seven|eight|nine|ten|twenty|half|so many|as many)"
_UNIT = (
    "(?:batch|box|byte|caption|cell|class|core|device|dimension|document|entry|epoch|file|host|hour|image|index|item"
    "|layer|line|machine|minute|model|node|number|pair|person|photo|picture|pixel|process|query|region|replica|request"
    "|row|run|scene|second|sentence|set|shard|side|slot|split|step|text|token|update|vector|word|worker)"
)
_JOINT = (
    "(?:of|in|for|as|with|without|from|to|by|or|and|at|than|on|is|are|was|into|has|have|per|through|over|inside|like"
    "|where|begin|large)"
)
_MOST_WORDS = 40

#: Rule -> what breaks it.
RULES = {
    "begins with 'What'": r"(?:^|(?<=[.!?] ))What\b",
    "negated noun": r"\b(?:is|are|was|were|be|it|they|one) (?:no|none)\b(?! longer\b)|\b[Nn]obody\b|\b[Nn]o one\b",
    "vague relative": r"\b[Ww]hat(?:so)?ever\b|\bthat which\b|\bthose (?:of|that|which|who)\b|\bsuch as (?:is|are)\b"
    r"|\bwhere there (?:is|are)\b",
    "chain of 'that of'": r"\bthat of\b[^.]*\bthat of\b",
    "'a' for 'per'": rf"\b(?:{_NUMBER}(?: [\w-]+)?|[Aa]n?) (?!{_JOINT}\b)[\w-]+ an? {_UNIT}\b",
    "personification": r"\b(?:awake|asleep|strangers?|provokes?|wants?|knows?|remembers?|forgets|believes?|thinks?"
    r"|worth saying|says? so|look(?:s|ed|ing)? at it|as it likes|learnt by heart)\b",
}


def prose(markdown: str) -> Iterator[str]:
    """Yields paragraphs, list items, headings and table cells, without code, equations and targets of links."""
    text = re.sub(r"```.*?```|<!--.*?-->|\$\$.*?\$\$", "\n\n", markdown, flags=re.DOTALL)
    text = re.sub(r"`[^`]*`|\$[^$\n]+\$", "X", text)
    text = re.sub(r"\]\([^)]*\)", "]", text)
    for block in re.split(r"\n\s*\n|\n(?=\s*(?:[-*]|\d+[.)]|#+|\|)\s)|(?<=\|)\n", text):
        for cell in block.split("|") if block.lstrip().startswith("|") else [block]:
            if said := re.sub(r"^(?:[#*_-]+|\d+[.)]) ", "", " ".join(cell.split())):
                yield said


def docstrings(tree: ast.Module) -> Iterator[str]:
    """Yields the docstrings of a module and its public classes and functions, without examples."""
    todo: list[ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef] = [tree]
    while todo:
        node = todo.pop()
        if doc := ast.get_docstring(node):
            for block in re.split(r"\n\s*\n", doc):
                if not re.match(r"\s*>>>|Example", block):
                    # Each argument or attribute is a paragraph by itself; so is what is indented like code.
                    kept = [line for line in block.splitlines() if not line.startswith("    " * 2)]
                    yield re.sub(r"\n {4}(?=[\w*`]+:)", "\n\n", "\n".join(kept))
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            defined = [each for each in node.body if isinstance(each, ast.ClassDef | ast.FunctionDef)]
            todo += [each for each in defined if not each.name.startswith("_")]


def strings(node: ast.AST) -> Iterator[str]:
    """Yields the strings below a node, what is filled in as X, and adjacent ones in one."""
    if isinstance(node, ast.Constant):
        if isinstance(node.value, str):
            yield node.value
    elif isinstance(node, ast.JoinedStr):
        yield "".join(str(each.value) if isinstance(each, ast.Constant) else "X" for each in node.values)
    else:
        for child in ast.iter_child_nodes(node):
            yield from strings(child)


def said(tree: ast.Module) -> Iterator[str]:
    """Yields help texts of options and the messages of errors."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Raise) and node.exc is not None:
            yield from strings(node.exc)
        elif isinstance(node, ast.keyword) and node.arg in ("help", "description"):
            yield from strings(node.value)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("DataError", "notice"):
            yield from strings(node)


def findings(text: str) -> list[str]:
    """Returns the rules that a text breaks, each with the words that do.

    Args:
        text: a paragraph, without line breaks.
    """
    found = [f"{rule}: {match[0]}" for rule, pattern in RULES.items() for match in re.finditer(pattern, text)]
    for sentence in re.split(r"(?<=[.!?])\s+(?=[A-Z`X\"])|: ", text):
        if (words := len(sentence.split())) > _MOST_WORDS:
            found.append(f"{words} words: {sentence[:70]} …")
    return found


def texts(path: Path) -> Iterator[str]:
    content = path.read_text(encoding="utf-8")
    if path.suffix == ".md":
        yield from prose(content)
        return
    tree = ast.parse(content)
    for text in (*docstrings(tree), *said(tree)):
        yield from prose(text)


def test_pages_and_code_are_in_plain_english() -> None:
    pages = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "pipelines/README.md", "savedmodels/README.md")]
    paths = [*pages, *(path for room, end in ROOMS for path in sorted((ROOT / room).rglob(f"*.{end}")))]
    wrong = [f"{path.relative_to(ROOT)}: {each}" for path in paths for text in texts(path) for each in findings(text)]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("What a run finds worth saying.", "begins with 'What'"),
        ("This folder is no run.", "negated noun"),
        ("An item who is nobody's negative.", "negated noun"),
        ("It catches whatever a loader raises.", "vague relative"),
        ("The order, that which stands above.", "vague relative"),
        ("The ids are those of images.", "vague relative"),
        ("It has 32 captions an image.", "'a' for 'per'"),
        ("It reads one text a line.", "'a' for 'per'"),
        ("This runs before a compiler is awake.", "personification"),
        (" ".join(["word"] * 41), "41 words"),
    ],
)
def test_rules_find_what_they_are_for(text: str, rule: str) -> None:
    assert [each for each in findings(text) if each.startswith(rule)]


def test_plain_sentences_pass() -> None:
    for text in ("It has 32 captions per image.", "Two captions of an image.", "The file is not a run directory."):
        assert findings(text) == []


def test_texts_are_found_where_they_stand(tmp_path: Path) -> None:
    module = """
'''What it is.'''
def public():
    '''Return it.

    Args:
        rows: what nobody reads.
    '''
    raise ValueError(f"{x} is no run")
def _private():
    '''What is not looked at.'''
parser.add_argument("--x", help="whatever")
"""
    (tmp_path / "module.py").write_text(module)
    found = [each.split(":")[0] for text in texts(tmp_path / "module.py") for each in findings(text)]
    assert sorted(found) == ["begins with 'What'", "negated noun", "negated noun", "vague relative"]
