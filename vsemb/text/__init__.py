"""Text room: strings to ids, in graph, the same code in training and serving."""

from vsemb.text.tokenizers import ALPHABET, CharacterTokenizer, Tokenizer, WordTokenizer
from vsemb.text.vocabulary import Vocabulary

__all__ = [
    "ALPHABET",
    "CharacterTokenizer",
    "Tokenizer",
    "Vocabulary",
    "WordTokenizer",
]
