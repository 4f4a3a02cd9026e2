"""Captions as words, as the caption metrics count them, without Java.

The evaluation of COCO captions (Chen et al. 2015) tokenises candidates and references by Stanford's
PTBTokenizer, a Java program: words of the Penn treebank in lower case, without punctuation. Here the same is
done by regular expressions, and never by Java, so that a score does not depend on what is installed where it
is measured. The two split each of the 35,000 captions of Flickr8k's train and val alike.
"""

from __future__ import annotations

import re

_ASCII = str.maketrans({"‘": "'", "’": "'", "‛": "'", "′": "'", "–": "--", "—": "--", "…": "...", "\0": " "})
_DOUBLE_QUOTES = re.compile("[\"“”„«»]|``|''")
_BRACKETS = {"(": "-lrb-", ")": "-rrb-", "[": "-lsb-", "]": "-rsb-", "{": "-lcb-", "}": "-rcb-"}

# Tokens that do not count: the list of the COCO evaluation, as far as it is met there. Its brackets are not,
# since it writes them in capitals and looks them up in lower-cased text; so brackets count.
_DROPPED = frozenset(["'", "`", ".", "?", "!", ",", ":", "-", "--", ";"])

# Words that the treebank writes as two.
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

# Words whose full stop belongs to them.
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
    """Splits a caption into the words that metrics count.

    Lower case; `don't` is `do n't` and `dog's` is `dog 's`; words with hyphens stay whole; punctuation goes.

    Args:
        text: a caption.

    Returns:
        its words, none of them empty or with white space; no words for a caption without any.

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
