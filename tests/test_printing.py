"""Output of commands."""

from __future__ import annotations

import json

import pytest

from vsemb.cli.running import console, write
from vsemb.console import say
from vsemb.errors import DataError, escaped, invalid_argument
from vsemb.printing import facts, table

# It clears the screen, sets the title by one character each of C0 and C1, and shows the rest of the line backwards.
HOSTILE = "dog\x1b[2J\x1b]0;owned\x07\x9b31m\x08\r\u202egnp.jpg\u2066"
CONTROLS = [chr(number) for number in (*range(9), *range(11, 32), *range(127, 160), *range(0x202A, 0x202F))]


def test_columns_of_text_and_numbers_without_trailing_blanks():
    rows = [["1", "a", "first"], ["10", "long", ""]]
    assert table(["n", "key", "text"], rows, text=(1, 2)).splitlines() == [
        " n  key   text",
        " 1  a     first",
        "10  long",
    ]


def test_a_line_feed_in_a_cell_makes_no_row() -> None:
    assert table(["rank", "file"], [["1", "a\n 2  b.jpg"]], text=(1,)).splitlines() == [
        "rank  file",
        "   1  a\\u000a 2  b.jpg",
    ]


def test_names_of_others_do_not_control_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    with console(quiet=False):
        print(f"key {HOSTILE}")
        print(table(["key"], [[HOSTILE]]))
        print(facts({"where": HOSTILE}))
        say(f"left out: {HOSTILE}")
    with console(quiet=False, only_json=True) as stream:
        print("not shown")
        write({"key": HOSTILE}, "-", stream)
    for error in (DataError(f"No image {HOSTILE}."), invalid_argument("key", HOSTILE, "a key")):
        print(error)
    out, err = capsys.readouterr()
    assert "\\u001b[2J" in out and "\\u001b[2J" in err and "not shown" not in out
    for character in {*CONTROLS, *HOSTILE} - set("".join(map(chr, range(32, 127)))):
        assert character not in out + err, hex(ord(character))
    found = out[out.index("{") : out.index("}") + 1]
    assert json.loads(found) == {"key": HOSTILE}


def test_other_letters_and_joiners_are_kept() -> None:
    for text in ("a dog\n\ton a beach", "Hündin 犬 \U0001f469\u200d\U0001f680 क्\u200dष مى\u200cخ"):
        assert escaped(text) == text
