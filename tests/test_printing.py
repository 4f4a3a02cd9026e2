"""Output of commands."""

from __future__ import annotations

from vsemb.printing import table


def test_columns_of_text_and_numbers_without_trailing_blanks():
    rows = [["1", "a", "first"], ["10", "long", ""]]
    assert table(["n", "key", "text"], rows, text=(1, 2)).splitlines() == [
        " n  key   text",
        " 1  a     first",
        "10  long",
    ]
