"""Words of captions as the COCO caption evaluation counts them."""

from __future__ import annotations

import re

from vsemb.systems.captions.caption_characters import LETTERS, MARKS, SYMBOLS, character_class
from vsemb.unicode import composed

_ASCII = str.maketrans(
    {
        **{"‘": "'", "’": "'", "‛": "'", "′": "'", "–": "--", "—": "--", "―": "--", "…": " ... ", "\0": " "},
        **{"‹": " ", "›": " ", "\u00ad": "", "¼": " 1/4 ", "½": " 1/2 ", "¾": " 3/4 ", "⅓": " 1/3 ", "⅔": " 2/3 "},
        **{"¢": " cents ", "£": " # ", "€": " $ ", "¤": " $ ", "₠": " $ "},
    }
)
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

# Characters of words: of ASCII, those that a hyphen joins, all; then the tokens of one character.
_A = "[A-Za-z0-9_]"
_T = f"[A-Za-z0-9_{character_class(LETTERS)}]"
_W = f"[A-Za-z0-9_{character_class(LETTERS)}{character_class(MARKS)}]"
_OTHER = f"[{character_class(LETTERS)}{character_class(MARKS)}]"
_S = f"[!-~{character_class(SYMBOLS)}]"
# don't, dog's and we'll are cut in front of their end.
_NOT = f"(?!(?i:n't)(?!{_W}))"
_ENDING = f"(?!(?i:s|m|d|re|ve|ll)(?!{_W})|(?i:n)')"

_TOKEN = re.compile(
    rf"""
      (?i:{"|".join(_ABBREVIATIONS)})\.(?!{_W})  # mr.
    | (?:[A-Za-z]\.)+(?!{_W})                   # u.s.
    | '(?i:tis|twas)(?!{_W})
    | '(?i:n)'|'?(?i:n)'(?!{_W})                # rock 'n' roll
    | '(?i:s|m|d|re|ve|ll|em|til|cause)(?!{_W})  # what stands apart from its word
    | (?i:n't)(?!{_W})
    | [A-Z]+&[A-Z]+                             # A&M, where small letters would be three words
    | \d+(?:[.,:/٫٬]\d+)+                       # 3,000 and 5:30
    | @[A-Za-z_]{_A}*|\#(?![\d_])(?:(?!_){_W})+  # @home and #beach
    # A word of ASCII: t-shirt, o'clock, end.of, black/white.
    | (?>{_A}(?:{_NOT}{_A})*(?:[-./@](?={_A})(?:{_NOT}{_A})+|'{_ENDING}(?={_A}{_A}){_A}+)*)(?![-'.]?{_OTHER})
    # Others: of words with hyphen or apostrophe, or that begin with a digit, letters alone; else marks, too.
    | {_T}(?:{_NOT}{_T})*(?:-(?={_T})(?:{_NOT}{_T})+|'{_ENDING}(?={_T}{_T}){_T}+)+
    | \d(?:{_NOT}{_T})*
    | (?!\d){_W}(?:{_NOT}{_W})*(?:\.(?!\d)(?={_W}){_W}+)*
    | ---*
    | \.\.\.*
    | [!?]+
    | {_S}
    """,
    re.VERBOSE,
)


def caption_tokens(text: str) -> list[str]:
    """Split a caption into the words that metrics count, without Java.

    The COCO caption evaluation tokenizes candidates and references with Stanford's PTBTokenizer, a Java program. It
    returns words of the Penn treebank in lower case, without punctuation. Here regular expressions do the same, so
    that scores do not depend on the installed software. Both give the same words for all 35,000 captions of Flickr8k's
    train and val.

    Words are in lower case and in composed form (NFC), so that canonically equal captions have equal words. `don't`
    becomes `do n't`, and `dog's` becomes `dog 's`. Words with hyphens stay whole. Marks belong to the word of their
    letter. Punctuation is removed, and so are variation selectors, joiners, which end a word, and most emoji.

    Args:
        text: a caption.

    Returns:
        its words, each without white space and not empty; an empty list for a caption without words.

    Example:

    >>> caption_tokens("The dog's T-shirt isn't red, it's blue!")
    ['the', 'dog', "'s", 't-shirt', 'is', "n't", 'red', 'it', "'s", 'blue']
    """
    text = _DOUBLE_QUOTES.sub(" ", composed(text).translate(_ASCII))
    tokens = []
    for token in map(str.lower, _TOKEN.findall(text)):
        if token in _DROPPED or not token.strip("."):
            continue
        tokens += _SPLIT.get(token, _BRACKETS.get(token, token)).split()
    return tokens
