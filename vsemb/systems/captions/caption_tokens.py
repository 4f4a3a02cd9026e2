"""Words of captions as the COCO caption evaluation counts them."""

from __future__ import annotations

import re

_ASCII = str.maketrans({"‘": "'", "’": "'", "‛": "'", "′": "'", "–": "--", "—": "--", "…": "...", "\0": " "})
_DOUBLE_QUOTES = re.compile("[\"“”„«»]|``|''")
_BRACKETS = {"(": "-lrb-", ")": "-rrb-", "[": "-lsb-", "]": "-rsb-", "{": "-lcb-", "}": "-rcb-"}

# Tokens that the COCO evaluation removes. Its list also has brackets, but spelled in capitals, and texts are in lower
# case. So brackets are not removed.
_DROPPED = frozenset(["'", "`", ".", "?", "!", ",", ":", "-", "--", ";"])

# Words that the Penn treebank splits in two.
_SPLIT = {
    "cannot": "can not",
    "gonna": "gon na",
    "gotta": "got ta",
    "wanna": "wan na",
    "gimme": "gim me",
    "lemme": "lem me",
    "'tis": "'t is",
    "'twas": "'t was",
}

# Abbreviations, which keep their full stop.
_ABBREVIATIONS = (
    *("mr", "mrs", "ms", "dr", "prof", "rev", "gen", "sgt", "capt", "lt", "col", "gov", "sen", "st", "jr"),
    *("sr", "inc", "co", "corp", "ltd", "vs", "etc", "ave", "mt", "ft", "blvd", "dept", "approx"),
)

_TOKEN = re.compile(
    rf"""
      (?:{"|".join(_ABBREVIATIONS)})\.(?!\w)  # mr.
    | (?:[^\W\d_]\.)+(?!\w)                   # u.s.
    | '(?:tis|twas)\b
    | '?n'(?!\w)                              # rock 'n' roll
    | '(?:s|m|d|re|ve|ll|em|til|cause)\b  # what stands apart from its word
    | n't\b
    | (?-i:[A-Z]+&[A-Z]+)                     # A&M, where small letters would be three words
    | \d+(?:[.,:/]\d+)+                       # 3,000 and 5:30
    # A word: t-shirt, o'clock, end.of, black/white; don't, dog's and we'll are cut in front of their end.
    | \w(?:(?!n't\b)\w)*(?:[-./@](?=\w)(?:(?!n't\b)\w)+|'(?!(?:s|m|d|re|ve|ll)\b)(?=\w\w)\w+)*
    | ---*
    | \.\.\.*
    | [!?]+
    | \S
    """,
    re.VERBOSE | re.IGNORECASE,
)


def caption_tokens(text: str) -> list[str]:
    """Split a caption into the words that metrics count, without Java.

    The COCO caption evaluation tokenizes candidates and references with Stanford's PTBTokenizer, a Java program. It
    returns words of the Penn treebank in lower case, without punctuation. Here regular expressions do the same, so
    that scores do not depend on the installed software. Both give the same words for all 35,000 captions of Flickr8k's
    train and val.

    Words are in lower case. `don't` becomes `do n't`, and `dog's` becomes `dog 's`. Words with hyphens stay whole.
    Punctuation is removed.

    Args:
        text: a caption.

    Returns:
        its words, each without white space and not empty; an empty list for a caption without words.

    Example:

    >>> caption_tokens("The dog's T-shirt isn't red, it's blue!")
    ['the', 'dog', "'s", 't-shirt', 'is', "n't", 'red', 'it', "'s", 'blue']
    """
    text = _DOUBLE_QUOTES.sub(" ", text.translate(_ASCII))
    tokens = []
    for token in map(str.lower, _TOKEN.findall(text)):
        if token in _DROPPED or not token.strip("."):
            continue
        tokens += _SPLIT.get(token, _BRACKETS.get(token, token)).split()
    return tokens
