"""Text room: strings to ids, in graph, the same code in training and serving."""

from vsemb.text.subwords import (
    BPETokenizer,
    UnigramTokenizer,
    WordPieceTokenizer,
    learn_sentencepieces,
    learn_wordpieces,
)
from vsemb.text.tokenizers import ALPHABET, CharacterTokenizer, Tokenizer, WordTokenizer, alphabet_vocabulary
from vsemb.text.vocabulary import Vocabulary
from vsemb.text.word_vectors import cooccurrence_vectors, read_word_vectors

__all__ = [
    "ALPHABET",
    "BPETokenizer",
    "CharacterTokenizer",
    "Tokenizer",
    "UnigramTokenizer",
    "Vocabulary",
    "WordPieceTokenizer",
    "WordTokenizer",
    "alphabet_vocabulary",
    "cooccurrence_vectors",
    "learn_sentencepieces",
    "learn_wordpieces",
    "read_word_vectors",
]
